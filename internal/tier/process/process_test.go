package process

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host/cgroup"
	"github.com/sunaba-dev/sunaba/internal/image"
	"github.com/sunaba-dev/sunaba/internal/tier/frame"
)

func TestMain(m *testing.M) {
	if code, ok := Dispatch(os.Args); ok {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// agentEnv names a built agent, for a test process that cannot build one.
const agentEnv = "SUNABA_TEST_AGENT"

// agent builds the real agent, the way make does.
var agent = sync.OnceValues(func() ([]byte, error) {
	if p := os.Getenv(agentEnv); p != "" {
		return os.ReadFile(p)
	}
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "agent")
	cmd := exec.Command("go", "build", "-trimpath", "-o", out, "github.com/sunaba-dev/sunaba/cmd/sunaba-agent")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+runtime.GOARCH)
	if b, err := cmd.CombinedOutput(); err != nil {
		return nil, errors.New(string(b))
	}
	return os.ReadFile(out)
})

// newTier makes a tier whose state is on disk and goes with the test.
func newTier(t *testing.T) *Tier {
	t.Helper()
	state, err := os.MkdirTemp("/var/tmp", "sunaba-process-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Extracted images have no write bits, not even for their owner.
		_ = filepath.WalkDir(state, func(p string, e fs.DirEntry, err error) error {
			if e != nil && e.IsDir() {
				_ = os.Chmod(p, 0o700)
			}
			return nil
		})
		if err := os.RemoveAll(state); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(state, 0o711); err != nil {
		t.Fatal(err)
	}
	images, err := image.OpenStore(filepath.Join(state, "images"))
	if err != nil {
		t.Fatal(err)
	}
	groups, err := cgroup.Detect(cgroup.Root, cgroup.MountInfo, cgroup.SelfCgroup)
	if err != nil {
		t.Fatal(err)
	}
	bin, err := agent()
	if err != nil {
		t.Fatal(err)
	}
	tier, err := New(Config{State: state, Images: frame.Images{Store: images}, Groups: groups, Agent: io.NewSectionReader(bytes.NewReader(bin), 0, int64(len(bin)))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tier.Close() })
	return tier
}

func spec() box.Spec {
	return box.Spec{
		ID: box.NewID(), Image: box.ImageHost, Workdir: "/workspace", Hostname: "sunaba", Net: box.Net{Mode: box.NetNone},
		Limits: box.Limits{
			MilliCPU: 2000, Memory: 128 << 20, Processes: 32, OpenFiles: 64, Disk: 8 << 20, Files: 200,
			Output: 1 << 20, OnLimit: box.LimitRecord,
		},
	}
}

// untilTold is a program's input: a line when a limit has been told, or when there was
// enough time for that. What holds a limit holds it until then.
type untilTold struct {
	limit chan box.LimitHit
	late  <-chan time.Time
}

func newTold() *untilTold {
	return &untilTold{make(chan box.LimitHit, 16), time.After(2 * time.Minute)}
}

func (r *untilTold) Read(p []byte) (int, error) {
	select {
	case <-r.limit:
	case <-r.late:
	}
	return copy(p, "\n"), nil
}

func (r *untilTold) hear(hit box.LimitHit) {
	select {
	case r.limit <- hit:
	default:
	}
}

// holdTasks is Python that waits until it has been told that a box has all its tasks:
// where the kernel counts that it refuses more, at once.
func holdTasks(tier *Tier) string {
	if tier.Root() {
		return "pass"
	}
	return "os.read(0, 1)"
}

// run makes a box, runs a shell script in it and destroys the box, of which
// nothing may be left.
func run(t *testing.T, tier *Tier, s box.Spec, script string) (box.Result, string) {
	t.Helper()
	b, err := tier.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer gone(t, tier, b)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var out bytes.Buffer
	var mu sync.Mutex
	w := writer(func(p []byte) (int, error) { mu.Lock(); defer mu.Unlock(); return out.Write(p) })
	input := newTold()
	res, err := b.Run(ctx, box.Command{Argv: []string{"bash", "-c", script}}, box.Streams{Stdin: input, Stdout: w, Stderr: w, OnLimit: input.hear})
	if err != nil {
		t.Fatal(err)
	}
	return res, out.String()
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func pidOf(b box.Box) string { return strconv.Itoa(b.(*pbox).Child.Pid()) }

func gone(t *testing.T, tier *Tier, b box.Box) {
	t.Helper()
	pid := b.(*pbox).Child.Pid()
	if err := b.Destroy(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat("/proc/" + strconv.Itoa(pid)); err == nil {
		t.Errorf("process %d is left", pid)
	}
	for _, dir := range []string{tier.RunDir(), tier.StoreDir()} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s holds %v (%v)", dir, left, err)
		}
	}
	if tier.Groups != nil {
		if _, err := tier.Groups.Open(string(b.ID())); err == nil {
			t.Error("the control group is left")
		}
	}
}

func TestABoxIsWalledOffOnEverySide(t *testing.T) {
	tier := newTier(t)
	res, out := run(t, tier, spec(), `
id -u; hostname; pwd
grep -E '^(Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\t '
ls /proc/self/fd | tr '\n' ' '; echo
for f in /usr/x /etc/x /x /proc/sys/kernel/core_pattern /proc/1/environ /proc/1/root; do (: > $f) 2>/dev/null && echo "WROTE $f"; done
cat /proc/1/environ 2>/dev/null && echo "READ environ"
ls /proc/1/fd >/dev/null 2>&1 && echo "READ fds of PID 1"
kill -9 1 2>/dev/null; echo "kill 1: $?"
for d in /workspace /tmp /var/tmp /home/user /dev/shm; do : > $d/t && echo "$d ok"; done
unshare -Ur true 2>/dev/null && echo "NESTED"
mount -t tmpfs x /tmp 2>/dev/null && echo "MOUNTED"
cat /sys/fs/cgroup/* 2>/dev/null
wc -l < /proc/net/dev
`)
	want := `1000
sunaba
/workspace
CapInh:0000000000000000
CapPrm:0000000000000000
CapEff:0000000000000000
CapBnd:0000000000000000
CapAmb:0000000000000000
NoNewPrivs:1
Seccomp:2
0 1 2 3 
kill 1: 1
/workspace ok
/tmp ok
/var/tmp ok
/home/user ok
/dev/shm ok
3
`
	if res.Cause != box.Exited || res.ExitCode != 0 || out != want {
		t.Errorf("cause %s, code %d, got:\n%s\nwant:\n%s", res.Cause, res.ExitCode, out, want)
	}
}

func TestEndsAreTold(t *testing.T) {
	tier := newTier(t)
	for _, c := range []struct {
		script string
		cause  box.Cause
		code   int
		signal int
		out    string
	}{
		{"exit 42", box.Exited, 42, 0, ""},
		{"exit 137", box.Exited, 137, 0, ""},
		{"kill -9 $$", box.Signaled, 0, 9, ""},
		{"kill -SEGV $$", box.Signaled, 0, 11, ""},
		{"setsid sleep 999 & echo done", box.Exited, 0, 0, "done\n"},
		{"sleep 999 & sleep 999 & echo both", box.Exited, 0, 0, "both\n"},
	} {
		res, out := run(t, tier, spec(), c.script)
		if res.Cause != c.cause || res.ExitCode != c.code || res.Signal != c.signal || out != c.out {
			t.Errorf("%s: %+v, output %q", c.script, res, out)
		}
	}
}

func TestLimitsHoldAndAreTold(t *testing.T) {
	tier := newTier(t)
	for _, c := range []struct {
		name, script, limit, seen string
	}{
		{"disk", "dd if=/dev/zero of=/workspace/f bs=1M count=100 2>&1 | grep -o 'No space left'", "disk", "No space left\n"},
		{"files", "i=0; while : > /tmp/f$i; do i=$((i+1)); done 2>/dev/null; [ $i -lt 200 ] && [ $i -gt 150 ] && echo full", "max_files", "full\n"},
		{"one store", "dd if=/dev/zero of=/tmp/f bs=1M count=9 2>/dev/null; dd if=/dev/zero of=/workspace/g bs=64k count=1 2>&1 | grep -o 'No space left'", "disk", "No space left\n"},
		{"open files", "python3 -c 'import os,time\ntry:\n  [os.dup(0) for _ in range(999)]\nexcept OSError as e: print(e.errno)\nos.read(0, 1)'", "max_open_files", "24\n"},
		{"processes", "python3 -c 'import os,time\ntry:\n  for _ in range(999):\n    if os.fork()==0: time.sleep(600)\nexcept OSError as e: print(e.errno)\n" + holdTasks(tier) + "'", "max_processes", "11\n"},
		{"memory", "python3 -c 'import time; x=bytearray(512<<20); time.sleep(60); print(len(x))'; echo $?", "memory", ""},
	} {
		res, out := run(t, tier, spec(), c.script)
		if c.name == "memory" {
			if res.Cause != box.OutOfMemory || strings.Contains(out, "536870912") {
				t.Errorf("memory: %+v, output %q", res, out)
			}
			continue
		}
		hit := ""
		for _, l := range res.Limits {
			hit += l.Limit
		}
		if out != c.seen || hit != c.limit || res.Cause != box.Exited {
			t.Errorf("%s: output %q, limits %v, cause %s", c.name, out, res.Limits, res.Cause)
		}
	}
}

func TestADeadlineEndsAProgramThatWillNotListen(t *testing.T) {
	tier := newTier(t)
	b, err := tier.Create(t.Context(), spec())
	if err != nil {
		t.Fatal(err)
	}
	defer gone(t, tier, b)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	out := writer(func(p []byte) (int, error) {
		cancel(&box.Stop{Cause: box.Deadline, Limit: "timeout_sec", Source: "clock", Grace: 50 * time.Millisecond})
		return len(p), nil
	})
	res, err := b.Run(ctx, box.Command{Argv: []string{"bash", "-c", "trap '' TERM INT HUP; echo up; while :; do sleep 1; done"}}, box.Streams{Stdout: out})
	if err != nil || res.Cause != box.Deadline {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestFilesGoInAndComeOut(t *testing.T) {
	tier := newTier(t)
	s := spec()
	s.Seeds = []box.Seed{{Path: "/workspace/in.txt", Mode: 0o640, Size: 5, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("hello")), nil }}}
	b, err := tier.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer gone(t, tier, b)
	if _, err := b.Run(t.Context(), box.Command{Argv: []string{"sh", "-c", "tr a-z A-Z < in.txt > out.txt; ln -s /etc/passwd link; (while :; do echo x >> grow; done) &"}}, box.Streams{}); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := b.(box.Collector).Collect(t.Context(), "/workspace", &archive); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for r := tar.NewReader(&archive); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(r)
		got[h.Name] = string(body)
	}
	if got["in.txt"] != "hello" || got["out.txt"] != "HELLO" || got["link"] != "" {
		t.Errorf("got %q", got)
	}
}

