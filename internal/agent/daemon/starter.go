package daemon

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/internal/host/confine"
)

// starter starts every program from one thread. That thread is in a Landlock
// domain of its own, where the kernel has them with scopes: what it starts can
// signal and trace each other, and not this process, though all may have one
// user. kill(2) with -1, too, then leaves the agent alone.
//
// What stays open: the thread itself is in that domain, so a program that
// looks for its number and sends a signal to just that thread (tgkill(2)) ends
// the agent, and with it its own box.
type starter struct {
	work chan func()
}

func newStarter() (*starter, error) {
	s := &starter{work: make(chan func())}
	ready := make(chan error)
	go s.take(ready)
	return s, <-ready
}

// take makes the calling goroutine's thread the starter's, unless it is the main
// one, which the kernel asks when somebody signals this process.
func (s *starter) take(ready chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		other := make(chan error)
		go s.take(other)
		err := <-other
		runtime.UnlockOSThread()
		ready <- err
		return
	}
	if err := confine.Scope(); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		ready <- fmt.Errorf("cannot keep programs from the agent: %w", err)
		return
	}
	ready <- nil
	for fn := range s.work {
		fn()
	}
}

// do runs fn on the thread.
func (s *starter) do(fn func()) {
	done := make(chan struct{})
	s.work <- func() { fn(); close(done) }
	<-done
}

// slots bounds how many system calls that may wait for a disk run at once: each
// holds a thread.
type slots chan struct{}

const (
	atOnce = 8
	// spare is how many threads are kept idle: one for each slot, two that run Go
	// code, and some for the runtime's own.
	spare = atOnce + 6
)

func newSlots() slots { return make(slots, atOnce) }

// do runs fn when there is a slot.
func (s slots) do(fn func()) {
	s <- struct{}{}
	defer func() { <-s }()
	fn()
}

// spareThreads makes the runtime start n threads and keep them idle. The box may
// be full of tasks when one is needed, and a runtime that cannot start a thread
// ends this process. A thread that its goroutine was locked to and then lets go
// is kept for whoever needs one next.
func spareThreads(n int) {
	var all, done sync.WaitGroup
	all.Add(n)
	for range n {
		done.Go(func() {
			runtime.LockOSThread()
			all.Done()
			all.Wait() // until there are n at once
			runtime.UnlockOSThread()
		})
	}
	done.Wait()
}
