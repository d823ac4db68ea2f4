package limits

import (
	"bufio"
	"context"
	"encoding/json"
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

// live is a run in progress, in text form. Its program says "up" first.
type live struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	pipe  io.ReadCloser
	out   *bufio.Reader
	errs  strings.Builder
}

// start starts `sunaba run` with more arguments.
func start(t *testing.T, p place, args ...string) *live {
	t.Helper()
	l := prepare(t, p, args...)
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return l
}

// prepare is start up to the start.
func prepare(t *testing.T, p place, args ...string) *live {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	l := &live{cmd: harness.Command(ctx, t, p.user, p.run(args...)...)}
	l.cmd.Dir, l.cmd.Stderr = "/", &l.errs
	l.cmd.WaitDelay = 10 * time.Second
	var err error
	if l.stdin, err = l.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if l.pipe, err = l.cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	l.out = bufio.NewReader(l.pipe)
	return l
}

// up waits for the program's first line.
func (l *live) up(t *testing.T) {
	t.Helper()
	if line, err := l.out.ReadString('\n'); line != "up\n" {
		t.Fatalf("the program did not come up: %q, %v, %s", line, err, l.errs.String())
	}
}

func (l *live) type_(t *testing.T, s string) {
	t.Helper()
	if _, err := io.WriteString(l.stdin, s); err != nil {
		t.Fatal(err)
	}
}

func (l *live) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := l.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// wait reads the rest of the output and checks how the front ended: with its
// code, or with -1 if a signal ended it.
func (l *live) wait(t *testing.T, code int) string {
	t.Helper()
	got, rest := l.ends(t)
	if got != code {
		t.Errorf("the front ended with %d, want %d; stderr: %s", got, code, l.errs.String())
	}
	return rest
}

// ends is wait for an end that the caller judges.
func (l *live) ends(t *testing.T) (code int, rest string) {
	t.Helper()
	b, _ := io.ReadAll(l.out)
	_ = l.cmd.Wait()
	return l.cmd.ProcessState.ExitCode(), string(b)
}

// over waits for the front's end without reading what it writes.
func (l *live) over(t *testing.T, limit time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		b, _ := os.ReadFile("/proc/" + strconv.Itoa(l.cmd.Process.Pid) + "/stat")
		if _, rest, _ := strings.Cut(string(b), ") "); strings.HasPrefix(rest, "Z") {
			return
		}
	}
	t.Errorf("the front has not ended in %v", limit)
	_ = l.cmd.Process.Kill()
}

// part is one process of a box, on the host.
type part struct {
	pid  int
	role string // argv[0]
}

// parts lists every process below the front.
func (l *live) parts() []part {
	children := make(map[int][]part)
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		// pid (name) state ppid ...: proc_pid_stat(5)
		_, rest, _ := strings.Cut(string(b), ") ")
		f := strings.Fields(rest)
		if len(f) < 2 {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		parent, _ := strconv.Atoi(f[1])
		line, _ := os.ReadFile(filepath.Dir(path) + "/cmdline")
		role, _, _ := strings.Cut(string(line), "\x00")
		children[parent] = append(children[parent], part{pid, role})
	}
	var all []part
	for todo := []int{l.cmd.Process.Pid}; len(todo) > 0; todo = todo[1:] {
		for _, c := range children[todo[0]] {
			all = append(all, c)
			todo = append(todo, c.pid)
		}
	}
	return all
}

// find returns the one process of a role, or of the first if there are more
// (the sentry has children of its own).
func (l *live) find(t *testing.T, role string) int {
	t.Helper()
	all := l.parts()
	for _, p := range all {
		if p.role == role {
			return p.pid
		}
	}
	t.Fatalf("the box has no %s: %v", role, all)
	return 0
}

// id is the box's name, which its janitor was given.
func (l *live) id(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(l.find(t, "sunaba-janitor")) + "/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	_, arg, _ := strings.Cut(strings.TrimRight(string(b), "\x00"), "\x00")
	var task struct{ ID string }
	if err := json.Unmarshal([]byte(arg), &task); err != nil || task.ID == "" {
		t.Fatalf("cannot read the janitor's task %q: %v", arg, err)
	}
	return task.ID
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}
