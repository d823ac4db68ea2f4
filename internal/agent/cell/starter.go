package cell

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/internal/host/confine"
)

// starter starts every program of the box from one thread, which was confined
// before the first of them: what it starts has nothing left to give up.
type starter struct {
	work chan func()
}

// newStarter takes a thread for good and gives the programs to come two
// namespaces of their own, which are kept by thread, hence here. Time: whoever
// unshares that one stays, its children enter when they execute something
// (time_namespaces(7); Linux 6.1). Control groups: this process was put into the
// box's group after it was made, so that in the namespace that it came with
// /proc/self/cgroup shows where on the host that group is.
func newStarter() (*starter, error) {
	s := &starter{work: make(chan func())}
	ready := make(chan error)
	go s.take(ready)
	return s, <-ready
}

// take makes the calling goroutine's thread the starter's, unless it is the main
// one. That is what the kernel shows of this process and what it asks when
// somebody signals it: it must not be in the programs' domain.
func (s *starter) take(ready chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		other := make(chan error)
		go s.take(other) // on another thread, since this one is taken
		err := <-other
		runtime.UnlockOSThread()
		ready <- err
		return
	}
	if err := unix.Unshare(unix.CLONE_NEWTIME | unix.CLONE_NEWCGROUP); err != nil {
		ready <- fmt.Errorf("cannot make a time and a control group namespace: %w", err)
		return // and with the goroutine ends its thread
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

// confine confines the thread. After an error nothing may be started.
func (s *starter) confine(d confine.Domain) (a confine.Applied, err error) {
	s.do(func() { a, err = confine.Thread(d) })
	return a, err
}

// spare is how many threads are kept idle: more than this process ever needs at
// once beyond those that it has when it is set up. It runs Go code on one thread
// at a time, whatever the machine has, so that nobody starts another while they
// are counted either, and waits in no system call but short ones:
// what may wait for a disk, looking up and starting a program, is the starter's.
const spare = 8

// spareThreads makes the runtime start n threads and keep them idle. The kernel
// counts threads as tasks of the box, so what a program may start beside them is
// known only if their number stays; and a runtime that cannot start a thread in
// a box full of tasks would end this process. A thread that its goroutine was
// locked to and then lets go is kept by the runtime for whoever needs one next.
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

// ownTasks is the number of this process's threads: proc_pid_status(5).
func ownTasks() (int64, error) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("cannot count own threads: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "Threads:"); ok {
			return strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		}
	}
	return 0, fmt.Errorf("cannot count own threads: /proc/self/status does not say")
}
