package rest

import (
	"context"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// signaled is a box that tells of each signal.
type signaled struct {
	box.Guest
	got chan int
}

func (s signaled) Signal(_ context.Context, _ box.ProcessRef, n int, _ bool) error {
	s.got <- n
	return nil
}

// A signal is a use of a box, which goes on by it if it was paused. Who was told of
// a program's end and leaves sends none; who leaves before kills the program.
func TestAProgramWhoseEndWasSeenGetsNoSignal(t *testing.T) {
	for _, c := range []struct {
		name        string
		over, leave bool
		want        bool
	}{
		{"it ends, the caller leaves", true, true, false},
		{"it ends, the caller stays", true, false, false},
		{"the caller leaves", false, true, true},
		{"nobody saw its end", false, false, true},
	} {
		g := signaled{got: make(chan int, 2)}
		ctx, leave := context.WithCancel(t.Context())
		l := New(Config{}).leash(ctx, g, box.ProcessRef{PID: 7})
		if c.over {
			l.over()
		}
		if c.leave {
			leave()
		}
		l.release()
		leave()
		wait := 100 * time.Millisecond
		if c.want {
			wait = time.Minute
		}
		sent := false
		select {
		case <-g.got:
			sent = true
		case <-time.After(wait):
		}
		if sent != c.want || len(g.got) > 0 {
			t.Errorf("%s: a signal: %v, and %d more", c.name, sent, len(g.got))
		}
	}
}
