package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/test/harness"
)

// patience bounds every wait for something that must come: it ends a test that
// hangs and decides nothing else.
const patience = 2 * time.Minute

// lifetime bounds a command with which a test has several such waits.
const lifetime = 2 * patience

// process is a running sunaba with pipes to it.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	outEnd io.Closer
	errs   bytes.Buffer // to be read when it has ended
	done   chan struct{}
}

// start starts sunaba; it is killed at the test's end if it is still there.
func start(t *testing.T, u harness.User, args ...string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), lifetime)
	p := &process{t: t, cmd: harness.Command(ctx, t, u, args...), done: make(chan struct{})}
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out, p.outEnd = bufio.NewReader(out), out
	p.cmd.Stdout, p.cmd.Stderr = w, &p.errs
	err = p.cmd.Start()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		cancel()
		<-p.done
		out.Close()
	})
	return p
}

// line returns the next line of standard output.
func (p *process) line() string {
	p.t.Helper()
	s, err := p.out.ReadString('\n')
	if err != nil {
		<-p.done
		p.t.Fatalf("standard output ended at %q: %v; %v\n%s", s, err, p.cmd.ProcessState, p.errs.String())
	}
	return strings.TrimSuffix(s, "\n")
}

func (p *process) write(s string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, s); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// exits waits for the end and returns the rest of standard output.
func (p *process) exits(code int) string {
	p.t.Helper()
	rest, err := io.ReadAll(p.out)
	if err != nil {
		p.t.Fatal(err)
	}
	<-p.done
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.t.Errorf("exit code %d (%v), want %d\n%s\n%s", got, p.cmd.ProcessState, code, rest, p.errs.String())
	}
	return string(rest)
}

// waitsFor waits until something is so that must come while the command runs; if
// that has ended without it, the test fails with what it said.
func (p *process) waitsFor(what string, so func() bool) {
	p.t.Helper()
	if err := await(p.done, so); err != nil {
		said := "" // while it runs, it may be writing more
		if errors.Is(err, errEnded) {
			rest, _ := io.ReadAll(p.out)
			said = fmt.Sprintf(" (%v)\n%s\n%s", p.cmd.ProcessState, rest, p.errs.String())
		}
		p.t.Fatalf("%s: %v%s", what, err, said)
	}
}

var errEnded = errors.New("the command has ended before") //house:const an error

// await looks again and again until something is so: an error says that a
// command ended before, or that it took too long.
func await(ended <-chan struct{}, so func() bool) error {
	for end := time.Now().Add(patience); ; {
		over := false
		select {
		case <-ended:
			over = true // and a last look
		case <-time.After(time.Millisecond):
		}
		switch {
		case so():
			return nil
		case over:
			return errEnded
		case time.Now().After(end):
			return fmt.Errorf("not after %v", patience)
		}
	}
}

// childrenOf lists the children of a process that go by a name.
func childrenOf(pid int, name string) []int {
	var found []int
	tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	for _, f := range tasks {
		b, _ := os.ReadFile(f)
		for _, c := range strings.Fields(string(b)) {
			args, _ := os.ReadFile("/proc/" + c + "/cmdline")
			if n, err := strconv.Atoi(c); err == nil && strings.HasPrefix(string(args), name+"\x00") {
				found = append(found, n)
			}
		}
	}
	return found
}

// runnerOf finds the first process of the box that sunaba has started and whose
// program runs. The kernel may leave out a child in its list as another one ends
// (proc_pid_task_children(5)), so that it is looked for until it is seen.
func runnerOf(t *testing.T, pid int) (first int) {
	t.Helper()
	if err := await(nil, func() bool { first = firstOf(pid); return first != 0 }); err != nil {
		t.Fatalf("no box was found: %v", err)
	}
	return first
}
