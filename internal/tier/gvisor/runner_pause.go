package gvisor

import (
	"errors"
	"os"
	"syscall"
	"time"

	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/runsc/container"
)

// flushTime bounds what is done in the guest before a pause.
const flushTime = 5 * time.Second

var errNotLasting = errors.New("this box does not last")

// pause stops every task of the guest's, after it has written out. A guest that
// is paused stays so.
func (r *runner) pause() error {
	r.turn.Lock()
	defer r.turn.Unlock()
	if r.c == nil || r.set.Lasting == nil {
		return errNotLasting
	}
	if r.c.Status == container.Paused {
		return nil
	}
	r.flush()
	return r.c.Pause()
}

// unpause lets the guest go on, if it is paused.
func (r *runner) unpause() error {
	r.turn.Lock()
	defer r.turn.Unlock()
	if r.c == nil || r.set.Lasting == nil {
		return errNotLasting
	}
	if r.c.Status != container.Paused {
		return nil
	}
	return r.c.Resume()
}

// flush has the guest's kernel write out what it holds of files: a start of the
// agent's program calls sync(2), as guest root. A guest that hinders it hurts
// itself alone, and is paused all the same: what was not written out is in the
// memory of its kernel, which a pause keeps.
func (r *runner) flush() {
	caps, err := guestCaps(connectCaps[:])
	if err != nil {
		return
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer null.Close()
	pid, err := r.execute(&control.ExecArgs{
		Filename: agentFile, Argv: []string{agentFile, "sync"},
		Envv: []string{}, WorkingDirectory: "/", Capabilities: caps, NoNewPrivileges: true,
	}, "the input of its agent's", map[int]*os.File{0: null, 1: null, 2: null})
	if err != nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = r.c.WaitPID(pid)
	}()
	late := time.NewTimer(flushTime)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
		_ = r.c.SignalProcess(syscall.SIGKILL, pid)
	}
}
