package frame

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
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
		cmd.Path = host.FDPath(program.Fd()) // the child's before it executes; then it is closed
	}
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, fmt.Errorf("cannot start janitor: %w", err)
	}
	return &guard{cmd: cmd, front: w}, nil
}

// dismiss tells the janitor that all is clean. It does not wait for its end,
// which is a matter of a moment.
func (g *guard) dismiss() {
	_, _ = g.front.Write([]byte{'x'})
	g.front.Close()
	go func() { _ = g.cmd.Wait() }()
}
