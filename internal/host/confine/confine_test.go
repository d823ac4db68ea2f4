package confine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// confined runs a witness in the given way and returns what it saw, and what
// its confinement reported on the way.
func confined(t *testing.T, attr *syscall.SysProcAttr, do task) facts {
	t.Helper()
	cmd := command("become", do)
	cmd.SysProcAttr = attr
	lines := bytes.SplitN(output(t, cmd), []byte("\n"), 2)
	if do.Options == nil {
		lines = [][]byte{nil, bytes.Join(lines, nil)}
	}
	var f facts
	if err := json.Unmarshal(lines[1], &f); err != nil {
		t.Fatalf("%v in %q", err, lines[1])
	}
	if do.Options != nil {
		if err := json.Unmarshal(lines[0], &f.Applied); err != nil {
			t.Fatalf("%v in %q", err, lines[0])
		}
	}
	return f
}

// TestProgramHasNoRightsLeft compares what the program finds in its own status
// with what confinement said that it had read back.
func TestProgramHasNoRightsLeft(t *testing.T) {
	for _, who := range everyone(t) {
		t.Run(who.name, func(t *testing.T) {
			o := Options{Umask: 0o27, Keep: []int{77}}
			f := confined(t, who.attr, task{Options: &o, Describe: true, Dup: []int{7, 77, 900}})
			const none = "0000000000000000"
			want := map[string]string{"CapInh": none, "CapPrm": none, "CapEff": none, "CapAmb": none, "NoNewPrivs": "1", "Seccomp": "2", "Umask": "0027"}
			if full := slices.Contains(f.Applied.Weak, "the bounding set of capabilities is not empty: this user may not empty it, and no_new_privs alone keeps it from being used"); !full {
				want["CapBnd"] = none
				if f.Secure != securebits || f.Applied.Securebits != securebits {
					t.Errorf("secure bits %#x, reported %#x", f.Secure, f.Applied.Securebits)
				}
			} else if who.name != "an ordinary user" && os.Geteuid() == 0 || who.name == "a user namespace" {
				t.Error("the bounding set was left full by one who could empty it")
			}
			for k, v := range want {
				if f.Status[k] != v {
					t.Errorf("%s is %s, want %s", k, f.Status[k], v)
				}
			}
			if got := strings.Join(f.FDs, " "); got != "0 1 2 77" || fmt.Sprint(f.Applied.Descriptors) != "[0 1 2 77]" {
				t.Errorf("descriptors %s, reported %v", got, f.Applied.Descriptors)
			}
			if a := f.Applied; !a.NoNewPrivs || a.Seccomp != 2 || a.Umask != 0o27 || a.Keyring != 0 || a.Landlock != (Landlock{}) {
				t.Errorf("reported %+v", *a)
			}
		})
	}
}

func landlock(t *testing.T) int {
	t.Helper()
	abi, err := landlockABI()
	if err != nil {
		t.Skipf("this kernel has no Landlock (%v); boot it with lsm=landlock,...", err)
	}
	return abi
}

func TestFilesOutsideTheDomainAreClosed(t *testing.T) {
	landlock(t)
	for _, who := range everyone(t) {
		t.Run(who.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // the ordinary user must get there
				t.Fatal(err)
			}
			for _, sub := range []string{"open", "closed", "read", "dev"} {
				p := filepath.Join(dir, sub)
				if err := errors.Join(os.Mkdir(p, 0o700), os.Chmod(p, 0o777), os.WriteFile(filepath.Join(p, "f"), nil, 0o600), os.Chmod(filepath.Join(p, "f"), 0o666)); err != nil {
					t.Fatal(err)
				}
			}
			at := func(names ...string) (out []string) {
				for _, n := range names {
					out = append(out, filepath.Join(dir, n))
				}
				return out
			}
			domain := Domain{ReadOnly: append(append(systemFolders(), at("read")...), self), Writable: at("open"), Devices: append(at("dev"), "/dev")}
			do := task{
				Read: append(at("open/f", "closed/f", "read/f", ""), "/dev/null", "/"), Write: append(at("open/n", "closed/n", "read/n", "dev/f", "dev/n"), "/dev/null"),
			}
			before := confined(t, who.attr, do)
			for _, made := range at("open/n", "closed/n", "read/n", "dev/n") {
				if err := os.Remove(made); err != nil {
					t.Fatal(err)
				}
			}
			do.Options = &Options{Domain: &domain}
			after := confined(t, who.attr, do)
			for _, c := range []struct {
				what string
				want unix.Errno
			}{
				{"read " + dir + "/open/f", 0}, {"read " + dir + "/closed/f", unix.EACCES}, {"read " + dir + "/read/f", 0}, {"read " + dir, unix.EACCES},
				{"read /dev/null", 0}, {"read /", unix.EACCES},
				{"write " + dir + "/open/n", 0}, {"write " + dir + "/closed/n", unix.EACCES}, {"write " + dir + "/read/n", unix.EACCES},
				{"write " + dir + "/dev/f", 0}, {"write " + dir + "/dev/n", unix.EACCES}, {"write /dev/null", 0},
			} {
				was, tried := before.Tried[c.what]
				if is := after.Tried[c.what]; !tried || was != 0 || is != c.want {
					t.Errorf("%s: %v, want %v; without a domain %v (tried: %v)", c.what, is, c.want, was, tried)
				}
			}
			if l := after.Applied.Landlock; !l.Probed || l.Rules != len(domain.ReadOnly)+3 || l.Files == 0 || after.Applied.Keyring == 0 {
				t.Errorf("reported %+v", *after.Applied)
			}
		})
	}
}

