package engine

import (
	"context"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// longest is for how long something is waited for that has to come: much more than
// it takes on a host that has other things to do.
const longest = 2 * time.Minute

// until waits for something to become so.
func (b *bench) until(what string, is func() bool) {
	b.t.Helper()
	for end := time.Now().Add(longest); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("after %v it is not so that %s", longest, what)
		}
	}
}

// statHangs calls Stat of a box until hang is closed, and returns when the call has
// come to the box.
func (b *bench) statHangs(id box.ID, hang chan struct{}) (done chan error) {
	b.t.Helper()
	h := b.host(id)
	h.hang = hang
	g := b.guest(id)
	done = make(chan error, 1)
	go func() { _, err := g.Stat(context.Background(), "/x", false); done <- err }()
	b.until("a call is in box "+string(id), func() bool { return h.inStat.Load() > 0 })
	return done
}

// runs is what the box's agent says from now on that runs.
func (b *plainBox) runs(list ...box.Process) {
	b.plainAgent.mu.Lock()
	defer b.plainAgent.mu.Unlock()
	b.list = list
}
