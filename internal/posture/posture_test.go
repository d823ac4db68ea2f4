package posture

import (
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// standing is a process to which no rule objects.
func standing() *Process {
	p := &Process{PID: 7, Args: []string{"wall"}, Namespaces: map[string]string{}}
	for _, n := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"} {
		p.Namespaces[n] = n + ":[2]"
	}
	for tid := range 3 {
		p.Threads = append(p.Threads, Thread{TID: 7 + tid, UID: [4]int{9, 9, 9, 9}, GID: [4]int{8, 8, 8, 8}, NoNewPrivs: true, Seccomp: 2})
	}
	return p
}

func TestEachCrackInAWallIsFound(t *testing.T) {
	outside := standing()
	for n := range outside.Namespaces {
		outside.Namespaces[n] = n + ":[1]"
	}
	if bad := standing().Wall(outside); len(bad) > 0 {
		t.Fatalf("without a crack: %q", bad)
	}
	for name, crack := range map[string]func(*Process){
		"0 among them":          func(p *Process) { p.Threads[2].UID[2] = 0 },
		"user ids":              func(p *Process) { p.Threads[1].UID = [4]int{5, 5, 5, 5} },
		"group ids":             func(p *Process) { p.Threads[0].GID[3] = 0 },
		"capabilities 0x1":      func(p *Process) { p.Threads[2].Effective = 1 },
		"capabilities 0x2":      func(p *Process) { p.Threads[2].Permitted = 2 },
		"capabilities 0x4":      func(p *Process) { p.Threads[2].Inheritable = 4 },
		"capabilities 0x8":      func(p *Process) { p.Threads[2].Ambient = 8 },
		"no_new_privs":          func(p *Process) { p.Threads[1].NoNewPrivs = false },
		"no system-call filter": func(p *Process) { p.Threads[2].Seccomp = 0 },
		"environment \"A=b\"":   func(p *Process) { p.Environment = "A=b" },
		"environment cannot":    func(p *Process) { p.Hidden = true },
		"shares its user":       func(p *Process) { p.Namespaces["user"] = "user:[1]" },
		"shares its mnt":        func(p *Process) { p.Namespaces["mnt"] = "mnt:[1]" },
		"shares its pid":        func(p *Process) { p.Namespaces["pid"] = "pid:[1]" },
		"shares its net":        func(p *Process) { p.Namespaces["net"] = "net:[1]" },
		"shares its ipc":        func(p *Process) { p.Namespaces["ipc"] = "ipc:[1]" },
		"shares its uts":        func(p *Process) { p.Namespaces["uts"] = "uts:[1]" },
		"shares its cgroup":     func(p *Process) { p.Namespaces["cgroup"] = "cgroup:[1]" },
	} {
		p := standing()
		crack(p)
		if bad := p.Wall(outside); len(bad) == 0 || !strings.Contains(bad[0], name) {
			t.Errorf("%s: got %q", name, bad)
		}
	}
}

func TestEachCrackAroundAProgramIsFound(t *testing.T) {
	outside := standing()
	for n := range outside.Namespaces {
		outside.Namespaces[n] = n + ":[1]"
	}
	own := standing()
	own.Environment = "A=b"
	if bad := own.Confined(outside); len(bad) > 0 {
		t.Fatalf("without a crack: %q", bad)
	}
	for name, crack := range map[string]func(*Process){
		"0 among them":          func(p *Process) { p.Threads[2].UID[2] = 0 },
		"capabilities 0x1":      func(p *Process) { p.Threads[2].Effective = 1 },
		"bounding set 0x1":      func(p *Process) { p.Threads[1].Bounding = 1 },
		"no_new_privs":          func(p *Process) { p.Threads[1].NoNewPrivs = false },
		"no system-call filter": func(p *Process) { p.Threads[2].Seccomp = 0 },
		"shares its pid":        func(p *Process) { p.Namespaces["pid"] = "pid:[1]" },
		"shares its time":       func(p *Process) { p.Namespaces["time"] = "time:[1]" },
	} {
		p := standing()
		crack(p)
		if bad := p.Confined(outside); len(bad) == 0 || !strings.Contains(bad[0], name) {
			t.Errorf("%s: got %q", name, bad)
		}
	}
}

func TestTracersFromOutsideAreFound(t *testing.T) {
	a, b := standing(), standing()
	b.PID = 20
	b.Threads[1].Tracer = 7
	if bad := Traced([]*Process{a, b}); len(bad) > 0 {
		t.Errorf("traced by its own: %q", bad)
	}
	if bad := Traced([]*Process{b}); len(bad) != 1 {
		t.Errorf("traced from outside: %q", bad)
	}
}

