package cell

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/wire"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/confine"
)

// ArgvAgent is the agent's own name; as Exec.File it means the agent itself.
const ArgvAgent = "sunaba-agent"

// exec starts a program in the jail.
func (c *cell) exec(body json.RawMessage, files []*os.File) (any, error) {
	var e wire.Exec
	if err := json.Unmarshal(body, &e); err != nil {
		return nil, err
	}
	switch {
	case len(files) != 3:
		return nil, fmt.Errorf("cannot start program: %d of 3 streams came", len(files))
	case !c.isSetUp:
		return nil, errors.New("cannot start program: the box is not set up")
	case e.Root:
		return nil, errors.New("cannot start program: this tier has no root in the box")
	case len(e.Argv) == 0:
		return nil, errors.New("cannot start program: no command")
	}
	if len(c.set.Limits) > 0 {
		return c.execLimited(e, files, nil)
	}
	var file string
	var err error
	c.starter.do(func() { file, err = lookup(e) }) // it may wait for a disk: see spare
	if err != nil {
		return nil, err
	}
	return c.start(e, file, e.Argv, e.Env, e.Dir, files, nil)
}

// terminal makes a terminal among the box's own: its programs find it by name
// (ttyname(3)) and may open it again. The front gets both ends.
func (c *cell) terminal(body json.RawMessage) (any, error) {
	var size box.WindowSize
	if err := json.Unmarshal(body, &size); err != nil {
		return nil, err
	}
	if !c.isSetUp {
		return nil, errors.New("cannot make terminal: the box is not set up")
	}
	master, replica, err := host.OpenPTY(size)
	if err != nil {
		return nil, err
	}
	return wire.WithFiles{Body: struct{}{}, Files: []*os.File{master, replica}}, nil
}

// start executes a file on the confined thread.
func (c *cell) start(e wire.Exec, file string, argv, env []string, dir string, files, extra []*os.File) (any, error) {
	var pid int
	var err error
	c.starter.do(func() {
		pid, err = c.kids.start(func() (*os.Process, error) {
			cmd := &exec.Cmd{
				Path: file, Args: argv, Env: env, Dir: dir,
				Stdin: files[0], Stdout: files[1], Stderr: files[2], ExtraFiles: extra,
				SysProcAttr: &syscall.SysProcAttr{Setsid: true, Setctty: e.TTY},
			}
			if err := cmd.Start(); err != nil {
				return nil, fmt.Errorf("cannot execute %s: %w", e.Argv[0], reason(err))
			}
			return cmd.Process, nil
		})
	})
	if err != nil {
		return nil, err
	}
	return wire.Started{Pid: int32(pid)}, nil
}

// reason takes the errno out of a failed start: its path is the box's business.
func reason(err error) error {
	var e syscall.Errno
	if errors.As(err, &e) {
		return e
	}
	return err
}

// order is what the second step of a limited start gets, on descriptor 3.
// Descriptor 4 takes the reason if it fails, and is closed by success.
type order struct {
	Exec   wire.Exec
	Limits map[int]uint64
	Agent  bool // descriptor agentStream is to be its 3
}

// execLimited starts a program in two steps, for limits that this process could
// not live under itself: the agent's file again, which sets them and becomes
// the program. Extra is for the agent of a box that lasts.
func (c *cell) execLimited(e wire.Exec, files, extra []*os.File) (any, error) {
	limits, err := c.limitsOf(e)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(order{e, limits, len(extra) > 0})
	if err != nil {
		return nil, err
	}
	orders, err := host.Memory("order", b)
	if err != nil {
		return nil, err
	}
	defer orders.Close()
	failed, failedW, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("cannot make pipe: %w", err)
	}
	defer failed.Close()
	v, err := c.start(e, host.SelfExe, []string{ArgvExec}, []string{}, "/", files, append([]*os.File{orders, failedW}, extra...))
	failedW.Close()
	if err != nil {
		return nil, err
	}
	why, err := io.ReadAll(io.LimitReader(failed, 4096))
	if err == nil && len(why) > 0 {
		_, _ = c.kids.wait(int(v.(wire.Started).Pid))
		return nil, errors.New(string(why))
	}
	return v, nil
}

// limitsOf is what the program's first step sets. The kernel counts tasks of the
// box's user in the box's user namespace, this process's threads among them, and
// compares with the limit of whoever forks: see RLIMIT_NPROC in getrlimit(2) and
// ucounts in Linux kernel/fork.c. The agent has threads of its own to start.
func (c *cell) limitsOf(e wire.Exec) (map[int]uint64, error) {
	limits := maps.Clone(c.set.Limits)
	if n, ok := limits[unix.RLIMIT_NPROC]; ok {
		own, err := ownTasks()
		if err != nil {
			return nil, err
		}
		limits[unix.RLIMIT_NPROC] = n + uint64(own)
		if e.File == ArgvAgent || c.set.Agent != nil {
			limits[unix.RLIMIT_NPROC] += AgentTasks
		}
	}
	return limits, nil
}

// ExecMain is the second step of a limited start. It returns only on failure.
func ExecMain() int {
	failed := os.NewFile(4, "failed")
	unix.CloseOnExec(4)
	if err := become(os.NewFile(3, "order")); err != nil {
		fmt.Fprint(failed, err)
	}
	return 127
}

func become(f *os.File) error {
	var o order
	if err := json.NewDecoder(f).Decode(&o); err != nil {
		return fmt.Errorf("cannot read order: %w", err)
	}
	f.Close()
	if err := unix.Chdir(o.Exec.Dir); err != nil {
		return fmt.Errorf("cannot start in %s: %w", o.Exec.Dir, err)
	}
	file, err := lookup(o.Exec)
	if err != nil {
		return err
	}
	var keep []int
	if o.Agent {
		if err := unix.Dup3(agentStream, 3, 0); err != nil {
			return fmt.Errorf("cannot pass stream on: %w", err)
		}
		keep = []int{3}
	}
	err = confine.Exec(confine.Options{Confined: true, Limits: o.Limits, Keep: keep}, file, o.Exec.Argv, o.Exec.Env, nil)
	return fmt.Errorf("cannot execute %s: %w", o.Exec.Argv[0], reason(err))
}

// lookup finds what to execute, as execvp(3) does, in the box and with the
// program's own PATH.
func lookup(e wire.Exec) (string, error) {
	name := e.Argv[0]
	switch {
	case e.File == ArgvAgent:
		return host.SelfExe, nil // the agent for the box is this very program
	case e.File != "":
		return e.File, nil
	case strings.Contains(name, "/"):
		return name, nil
	}
	var path string
	for _, v := range e.Env {
		if p, ok := strings.CutPrefix(v, "PATH="); ok {
			path = p
		}
	}
	for _, dir := range filepath.SplitList(path) {
		p := filepath.Join(dir, name)
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && unix.Access(p, unix.X_OK) == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("cannot execute %s: not found in the box's PATH", name)
}
