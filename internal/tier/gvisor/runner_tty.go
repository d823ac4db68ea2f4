package gvisor

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/sunaba-dev/sunaba/internal/host"
)

// takeTerminal gives a program's terminal a session. The host's kernel turns
// keys into signals (Ctrl-C, Ctrl-\, Ctrl-Z, a new size) and sends them to the
// session that the terminal controls, but it cannot see the guest's processes.
// So the session is this process's own, and each signal goes on to whatever is
// in the terminal's foreground in the guest.
//
// A box has one terminal at a time: the next one can be taken when the front
// has closed the last.
func (r *runner) takeTerminal(tty *os.File) error {
	r.keys.Do(func() {
		signal.Ignore(syscall.SIGHUP) // the front closes the terminal when its program has ended
		keys := make(chan os.Signal, 16)
		signal.Notify(keys, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTSTP, syscall.SIGWINCH)
		go func() {
			for s := range keys {
				sig, ok := s.(syscall.Signal)
				if pid := r.onTerminal.Load(); ok && pid != 0 {
					_ = r.c.Sandbox.SignalProcess(r.c.ID, pid, sig, true)
				}
			}
		}()
	})
	r.onTerminal.Store(0)
	return host.ControlPTY(tty)
}