func TestAMissingFieldIsNotZero(t *testing.T) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parseStatus(string(text)); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "TracerPid"} {
		cut := strings.Replace(string(text), "\n"+field+":", "\nX:", 1)
		if _, err := parseStatus(cut); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("without %s: %v", field, err)
		}
	}
}

func TestKindsOfDescriptors(t *testing.T) {
	for target, want := range map[string]string{
		"pipe:[12]": "pipe", "socket:[4242]": "socket:[4242]",
		"/memfd:runsc-memory (deleted)": "memfd:runsc-memory", "anon_inode:[eventfd]": "anon_inode:[eventfd]",
		"/var/x/#1234 (deleted)": "/var/x/# (deleted)", "/etc/passwd": "/etc/passwd", "/a/b (deleted)": "/a/b (deleted)",
	} {
		if got := kind(target); got != want {
			t.Errorf("%s is %q, want %q", target, got, want)
		}
	}
	for info, want := range map[string]string{
		"pos:\t0\nflags:\t02000000\n": "r", "flags:\t0100001": "w", "flags:\t02": "rw", "flags:\t012000000": "path", "pos: 1": "?",
	} {
		if got := access(info); got != want {
			t.Errorf("%q gives %q, want %q", info, got, want)
		}
	}
}

func TestSocketsAreNamedByTheirFamily(t *testing.T) {
	l, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	i, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	p, err := Read(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, f := range p.Files {
		got[f.Kind]++
	}
	if got["unix socket"] != 1 || got["socket"] != 1 {
		t.Errorf("got %v, want one unix socket and one other", got)
	}
}

// The table of sockets may lack one when it is read first.
func TestASocketMayBeMissingInOneTable(t *testing.T) {
	p := &Process{Files: []File{{FD: 3, Kind: "socket:[12]"}, {FD: 4, Kind: "socket:[123]"}, {FD: 5, Kind: "pipe"}}}
	if left := nameKnown("a: 1 12\n", []*Process{p}); left != 1 || p.Files[0].Kind != "unix socket" || p.Files[1].Kind != "socket:[123]" {
		t.Errorf("%d left: %v", left, p.Files)
	}
	if left := nameKnown("a: 1 123 /path\n", []*Process{p}); left != 0 || p.Files[1].Kind != "unix socket" {
		t.Errorf("%d left: %v", left, p.Files)
	}
}

func TestReadingThisProcessAndItsChild(t *testing.T) {
	child := exec.Command("/bin/cat")
	child.Env = []string{"POSTURE=yes"}
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close(); child.Wait() })
	// Start returns when the kernel has closed what an execution closes, which is
	// before it has put arguments and environment in place.
	if _, err := io.WriteString(stdin, "up\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(stdout, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	all, err := Tree(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(p *Process) bool { return p.PID == child.Process.Pid })
	if all[0].PID != os.Getpid() || len(all[0].Threads) < 2 || i < 1 {
		t.Fatalf("found %d processes, the child at %d", len(all), i)
	}
	c := all[i]
	if c.Parent != os.Getpid() || c.Environment != "POSTURE=yes" || c.Args[0] != "/bin/cat" || len(c.Files) < 3 || c.Files[0].String() != "pipe r" {
		t.Errorf("the child is %+v", c)
	}
	if len(c.Mounts) == 0 || c.Root != "/" || c.Namespaces["pid"] != all[0].Namespaces["pid"] {
		t.Errorf("the child's view: %d mounts, namespaces %v", len(c.Mounts), c.Namespaces)
	}
}

func TestAProcessThatIsNoMoreIsNobody(t *testing.T) {
	child := exec.Command("/bin/cat")
	child.Env = []string{}
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	held := -1
	child.SysProcAttr = &syscall.SysProcAttr{PidFD: &held}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if held < 0 {
		t.Skip("needs Linux 5.4: no descriptor of the child")
	}
	defer syscall.Close(held)
	of := func() (kinds []string) {
		p, err := Read(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range p.Files {
			if f.FD == held {
				kinds = append(kinds, f.Kind)
			}
		}
		return kinds
	}
	if got := of(); !slices.Equal(got, []string{"anon_inode:[pidfd]"}) {
		t.Errorf("of a process: %q", got)
	}
	stdin.Close()
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := of(); !slices.Equal(got, []string{"anon_inode:[pidfd] of nobody"}) {
		t.Errorf("of one that is no more: %q", got)
	}
}
