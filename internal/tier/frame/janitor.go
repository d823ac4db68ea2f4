package frame

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/tier/frame/janitor"
)

// guard is the front's end of a janitor.
type guard struct {
	cmd   *exec.Cmd
	front *os.File // closing it without a word starts the cleaning
}

// startJanitor starts a janitor from the given program, or from this one.
func startJanitor(program *os.File, state string, id box.ID) (*guard, error) {
	task, err := json.Marshal(janitor.Task{State: state, ID: id})
	if err != nil {
		return nil, fmt.Errorf("cannot encode janitor's task: %w", err)
	}
	if err := host.KeepFiles(); err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("cannot make pipe: %w", err)
	}
	defer r.Close()
	cmd := &exec.Cmd{
		Path: host.SelfExe, Args: []string{janitor.Argv, string(task)}, Env: []string{}, Dir: "/",
		Stdin: r, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if program != nil {
		// Of the child, before it executes what it names; then it is closed.
		cmd.Path = host.FDPath(program.Fd())
	}
	if waiter := waiter(); program != nil && waiter != nil {
		defer waiter.Close()
		cmd.Path, cmd.ExtraFiles = host.FDPath(waiter.Fd()), []*os.File{program}
	}
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, fmt.Errorf("cannot start janitor: %w", err)
	}
	return &guard{cmd: cmd, front: w}, nil
}

// waiter returns what a janitor is until it is needed, or nil where it has to be
// itself at once.
func waiter() *os.File {
	code := janitor.Waiter(runtime.GOARCH)
	if code == nil {
		return nil
	}
	f, err := host.Sealed("sunaba-waiter", io.NewSectionReader(bytes.NewReader(code), 0, int64(len(code))))
	if err != nil {
		return nil // a host without programs in memory
	}
	return f
}

// dismiss tells the janitor that all is clean. It does not wait for its end,
// which is a matter of a moment.
func (g *guard) dismiss() {
	_, _ = g.front.Write([]byte{'x'})
	g.front.Close()
	go func() { _ = g.cmd.Wait() }()
}
