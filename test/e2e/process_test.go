package e2e

import (
	"bufio"
	"bytes"
	"context"
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

// process is a running sunaba with pipes to it.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	outEnd io.Closer
	errs   bytes.Buffer
}

// start starts sunaba; it is killed at the test's end if it is still there.
func start(t *testing.T, u harness.User, args ...string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	p := &process{t: t, cmd: harness.Command(ctx, t, u, args...)}
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
	t.Cleanup(func() {
		cancel()
		_ = p.cmd.Wait()
		out.Close()
	})
	return p
}

// line returns the next line of standard output.
func (p *process) line() string {
	p.t.Helper()
	s, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("standard output ended at %q: %v\n%s", s, err, p.errs.String())
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
	_ = p.cmd.Wait()
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.t.Errorf("exit code %d, want %d\n%s", got, code, p.errs.String())
	}
	return string(rest)
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

// runnerOf finds the first process of the box that sunaba has started.
func runnerOf(t *testing.T, pid int) int {
	t.Helper()
	first := firstOf(pid)
	if first == 0 {
		t.Fatal("no box was found")
	}
	return first
}
