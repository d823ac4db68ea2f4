package seccomp

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFilterNeedsNoNewPrivs(t *testing.T) {
	if _, _, err := (run{name: "unprotected", filtered: "unfiltered"}).start(); err != nil {
		t.Error(err)
	}
}

func installWithoutNoNewPrivs([]string) error {
	p, err := Compile(runtime.GOARCH)
	if err != nil {
		return err
	}
	if err := Install(p, CallingThread); err == nil || !strings.Contains(err.Error(), "no_new_privs") {
		return fmt.Errorf("installed without no_new_privs: %w", err)
	}
	return nil
}

func TestEmptyAndOverlongFiltersAreRefused(t *testing.T) {
	for _, p := range []Program{nil, make(Program, unix.BPF_MAXINSNS+1)} {
		if err := Install(p, CallingThread); err == nil {
			t.Errorf("%d instructions were installed", len(p))
		}
	}
}

// TestScopeIsWhatWasAsked looks at every thread of a child.
func TestScopeIsWhatWasAsked(t *testing.T) {
	for _, c := range []struct{ filtered, want string }{
		{"unfiltered", "0"}, {"this thread", "0 2"}, {"all threads", "2"},
	} {
		out, _, err := run{name: "threads", filtered: c.filtered}.start()
		if err != nil {
			t.Fatal(err)
		}
		if string(out) != c.want {
			t.Errorf("%s: the threads have modes %s, want %s", c.filtered, out, c.want)
		}
	}
}

// threadModes prints the seccomp modes that the threads have. The Go runtime
// has started some before main.
func threadModes([]string) error {
	paths, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(paths) < 2 {
		return fmt.Errorf("%d threads: %w", len(paths), err)
	}
	modes := [3]bool{}
	for _, p := range paths {
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		m := regexp.MustCompile(`(?m)^Seccomp:\s+([012])$`).FindSubmatch(text)
		if m == nil {
			return fmt.Errorf("%s has no seccomp mode", p)
		}
		modes[m[1][0]-'0'] = true
	}
	var out []string
	for i, yes := range modes {
		if yes {
			out = append(out, fmt.Sprint(i))
		}
	}
	fmt.Print(strings.Join(out, " "))
	return nil
}

// TestOtherTablesKill: where the numbers mean something else, the process ends.
func TestOtherTablesKill(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the 32-bit and x32 tables are amd64's; run on such a machine")
	}
	for _, name := range []string{"32-bit", "x32"} {
		for _, uid := range users() {
			out, _, err := run{name: name, filtered: "unfiltered", uid: uid}.start()
			if err != nil {
				t.Logf("%s: this kernel has no such table: %v", name, err)
			} else {
				t.Logf("%s without a filter: %s", name, out)
			}
			_, state, err := run{name: name, filtered: "this thread", uid: uid}.start()
			if state == nil {
				t.Fatal(err)
			}
			if ws := state.Sys().(syscall.WaitStatus); !ws.Signaled() || ws.Signal() != syscall.SIGSYS {
				t.Errorf("%s, uid %d: the process ended with %v, not by SIGSYS", name, uid, state)
			}
		}
	}
}

func callX32([]string) error {
	pid, _, e := unix.RawSyscall(x32|39, 0, 0, 0)
	if e == 0 && int(pid) != os.Getpid() {
		e = unix.EBADMSG
	}
	fmt.Print(e)
	return nil
}
