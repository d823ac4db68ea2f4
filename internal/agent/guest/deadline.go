package guest

import (
	"sync"
	"time"
)

// deadline is a moment that can be waited for, and moved while somebody waits.
type deadline struct {
	mu    sync.Mutex
	turn  int // of set, so that an old timer does nothing
	ended chan struct{}
}

func newDeadline() *deadline { return &deadline{ended: make(chan struct{})} }

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.turn++
	select {
	case <-d.ended:
		d.ended = make(chan struct{})
	default:
	}
	if t.IsZero() {
		return
	}
	wait, turn := time.Until(t), d.turn
	if wait <= 0 {
		close(d.ended)
		return
	}
	time.AfterFunc(wait, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.turn == turn {
			close(d.ended)
		}
	})
}

// wait returns a channel that is closed when the moment has passed.
func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ended
}

func (d *deadline) passed() bool {
	select {
	case <-d.wait():
		return true
	default:
		return false
	}
}
