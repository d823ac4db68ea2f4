// Package harness runs the real sunaba binary in tests, as root and as an
// ordinary user, and looks for anything that a run leaves on the host.
package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// User is who starts sunaba in a test.
type User string

// Users. Ordinary is OrdinaryID when the test runs as root, else the caller.
const (
	Root     User = "root"
	Ordinary User = "ordinary"
)

// OrdinaryID is the uid and gid that tests use for an ordinary user. It needs
// no entry in /etc/passwd.
const OrdinaryID = 54321

// Users lists the users that this test process can act as: both for root, only
// itself otherwise.
func Users() []User {
	if os.Geteuid() == 0 {
		return []User{Root, Ordinary}
	}
	return []User{Ordinary}
}

// EachUser runs fn as a subtest for every user.
func EachUser(t *testing.T, fn func(t *testing.T, u User)) {
	t.Helper()
	for _, u := range Users() {
		t.Run(string(u), func(t *testing.T) { fn(t, u) })
	}
}

// build makes the binary once per test process, agent included, the way `make`
// does.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sunaba-test-bin-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	out := filepath.Join(dir, "sunaba")
	root := ModuleRoot()
	for _, program := range []string{"sunaba-agent", "sunaba-agentd"} {
		built := filepath.Join(root, "internal/agent/embedded/bin/"+program+"-linux-"+runtime.GOARCH)
		if older(built, root, "box", "cmd/"+program, "internal/agent", "internal/host", "internal/stream", "go.mod") {
			// Beside it and then in its place: other test processes may be reading it.
			fresh := filepath.Join(dir, program)
			if err := goBuild(root, fresh, "./cmd/"+program); err != nil {
				return "", err
			}
			if err := replace(fresh, built); err != nil {
				return "", err
			}
		}
	}
	with, _ := tags.Load().(string)
	return out, goBuild(root, out, "./cmd/sunaba", "-tags", with)
})

// tags are those that the binary is built with; see MainWith.
var tags atomic.Value // a string

// older reports whether a file was made before any of the Go sources below some
// folders was changed, or is not there.
func older(file, root string, sources ...string) bool {
	made, err := os.Stat(file)
	if err != nil {
		return true
	}
	stale := false
	for _, s := range sources {
		_ = filepath.WalkDir(filepath.Join(root, s), func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(p) != ".go" && filepath.Base(p) != "go.mod" {
				return nil
			}
			if st, err := d.Info(); err == nil && st.ModTime().After(made.ModTime()) {
				stale = true
			}
			return nil
		})
	}
	return stale
}

// replace copies a file to a name that another file may have, in one step.
func replace(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(filepath.Dir(to)), "agent-")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	if _, err := tmp.Write(b); err != nil {
		tmp.Close()
		return err
	}
	if err := errors.Join(tmp.Chmod(0o755), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), to)
}

func goBuild(dir, out, pkg string, more ...string) error {
	args := append([]string{"build", "-trimpath", "-ldflags", "-s -w", "-o", out}, more...)
	cmd := exec.Command("go", append(args, pkg)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build %s: %w\n%s", pkg, err, b)
	}
	return nil
}

// Binary returns the path of the built program.
func Binary(t testing.TB) string {
	t.Helper()
	p, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Main is for TestMain: it runs the tests and removes what the harness made.
//
// Tests that were started by nohup(1), or in the background of a script, ignore
// SIGHUP or SIGINT, and so would all that they start (execve(2)). A handler,
// here one that does nothing, is not passed on.
func Main(m *testing.M) int { return MainWith(m) }

// MainWith is Main with a binary that is built with tags.
func MainWith(m *testing.M, with ...string) int {
	tags.Store(strings.Join(with, ","))
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	code := m.Run()
	if p, err := build(); err == nil {
		os.RemoveAll(filepath.Dir(p))
	}
	for _, u := range []User{Root, Ordinary} {
		if d, ok := states.Load(u); ok {
			os.RemoveAll(d.(string))
		}
	}
	return code
}

// ModuleRoot is the folder of go.mod: the first one that has it from the test's
// working folder upwards.
func ModuleRoot() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	for d := dir; d != "/"; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil {
			return d
		}
	}
	panic("no go.mod above " + dir)
}

