package posture

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/internal/posture"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// live is a box of tier gvisor that stands, with a shell in it that waits for its next line.
type live struct {
	user    harness.User
	state   string
	id      string
	front   *posture.Process
	janitor *posture.Process
	runner  *posture.Process
	sentry  *posture.Process
	gofer   *posture.Process // nil without host folders
	stubs   []*posture.Process

	talk
}

// guest is the program in the box: for each line that it reads it starts four
// more processes, and says so when they run.
const guest = `echo ready; while read l; do for i in 1 2 3 4; do sleep 1000 & done; echo more; done`

// talk is a started run whose program answers lines.
type talk struct {
	pid   int // the front's
	stdin io.WriteCloser
	lines *bufio.Scanner
	errs  *bytes.Buffer
}

// begin starts a run with a shell script that says that it is ready.
func begin(t *testing.T, u harness.User, script string, args ...string) talk {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	cmd := harness.Command(ctx, t, u, append(args, "--timeout", "600", "--", "sh", "-c", script)...)
	l := talk{errs: &bytes.Buffer{}}
	cmd.Stderr = l.errs
	var err error
	if l.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.stdin.Close()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
		cancel()
	})
	l.pid, l.lines = cmd.Process.Pid, bufio.NewScanner(out)
	l.expect(t, "ready")
	return l
}

func (l talk) expect(t *testing.T, word string) {
	t.Helper()
	if !l.lines.Scan() || l.lines.Text() != word {
		t.Fatalf("the guest said %q, want %q: %v %s", l.lines.Text(), word, l.lines.Err(), l.errs)
	}
}

// start starts a box and reads all its processes.
func start(t *testing.T, u harness.User, args ...string) *live {
	t.Helper()
	l := &live{user: u, state: harness.State(t, u), talk: begin(t, u, guest, append([]string{"run"}, args...)...)}
	l.settle(t)
	return l
}

// settle reads until all stands still: the program may run before the runner's
// call that waits for its end has its connection to the sentry, and before what
// helped to make the box has ended.
func (l *live) settle(t *testing.T) {
	t.Helper()
	settle(t, func() ([]*posture.Process, []string) {
		all, bad := l.read(t)
		if len(bad) == 0 && !l.waits() {
			bad = []string{"the runner's call has no connection to the sentry"}
		}
		return all, bad
	})
}

// settle calls read until it finds nothing bad, and the same as the time before. On
// a busy host that takes its time; what is bad still after a minute is said, and what
// never stands still is judged as it was read last.
func settle(t *testing.T, read func() (all []*posture.Process, bad []string)) {
	t.Helper()
	last := ""
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		all, bad := read()
		var now strings.Builder
		for _, p := range all {
			fmt.Fprintf(&now, "%d %q %d %v\n", p.PID, p.Args, len(p.Threads), p.Files)
		}
		switch {
		case len(bad) == 0 && now.String() == last:
			return
		case !time.Now().After(deadline):
		case len(bad) > 0:
			t.Fatalf("the box is not as it has to be: %s\n%s", strings.Join(bad, "; "), now.String())
		default:
			return
		}
		last = now.String()
	}
}

// waits reports whether the runner's call has its connection, at both ends.
func (l *live) waits() bool {
	sockets := func(p *posture.Process) (n int) {
		for _, f := range p.Files {
			if f.Kind == "unix socket" {
				n++
			}
		}
		return n
	}
	want := sentryFiles(l.gofer != nil, 1)["unix socket rw"].min
	return sockets(l.runner) == 2 && sockets(l.sentry) == want && sockets(l.stubs[len(l.stubs)-1]) == want
}

// more starts four more guest processes and reads all again.
func (l *live) more(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(l.stdin, "more\n"); err != nil {
		t.Fatal(err)
	}
	l.expect(t, "more")
	l.settle(t)
}

// read finds the processes below the front by the names that they were started
// with, and says what is not as it has to be.
func (l *live) read(t *testing.T) (all []*posture.Process, bad []string) {
	t.Helper()
	all, err := posture.Tree(l.pid)
	if err != nil {
		t.Fatal(err)
	}
	l.front, l.janitor, l.runner, l.sentry, l.gofer, l.stubs = nil, nil, nil, nil, nil, nil
	for _, p := range all {
		one := map[string]**posture.Process{
			"sunaba-janitor": &l.janitor, "sunaba-runner": &l.runner, "runsc-sandbox": &l.sentry, "runsc-gofer": &l.gofer,
		}[p.Args[0]]
		switch {
		case p.PID == l.pid:
			l.front = p
		case one != nil && *one == nil:
			*one = p
		case p.Args[0] == "" && l.sentry != nil:
			l.stubs = append(l.stubs, p) // systrap unmaps the arguments too
		default:
			bad = append(bad, fmt.Sprintf("process %d %q is none that a box consists of", p.PID, p.Args))
		}
	}
	if l.janitor == nil || l.runner == nil || l.sentry == nil || len(l.stubs) == 0 {
		return all, append(bad, fmt.Sprintf("found janitor %v, runner %v, sentry %v, %d stubs", l.janitor != nil, l.runner != nil, l.sentry != nil, len(l.stubs)))
	}
	var task struct{ ID string }
	if err := json.Unmarshal([]byte(l.janitor.Args[1]), &task); err != nil || task.ID == "" {
		t.Fatalf("cannot read the box's name from its janitor: %v", err)
	}
	l.id = task.ID
	return all, bad
}

// walls are the processes that a program in the box talks to, directly or not.
func (l *live) walls() []*posture.Process {
	all := append([]*posture.Process{l.sentry}, l.stubs...)
	if l.gofer != nil {
		all = append(all, l.gofer)
	}
	return all
}

// inside are all processes that stand in the box's group.
func (l *live) inside() []*posture.Process { return append(l.walls(), l.runner) }

var digest = regexp.MustCompile(`[0-9a-f]{64}`)

// normal replaces what differs from box to box in a path or a line.
func (l *live) normal(s string) string {
	s = strings.ReplaceAll(s, l.state, "STATE")
	s = strings.ReplaceAll(s, l.id, "ID")
	return digest.ReplaceAllString(s, "DIGEST")
}
