package frame

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/cgroup"
)

// ArgvJanitor is the name under which this program is a janitor.
const ArgvJanitor = "sunaba-janitor"

// janitor is a process of its own session that waits for its front to go. If
// the front says goodbye there is nothing to do; if it was killed, the janitor
// removes the box's group and run folder. The box's processes need no janitor:
// the kernel ends them.
type janitor struct {
	cmd   *exec.Cmd
	front *os.File // closing it without a word starts the cleaning
}

type janitorTask struct {
	State string
	ID    box.ID
}

func startJanitor(state string, id box.ID) (*janitor, error) {
	task, err := json.Marshal(janitorTask{State: state, ID: id})
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
		Path: host.SelfExe, Args: []string{ArgvJanitor, string(task)}, Env: []string{}, Dir: "/",
		Stdin: r, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, fmt.Errorf("cannot start janitor: %w", err)
	}
	return &janitor{cmd: cmd, front: w}, nil
}

// dismiss tells the janitor that all is clean, and reaps it.
func (j *janitor) dismiss() {
	_, _ = j.front.Write([]byte{'x'})
	j.front.Close()
	_ = j.cmd.Wait()
}

// JanitorMain is the whole life of a janitor.
func JanitorMain(args []string) int {
	if len(args) != 2 {
		return 2
	}
	var task janitorTask
	if err := json.Unmarshal([]byte(args[1]), &task); err != nil || !task.ID.Valid() {
		return 2
	}
	buf := make([]byte, 1)
	if n, _ := os.Stdin.Read(buf); n == 1 {
		return 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s := &Site{State: task.State}
	if m, err := cgroup.Detect("/sys/fs/cgroup", "/proc/self/mountinfo", "/proc/self/cgroup"); err == nil {
		s.Groups = m
	}
	// The runner may still be dying, and writing into its folder until then.
	for s.removeNamed(ctx, task.ID) != nil {
		select {
		case <-ctx.Done():
			return 1
		case <-time.After(50 * time.Millisecond):
		}
	}
	return 0
}