var states sync.Map // User -> folder

// State returns the state folder that all runs of one user share in this test
// process. It is on disk.
func State(t testing.TB, u User) string {
	t.Helper()
	u = u.account()
	if d, ok := states.Load(u); ok {
		return d.(string)
	}
	d, err := os.MkdirTemp("/var/tmp", "sunaba-test-state-")
	if err != nil {
		t.Fatal(err)
	}
	// Root's boxes are users of their own, who have to get through.
	if err := os.Chmod(d, 0o711); err != nil {
		t.Fatal(err)
	}
	Give(t, u, d)
	got, raced := states.LoadOrStore(u, d)
	if raced {
		os.RemoveAll(d)
	} else {
		made.watch(t, u, d)
	}
	return got.(string)
}

// Dir returns a fresh folder that belongs to u.
func Dir(t testing.TB, u User) string {
	t.Helper()
	d := t.TempDir()
	Give(t, u, d)
	return d
}

// Give makes u the owner of a path and makes sure that it can be reached.
func Give(t testing.TB, u User, path string) {
	t.Helper()
	if os.Geteuid() == 0 && u.account() == Ordinary {
		if err := os.Lchown(path, OrdinaryID, OrdinaryID); err != nil {
			t.Fatal(err)
		}
	}
	for p := filepath.Dir(path); p != "/"; p = filepath.Dir(p) {
		if st, err := os.Stat(p); err == nil && st.Mode()&0o011 != 0o011 && strings.Contains(p, "Test") {
			_ = os.Chmod(p, st.Mode()|0o055)
		}
	}
}

// Result is how one command ended.
type Result struct {
	Code           int // exit code, or -1 if a signal ended the command itself
	Stdout, Stderr string
	Took           time.Duration
}

// JSON parses standard output as a report.
func (r Result) JSON(t testing.TB) box.Report {
	t.Helper()
	var rep box.Report
	if err := json.Unmarshal([]byte(r.Stdout), &rep); err != nil {
		t.Fatalf("cannot parse report: %v\nstdout: %s\nstderr: %s", err, r.Stdout, r.Stderr)
	}
	return rep
}

// Command prepares sunaba as user u with an environment of its own and the
// shared state folder. The caller may change it before starting.
func Command(ctx context.Context, t testing.TB, u User, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(ctx, Binary(t), u.flagged(args)...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent", "SUNABA_STATE=" + State(t, u)}
	if os.Geteuid() == 0 && u.account() == Ordinary {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: OrdinaryID, Gid: OrdinaryID}}
	}
	return cmd
}

// Run runs sunaba as user u to its end. Fifteen minutes are the bound of any test.
func Run(t testing.TB, u User, args ...string) Result {
	t.Helper()
	return RunIn(t, u, "/", "", args...)
}

// RunIn is Run in a folder and with standard input.
func RunIn(t testing.TB, u User, dir, stdin string, args ...string) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	cmd := Command(ctx, t, u, args...)
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, strings.NewReader(stdin), &out, &errs
	start := time.Now()
	err := cmd.Run()
	r := Result{Stdout: out.String(), Stderr: errs.String(), Took: time.Since(start)}
	if cmd.ProcessState == nil {
		t.Fatalf("cannot start sunaba: %v", err)
	}
	r.Code = cmd.ProcessState.ExitCode()
	if ctx.Err() != nil {
		r.Stderr += fmt.Sprintf("\nthe test ended it after %v: %v\n", r.Took, cmd.ProcessState)
	}
	return r
}

// Report runs `sunaba run -o json` with more arguments and parses the answer.
func Report(t testing.TB, u User, args ...string) box.Report {
	t.Helper()
	return Run(t, u, append([]string{"run", "-o", "json"}, args...)...).JSON(t)
}