func TestProcessesAndSocketsOutsideTheDomainAreClosed(t *testing.T) {
	if abi := landlock(t); abi < 6 {
		t.Skipf("needs version 6 of Landlock, this kernel has %d", abi)
	}
	name := fmt.Sprintf("@sunaba-confine-test-%d", os.Getpid())
	l, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, who := range everyone(t) {
		if who.attr.Cloneflags != 0 {
			continue // each would be in a user namespace of its own
		}
		t.Run(who.name, func(t *testing.T) {
			pid := startVictim(t, who.attr)
			do := task{Kill: []int{pid}, Connect: []string{name}}
			before := confined(t, who.attr, do)
			do.Options = &Options{Domain: &Domain{ReadOnly: []string{"/"}}}
			after := confined(t, who.attr, do)
			for _, what := range []string{fmt.Sprint("kill ", pid), "connect " + name} {
				if before.Tried[what] != 0 || after.Tried[what] != unix.EPERM {
					t.Errorf("%s: %v without a domain, %v with", what, before.Tried[what], after.Tried[what])
				}
			}
		})
	}
}

func TestProgramsOfOneDomainReachEachOther(t *testing.T) {
	if abi := landlock(t); abi < 6 {
		t.Skipf("needs version 6 of Landlock, this kernel has %d", abi)
	}
	for _, who := range everyone(t) {
		outside := startVictim(t, who.attr)
		if who.attr.Cloneflags != 0 {
			outside = startVictim(t, nil) // a namespace of its own would be another wall
		}
		cmd := command("starter", outside)
		cmd.SysProcAttr = who.attr
		lines := bytes.SplitN(output(t, cmd), []byte("\n"), 2)
		var f facts
		if err := json.Unmarshal(lines[1], &f); err != nil {
			t.Fatalf("%v in %q", err, lines)
		}
		if f.Tried["kill victim"] != 0 || f.Tried[fmt.Sprint("kill ", outside)] != unix.EPERM || len(f.Tried) != 2 {
			t.Errorf("%s: %v", who.name, f.Tried)
		}
		const none = "0000000000000000"
		for k, want := range map[string]string{"Seccomp": "2", "Seccomp_filters": "1", "NoNewPrivs": "1", "CapEff": none, "CapPrm": none} {
			if f.Status[k] != want {
				t.Errorf("%s: %s is %q, want %s: inherited from the thread", who.name, k, f.Status[k], want)
			}
		}
	}
}

func TestKeysOfTheParentAreGone(t *testing.T) {
	for _, who := range everyone(t) {
		cmd := command("keys", "")
		cmd.SysProcAttr = who.attr
		got := string(output(t, cmd))
		if want := "stay: search <nil>, read <nil>\nenter: search required key not available, read permission denied\n"; got != want {
			t.Errorf("%s: %q, want %q", who.name, got, want)
		}
	}
}

