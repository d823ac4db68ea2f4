package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// The users of a box. Without guest root there is one, whatever its number.
const (
	userOrdinary = "user"
	userRoot     = "root"
)

// credential is what a program of a user is started as; nil is what we are.
func (a args) credential(user string) (*syscall.Credential, error) {
	switch {
	case user != "" && user != userOrdinary && user != userRoot:
		return nil, wrong("cannot be user %q: there is %q, and %q in some boxes", user, userOrdinary, userRoot)
	case !a.root && user == userRoot:
		return nil, connect.NewError(connect.CodeUnimplemented, errors.New("cannot be root: this box has no root"))
	case !a.root || user == userRoot:
		return nil, nil
	}
	return &syscall.Credential{Uid: host.BoxUser, Gid: host.BoxUser}, nil
}

// start starts a program, or finds the one that was started with the same number
// before.
func (a *agent) start(_ context.Context, m *pb.StartRequest) (*process, error) {
	if err := checkStart(m); err != nil {
		return nil, err
	}
	cred, err := a.args.credential(m.User)
	if err != nil {
		return nil, err
	}
	t := a.table
	t.started.Lock()
	defer t.started.Unlock()
	if p, err := t.admit(m); p != nil || err != nil {
		return p, err
	}
	p := &process{
		argv: m.Argv, dir: m.Dir, user: m.User, tag: m.Tag, number: m.Idempotency,
		out: newOutput(m.KeepBytes, !m.Detached, t.clock), exited: make(chan struct{}), done: make(chan struct{}),
	}
	p.out.held = &t.held
	if p.dir == "" {
		p.dir = a.args.dir
	}
	if p.user == "" {
		p.user = userOrdinary
	}
	if m.OutputBytes > 0 {
		p.out.limit = m.OutputBytes
		p.out.over = func() { go t.condemn(p, pb.End_BY_OUTPUT, 0) }
	}
	ends, err := p.open(m)
	defer ends.close()
	if err == nil {
		err = ends.give(cred)
	}
	if err == nil {
		a.starter.do(func() { err = t.run(p, m.Env, cred, ends.files, nil, true) })
	}
	if err != nil {
		p.close()
		return nil, failed("start", m.Argv[0], err)
	}
	go t.attend(p)
	if m.TimeoutMillis > 0 {
		timer := t.clock.AfterFunc(millis(m.TimeoutMillis), func() { t.condemn(p, pb.End_BY_DEADLINE, millis(m.GraceMillis)) })
		t.mu.Lock()
		if p.timers = append(p.timers, timer); t.live[p.pid] != p {
			timer.Stop() // it was quick
		}
		t.mu.Unlock()
	}
	return p, nil
}

// millis is a time that was sent, at most a year.
func millis(n uint64) time.Duration {
	return time.Duration(min(n, 365*24*3600*1000)) * time.Millisecond
}

func checkStart(m *pb.StartRequest) error {
	switch {
	case len(m.Argv) == 0 || m.Argv[0] == "":
		return wrong("cannot start a program: none is named")
	case m.Dir != "" && !filepath.IsAbs(m.Dir):
		return wrong("cannot start in %s: not an absolute path", shown(m.Dir))
	case len(m.Tag) > 256:
		return wrong("cannot start a program: its tag has %d bytes, at most 256", len(m.Tag))
	}
	for _, s := range append(append([]string{m.Dir}, m.Argv...), m.Env...) {
		if strings.Contains(s, "\x00") {
			return wrong("cannot start a program: an argument, a variable or its folder has a NUL byte")
		}
	}
	return nil
}

// admit returns the process that was started with the same number, or refuses a
// new one.
func (t *table) admit(m *pb.StartRequest) (*process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.all {
		if m.Idempotency != 0 && p.number == m.Idempotency {
			return p, nil
		}
		if m.Tag != "" && p.tag == m.Tag && t.live[p.pid] == p {
			return nil, connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("cannot start a program with the tag %q: process %d has it", m.Tag, p.pid))
		}
	}
	if len(t.live) >= maxLive {
		return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("cannot start a program: %d are running", maxLive))
	}
	return nil, nil
}

// run executes the program, on the starter's thread, and makes it known if it is
// one to be listed.
func (t *table) run(p *process, env []string, cred *syscall.Credential, streams [3]*os.File, extra []*os.File, listed bool) error {
	name := p.argv[0]
	if st, err := os.Stat(p.dir); err != nil {
		return failed("start in", p.dir, err)
	} else if !st.IsDir() {
		return failed("start in", p.dir, unix.ENOTDIR)
	}
	file, err := lookup(name, p.dir, env)
	if err != nil {
		return failed("execute", name, err)
	}
	if env == nil {
		env = []string{}
	}
	cmd := &exec.Cmd{
		Path: file, Args: p.argv, Env: env, Dir: p.dir,
		Stdin: streams[0], Stdout: streams[1], Stderr: streams[2], ExtraFiles: extra,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Setctty: p.master != nil, Credential: cred},
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return failed("execute", name, err)
	}
	p.pid, p.started = cmd.Process.Pid, time.Now()
	_ = cmd.Process.Release()
	t.live[p.pid] = p
	if listed {
		t.list(p)
	}
	return nil
}

// lookup finds what to execute, as execvp(3) does, with the program's own PATH
// and folder.
func lookup(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path := "/usr/local/bin:/usr/bin:/bin"
	for _, v := range env {
		if p, ok := strings.CutPrefix(v, "PATH="); ok {
			path = p
		}
	}
	found := error(unix.ENOENT)
	for _, d := range filepath.SplitList(path) {
		p := filepath.Join(d, name)
		if !filepath.IsAbs(p) {
			p = filepath.Join(dir, p)
		}
		st, err := os.Stat(p)
		if err != nil || !st.Mode().IsRegular() {
			continue
		}
		if st.Mode()&0o111 != 0 {
			return p, nil
		}
		found = unix.EACCES
	}
	return "", found
}