func TestWhatCannotBeIsSaid(t *testing.T) {
	tier := newTier(t)
	b, err := tier.Create(t.Context(), spec())
	if err != nil {
		t.Fatal(err)
	}
	defer gone(t, tier, b)
	for _, c := range []struct {
		cmd  box.Command
		kind box.Kind
		text string
	}{
		{box.Command{Argv: []string{"no-such-program"}}, box.Invalid, "not found in the box's PATH"},
		{box.Command{Argv: []string{"/etc/passwd"}}, box.Invalid, "permission denied"},
		{box.Command{Argv: []string{"true"}, User: box.UserRoot}, box.Unsupported, "one user"},
		{box.Command{Argv: []string{"true"}, Dir: "/nowhere"}, box.Invalid, "no such file"},
	} {
		_, err := b.Run(t.Context(), c.cmd, box.Streams{})
		if err == nil || box.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v: %v (%s)", c.cmd.Argv, err, box.KindOf(err))
		}
	}
}

// Everything again as an ordinary user, in a process of its own.
func TestAllOfItHoldsForAnOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this process is one already")
	}
	bin, err := agent()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.CreateTemp("/var/tmp", "sunaba-agent-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(f.Name())
	if _, err := f.Write(bin); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Chmod(0o644), f.Close()); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.count=1")
	cmd.Dir = "/"
	cmd.Env = []string{agentEnv + "=" + f.Name(), "PATH=/usr/bin:/bin", "TMPDIR=/var/tmp"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54321, Gid: 54321}}
	out, err := cmd.CombinedOutput()
	if err != nil || bytes.Count(out, []byte("\n--- PASS")) < 5 {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