func TestLimitsAreInForceInTheProgram(t *testing.T) {
	o := Options{Limits: map[int]uint64{unix.RLIMIT_AS: 64 << 20, unix.RLIMIT_NOFILE: 99, unix.RLIMIT_NPROC: 50, unix.RLIMIT_FSIZE: 1 << 20, unix.RLIMIT_STACK: 16 << 20}}
	for _, who := range everyone(t) {
		// The argument list is larger than what the Go runtime could still
		// allocate, which has far more than 64 MiB of address space.
		cmd := command("become", task{Options: &o, Program: []string{"/bin/cat", "/proc/self/limits"}, Env: 20})
		cmd.SysProcAttr = who.attr
		text := output(t, cmd)
		for name, want := range map[string]string{"address space": "67108864", "open files": "99", "processes": "50", "file size": "1048576", "core file size": "0", "stack size": "16777216"} {
			m := regexp.MustCompile(`(?m)^Max ` + name + ` +(\d+) +(\d+) `).FindSubmatch(text)
			if m == nil || string(m[1]) != want || string(m[2]) != want {
				t.Errorf("%s: %s is %q, want %s, soft and hard", who.name, name, m, want)
			}
		}
	}
}

func TestLimitsAreNeverRaised(t *testing.T) {
	early, late, err := plan(map[int]uint64{unix.RLIMIT_NOFILE: unix.RLIM_INFINITY, unix.RLIMIT_AS: 1 << 30, unix.RLIMIT_CORE: 5})
	if err != nil {
		t.Fatal(err)
	}
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &now); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(early, limit{unix.RLIMIT_NOFILE, now.Max}) || len(early) != 2 || len(late) != 1 || late[0].resource != unix.RLIMIT_AS {
		t.Errorf("%v, then %v; the hard limit of files is %d", early, late, now.Max)
	}
	if _, _, err := plan(map[int]uint64{99: 1}); err == nil {
		t.Error("a resource that does not exist has a limit")
	}
}

func TestImpossibleOptionsEndTheProcess(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Keep: []int{1}}, "cannot keep descriptor 1"},
		{Options{Keep: []int{500}}, "cannot keep descriptor 500"},
		{Options{Limits: map[int]uint64{99: 1}}, "cannot read limit 99"},
		{Options{Confined: true}, "cannot "}, // root has capabilities, others no filter
		{Options{Confined: true, Domain: &Domain{}}, "cannot enter a domain"},
		{Options{Domain: &Domain{Writable: []string{"/no/such/folder"}}}, "cannot open /no/such/folder"},
	} {
		cmd := command("become", task{Options: &c.o, Program: []string{"/bin/echo", "hello"}})
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.HasPrefix(string(out), c.want) {
			t.Errorf("%+v: %q (%v), want %q", c.o, out, err, c.want)
		}
	}
}

func TestRightsOfAllThreadsAreDropped(t *testing.T) {
	if _, _, e := syscall.AllThreadsSyscall(unix.SYS_GETPID, 0, 0, 0); e == unix.ENOTSUP {
		t.Skip("this test was built with cgo, whose threads Go does not know; build with CGO_ENABLED=0")
	}
	for _, who := range everyone(t) {
		if who.attr.Cloneflags == 0 && (os.Geteuid() != 0 || who.attr.Credential != nil) {
			continue // no CAP_SETPCAP to drop with
		}
		cmd := command("drop", nil)
		cmd.SysProcAttr = who.attr
		out := string(output(t, cmd))
		if n := strings.Count(out, "CapBnd"); n < 3 { // two threads and a child
			t.Errorf("%s: %d statuses only: %s", who.name, n, out)
		}
		for line := range strings.Lines(out) {
			if v := strings.Fields(line); v[0] != "NoNewPrivs:" && v[1] != "0000000000000000" || v[0] == "NoNewPrivs:" && v[1] != "1" {
				t.Errorf("%s: %s", who.name, line)
			}
		}
	}
}

func TestOptionsSurviveJSON(t *testing.T) {
	o := Options{Domain: &Domain{ReadOnly: []string{"/"}}, Limits: map[int]uint64{unix.RLIMIT_AS: 1 << 63}, Umask: 0o22, Keep: []int{5}}
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var back Options
	if err := json.Unmarshal(b, &back); err != nil || fmt.Sprint(*back.Domain, back.Limits, back.Umask, back.Keep) != fmt.Sprint(*o.Domain, o.Limits, o.Umask, o.Keep) {
		t.Errorf("%s became %+v (%v)", b, back, err)
	}
}
