package fake

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// Run implements box.Box, without terminals. Programs of one-shot boxes are in a
// process group of their own, which is ended with them.
func (b *Box) Run(ctx context.Context, c box.Command, s box.Streams) (box.Result, error) {
	if c.TTY != nil {
		return box.Result{}, box.Errorf(box.Unsupported, "run command", "cannot run with a terminal: the fake tier has none")
	}
	if len(c.Argv) == 0 {
		return box.Result{}, box.Errorf(box.Invalid, "run command", "cannot run: no program is named")
	}
	program, err := look(c.Argv[0], c.Env)
	if err != nil {
		return box.Result{}, box.Errorf(box.Invalid, "run command", "cannot run %q: %w", c.Argv[0], err)
	}
	cmd := &exec.Cmd{Path: program, Args: c.Argv, Env: append([]string{}, c.Env...), Dir: b.onHost(c.Dir), Stdout: s.Stdout, Stderr: s.Stderr, SysProcAttr: &syscall.SysProcAttr{Setpgid: true}}
	if s.Stdin != nil {
		// Not Stdin: Wait would wait for a reader that never ends.
		in, err := cmd.StdinPipe()
		if err != nil {
			return box.Result{}, err
		}
		go func() {
			_, _ = io.Copy(in, s.Stdin)
			in.Close()
		}()
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return box.Result{}, box.Errorf(box.Invalid, "run command", "cannot run %q: %w", c.Argv[0], err)
	}
	done := make(chan struct{})
	go end(ctx, cmd.Process.Pid, done)
	err = cmd.Wait()
	close(done)
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) && ctx.Err() == nil {
		return box.Result{}, err
	}
	return b.result(ctx, cmd, time.Since(began)), nil
}

// end ends a program's group when ctx ends: with the grace of its cause, if that
// has one.
func end(ctx context.Context, pid int, done <-chan struct{}) {
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	if stop := (*box.Stop)(nil); errors.As(context.Cause(ctx), &stop) && stop.Grace > 0 {
		_ = syscall.Kill(-pid, syscall.SIGTERM)
		late := time.NewTimer(stop.Grace)
		defer late.Stop()
		select {
		case <-done:
			return
		case <-late.C:
		}
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL)
}

func (b *Box) result(ctx context.Context, cmd *exec.Cmd, wall time.Duration) box.Result {
	r := box.Result{Cause: box.Exited, ExitCode: cmd.ProcessState.ExitCode()}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		r = box.Result{Cause: box.Signaled, Signal: int(ws.Signal())}
	}
	if ctx.Err() != nil {
		r.Cause = box.Canceled
		if stop := (*box.Stop)(nil); errors.As(context.Cause(ctx), &stop) {
			r.Cause = stop.Cause
			if stop.Limit != "" {
				r.Limits = []box.LimitHit{{Limit: stop.Limit, Source: stop.Source, Ended: true}}
			}
		}
	}
	r.Usage.CPU = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	r.Usage.Wall = wall
	if ru, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		r.Usage.MemoryPeak = ru.Maxrss << 10
	}
	return r
}

// look finds a program in the PATH of an environment that is not ours.
func look(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path := "/usr/local/bin:/usr/bin:/bin"
	for _, e := range env {
		if p, ok := strings.CutPrefix(e, "PATH="); ok {
			path = p
		}
	}
	for dir := range strings.SplitSeq(path, ":") {
		p := filepath.Join(dir, name)
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", exec.ErrNotFound
}
