package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
	"github.com/sunaba-dev/sunaba/internal/host/confine"
	"github.com/sunaba-dev/sunaba/test/harness"
)

func TestProgramTellsItsStory(t *testing.T) {
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		r := begin(t, u)
		got := r.follow(t, r.sh("echo out; echo err >&2; exit 7"))
		if string(got.out) != "out\n" || string(got.err) != "err\n" || got.end.Status != 7<<8 || got.end.StdoutBytes != 4 || got.end.StderrBytes != 4 || got.end.By != 0 {
			t.Errorf("got %q, %q, %v", got.out, got.err, got.end)
		}
		if got := r.follow(t, r.sh("kill -9 $$")); got.end.Status != uint32(syscall.SIGKILL) || got.end.By != 0 {
			t.Errorf("killed by itself: %v", got.end)
		}
	})
}

func TestHello(t *testing.T) {
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		r := begin(t, u)
		res, err := r.Hello(deadline(t), connect.NewRequest(&pb.HelloRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		if m := res.Msg; m.Protocol != 1 || m.Dir != r.dir || strings.Join(m.Users, " ") != "user" {
			t.Errorf("got %v", m)
		}
	})
}

// TestProgramGetsWhatItWasGivenAndNoMore: environment, folder, descriptors,
// signals, umask, session.
func TestProgramGetsWhatItWasGivenAndNoMore(t *testing.T) {
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		r := begin(t, u)
		sub := r.dir + "/sub"
		if _, err := r.MakeDir(deadline(t), connect.NewRequest(&pb.MakeDirRequest{Path: []byte(sub)})); err != nil {
			t.Fatal(err)
		}
		const script = `env | sort; umask; ls -m /proc/self/fd; cat; ps -o sid= -p $$ | tr -d ' '; grep -E '^Sig(Blk|Ign)' /proc/self/status`
		pid := r.sh(script, func(m *pb.StartRequest) { m.Env, m.Dir = append(m.Env, "A=b c"), sub })
		want := fmt.Sprintf("A=b c\nPATH=/usr/bin:/bin\nPWD=%s\n0022\n0, 1, 2, 3\n%d\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n", sub, pid)
		if got := r.follow(t, pid); string(got.out) != want {
			t.Errorf("got %q, want %q, %q", got.out, want, got.err)
		}
	})
}

func TestProgramsAreFoundInTheirOwnPath(t *testing.T) {
	r := begin(t, harness.Users()[0])
	r.write(t, r.dir+"/bin/hi", []byte("#!/bin/sh\necho hi $0\n"), &pb.WriteHead{Parents: true, Mode: 0o755})
	r.write(t, r.dir+"/bin/data", []byte("no program"), nil)
	start := func(name string, env ...string) error {
		res, err := r.Start(deadline(t), connect.NewRequest(&pb.StartRequest{Argv: []string{name}, Env: env}))
		if err != nil {
			return err
		}
		if got := string(r.follow(t, res.Msg.Pid).out); got != "hi "+r.dir+"/bin/hi\n" && got != "hi bin/hi\n" {
			t.Errorf("%s says %q", name, got)
		}
		return nil
	}
	for _, c := range []struct{ name, env string }{{"hi", "PATH=/nowhere:bin"}, {"hi", "PATH=" + r.dir + "/bin"}, {"bin/hi", "PATH="}} {
		if err := start(c.name, c.env); err != nil {
			t.Errorf("%v: %v", c, err)
		}
	}
	wantError(t, start("hi", "PATH=/usr/bin"), connect.CodeNotFound, "cannot execute hi: no such file")
	wantError(t, start("data", "PATH=bin"), connect.CodePermissionDenied, "cannot execute data")
	wantError(t, start("bin/nothing"), connect.CodeNotFound, "cannot execute bin/nothing")
	wantError(t, start(""), connect.CodeInvalidArgument, "none is named")
	_, err := r.Start(deadline(t), connect.NewRequest(&pb.StartRequest{Argv: []string{"/bin/true"}, Dir: "/nowhere"}))
	wantError(t, err, connect.CodeNotFound, "cannot start in /nowhere: no such file")
	_, err = r.Start(deadline(t), connect.NewRequest(&pb.StartRequest{Argv: []string{"/bin/true", "a\x00b"}}))
	wantError(t, err, connect.CodeInvalidArgument, "NUL")
	_, err = r.Start(deadline(t), connect.NewRequest(&pb.StartRequest{Argv: []string{"/bin/true"}, User: "root"}))
	wantError(t, err, connect.CodeUnimplemented, "no root")
	_, err = r.Start(deadline(t), connect.NewRequest(&pb.StartRequest{Argv: []string{"/bin/true"}, User: "alice"}))
	wantError(t, err, connect.CodeInvalidArgument, "alice")
}

func TestTagsAndNumbersNameOneProcess(t *testing.T) {
	r := begin(t, harness.Users()[0])
	m := &pb.StartRequest{Argv: []string{"sleep", "600"}, Env: pathEnv, Tag: "web", Idempotency: 7}
	first, err := r.Start(deadline(t), connect.NewRequest(m))
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.dial().Start(deadline(t), connect.NewRequest(m))
	if err != nil || again.Msg.Pid != first.Msg.Pid {
		t.Errorf("the same number: %v, %v", again, err)
	}
	m.Idempotency = 8
	_, err = r.Start(deadline(t), connect.NewRequest(m))
	wantError(t, err, connect.CodeAlreadyExists, `"web"`)
	_, err = r.Forget(deadline(t), connect.NewRequest(&pb.ForgetRequest{Pid: first.Msg.Pid}))
	wantError(t, err, connect.CodeInvalidArgument, "has not ended")
	r.signal(t, first.Msg.Pid, syscall.SIGTERM, true)
	if got := r.follow(t, first.Msg.Pid); got.end.Status != uint32(syscall.SIGTERM) {
		t.Errorf("ended by %v", got.end)
	}
	_, err = r.Signal(deadline(t), connect.NewRequest(&pb.SignalRequest{Pid: first.Msg.Pid, Signal: 9}))
	wantError(t, err, connect.CodeNotFound, "it has ended")
	second, err := r.Start(deadline(t), connect.NewRequest(m)) // the tag is free again
	if err != nil {
		t.Fatal(err)
	}
	list, err := r.ProcessesClient.List(deadline(t), connect.NewRequest(&pb.ListProcessesRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	ps := list.Msg.Processes
	if len(ps) != 2 || ps[0].Pid != first.Msg.Pid || ps[0].End == nil || ps[1].Pid != second.Msg.Pid || ps[1].End != nil ||
		ps[1].Tag != "web" || strings.Join(ps[1].Argv, " ") != "sleep 600" || ps[1].Dir != r.dir || ps[1].User != "user" {
		t.Errorf("list: %v", ps)
	}
	if _, err := r.Forget(deadline(t), connect.NewRequest(&pb.ForgetRequest{Pid: first.Msg.Pid})); err != nil {
		t.Error(err)
	}
	_, err = r.Forget(deadline(t), connect.NewRequest(&pb.ForgetRequest{Pid: first.Msg.Pid}))
	wantError(t, err, connect.CodeNotFound, "is forgotten")
}

func (c *client) signal(t testing.TB, pid uint32, s syscall.Signal, group bool) {
	t.Helper()
	if _, err := c.Signal(deadline(t), connect.NewRequest(&pb.SignalRequest{Pid: pid, Signal: uint32(s), Group: group})); err != nil {
		t.Fatal(err)
	}
}

func TestInputIsWrittenOnce(t *testing.T) {
	r := begin(t, harness.Users()[0])
	pid := r.sh("cat", func(m *pb.StartRequest) { m.Stdin = true })
	put := func(at uint64, data string, end bool) (uint64, error) {
		res, err := r.Input(deadline(t), connect.NewRequest(&pb.InputRequest{Pid: pid, At: at, Data: []byte(data), End: end}))
		if err != nil {
			return 0, err
		}
		return res.Msg.Taken, nil
	}
	for _, c := range []struct {
		at   uint64
		data string
		end  bool
		want uint64
	}{{0, "abc", false, 3}, {0, "abc", false, 3}, {1, "bcde", false, 5}, {5, "f", true, 6}, {5, "f", true, 6}, {6, "", true, 6}} {
		if got, err := put(c.at, c.data, c.end); err != nil || got != c.want {
			t.Errorf("%v: %d, %v", c, got, err)
		}
	}
	_, err := put(9, "x", false)
	wantError(t, err, connect.CodeInvalidArgument, "only 6 bytes")
	_, err = put(6, "x", false)
	wantError(t, err, connect.CodeInvalidArgument, "its end was sent")
	if got := r.follow(t, pid); string(got.out) != "abcdef" {
		t.Errorf("the program got %q", got.out)
	}
	if got := r.follow(t, r.sh("cat; echo done")); string(got.out) != "done\n" {
		t.Errorf("without input: %q", got.out)
	}
	pid = r.sh("sleep 600")
	_, err = put(0, "x", false)
	wantError(t, err, connect.CodeInvalidArgument, "has none")
	pid = r.sh("exec 0<&-; echo closed; sleep 600", func(m *pb.StartRequest) { m.Stdin = true })
	r.waitOutput(t, pid, "closed\n")
	_, err = put(0, "x", false)
	wantError(t, err, connect.CodeInvalidArgument, "has closed it")
	// A program that reads nothing takes what a pipe holds, and the call returns.
	pid = r.sh("sleep 600", func(m *pb.StartRequest) { m.Stdin = true })
	taken, err := put(0, strings.Repeat("x", 1<<20), false)
	if err != nil || taken == 0 || taken == 1<<20 {
		t.Errorf("a program that does not read took %d bytes, %v", taken, err)
	}
}

// waitOutput waits until a process has written something.
func (c *client) waitOutput(t testing.TB, pid uint32, want string) {
	t.Helper()
	ctx, cancel := context.WithCancel(deadline(t))
	defer cancel()
	s, err := c.Output(ctx, connect.NewRequest(&pb.OutputRequest{Pid: pid}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var got []byte
	for s.Receive() {
		got = append(append(got, s.Msg().GetStdout().GetData()...), s.Msg().GetStderr().GetData()...)
		if strings.Contains(string(got), want) {
			return
		}
	}
	t.Fatalf("%q did not come, but %q, %v", want, got, s.Err())
}

func TestDeadlineEndsTheGroup(t *testing.T) {
	r := begin(t, harness.Users()[0])
	limit := func(timeout, grace uint64) func(*pb.StartRequest) {
		return func(m *pb.StartRequest) { m.TimeoutMillis, m.GraceMillis = timeout, grace }
	}
	// In the first seconds a shell comes to its trap, and says so. On a busy host it
	// takes more of them.
	trapped := func(script string, grace uint64) told {
		for timeout := uint64(2_000); ; timeout *= 4 {
			if got := r.follow(t, r.sh(script, limit(timeout, grace))); strings.HasPrefix(string(got.out), "on\n") || timeout > 100_000 {
				return got
			}
		}
	}
	quick := r.sh("exit 0", limit(120_000, 0))
	if got := trapped("trap 'echo bye; exit 3' TERM; echo on; sleep 600 & wait", 120_000); string(got.out) != "on\nbye\n" || got.end.By != pb.End_BY_DEADLINE || got.end.Status != 3<<8 {
		t.Errorf("one that goes when it is told: %q, %v", got.out, got.end)
	}
	if got := trapped("trap '' TERM; echo on; sleep 600", 200); got.end.By != pb.End_BY_DEADLINE || got.end.Status != uint32(syscall.SIGKILL) {
		t.Errorf("one that does not: %q, %v", got.out, got.end)
	}
	if got := r.follow(t, quick); got.end.By != 0 || got.end.Status != 0 {
		t.Errorf("one in time: %v", got.end)
	}
	var left []int
	if !until(func() bool { left = descendants(r.cmd.Process.Pid); return len(left) == 0 }) {
		t.Errorf("left of the groups: %v", left)
	}
}

func TestOutputLimitEndsTheProgram(t *testing.T) {
	r := begin(t, harness.Users()[0])
	pid := r.sh("yes & yes >&2", func(m *pb.StartRequest) { m.OutputBytes = 100_000 })
	got := r.follow(t, pid)
	if n := len(got.out) + len(got.err); n != 100_000 || got.gap || got.end.By != pb.End_BY_OUTPUT || got.end.Status != uint32(syscall.SIGKILL) || got.end.StdoutBytes+got.end.StderrBytes != 100_000 {
		t.Errorf("%d bytes, %v", n, got.end)
	}
	if got := r.follow(t, r.sh("head -c 100000 /dev/zero", func(m *pb.StartRequest) { m.OutputBytes = 100_000 })); got.end.By != 0 || len(got.out) != 100_000 {
		t.Errorf("just as much: %d bytes, %v", len(got.out), got.end)
	}
}

func TestBackgroundDoesNotHoldUpTheEnd(t *testing.T) {
	r := begin(t, harness.Users()[0])
	begun := time.Now()
	pid := r.sh("sleep 600 & echo $!")
	got := r.follow(t, pid)
	if took := time.Since(begun); took > longest || got.end.Status != 0 || len(got.out) == 0 {
		t.Errorf("took %v, %q, %v", took, got.out, got.end)
	}
	// One that writes for ever does not, either.
	got = r.follow(t, r.sh("yes & exit 5"))
	if took := time.Since(begun); took > 2*longest || got.end.Status != 5<<8 {
		t.Errorf("took %v, %v", took, got.end)
	}
	// And what a pipeline still has to say is not lost.
	// It has drainTime for that, in which a busy host may not let it run: one of many
	// is in time.
	if !until(func() bool {
		got = r.follow(t, r.sh("(sleep 0.05; echo late) & exit 0"))
		return string(got.out) == "late\n"
	}) {
		t.Errorf("got %q", got.out)
	}
}

func TestTerminal(t *testing.T) {
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		r := begin(t, u)
		pid := r.sh("tty >/dev/null && stty size && echo ready; while read -r l; do echo got $l; stty size; done; echo over",
			func(m *pb.StartRequest) { m.Terminal = &pb.Size{Rows: 24, Cols: 80} })
		r.waitOutput(t, pid, "24 80\r\nready\r\n")
		if _, err := r.Resize(deadline(t), connect.NewRequest(&pb.ResizeRequest{Pid: pid, Terminal: &pb.Size{Rows: 50, Cols: 132}})); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Input(deadline(t), connect.NewRequest(&pb.InputRequest{Pid: pid, Data: []byte("a\n")})); err != nil {
			t.Fatal(err)
		}
		r.waitOutput(t, pid, "50 132")
		if _, err := r.Input(deadline(t), connect.NewRequest(&pb.InputRequest{Pid: pid, At: 2, Data: []byte("b"), End: true})); err != nil {
			t.Fatal(err)
		}
		got := r.follow(t, pid)
		if s := string(got.out); !strings.Contains(s, "got a\r\n") || !strings.HasSuffix(s, "over\r\n") || got.end.Status != 0 || len(got.err) != 0 {
			t.Errorf("got %q, %v", s, got.end)
		}
		_, err := r.Resize(deadline(t), connect.NewRequest(&pb.ResizeRequest{Pid: r.sh("true"), Terminal: &pb.Size{}}))
		wantError(t, err, connect.CodeInvalidArgument, "it has none")
	})
}

// TestFullBoxIsTold: nothing can be started, and all else goes on, though it has
// never needed so many threads before.
func TestFullBoxIsTold(t *testing.T) {
	r := begin(t, harness.Ordinary)
	if _, err := r.Hello(deadline(t), connect.NewRequest(&pb.HelloRequest{})); err != nil { // it is set up
		t.Fatal(err)
	}
	limit := exec.Command("prlimit", "--pid", fmt.Sprint(r.cmd.Process.Pid), "--nproc=1:1")
	limit.Env = pathEnv
	if c := r.cmd.SysProcAttr.Credential; c != nil {
		limit.SysProcAttr = &syscall.SysProcAttr{Credential: c}
	}
	if b, err := limit.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	_, err := r.Start(deadline(t), connect.NewRequest(&pb.StartRequest{Argv: []string{"true"}, Env: pathEnv}))
	wantError(t, err, connect.CodeResourceExhausted, "cannot execute true: resource temporarily unavailable")
	done := make(chan []byte)
	want := bytes.Repeat([]byte("x"), 3<<20)
	for i := range 40 {
		go func() {
			p := fmt.Sprintf("%s/f%d", r.dir, i)
			if _, err := r.tryWrite(t, p, want, nil); err != nil {
				done <- []byte(err.Error())
				return
			}
			b, err := r.tryRead(t, p, 0, -1)
			if err != nil {
				b = []byte(err.Error())
			}
			done <- b
		}()
	}
	for range 40 {
		if got := <-done; !bytes.Equal(got, want) {
			t.Errorf("got %d bytes: %.100q", len(got), got)
		}
	}
	if _, err := r.Metrics(deadline(t), connect.NewRequest(&pb.MetricsRequest{})); err != nil {
		t.Error(err)
	}
}

func TestProgramsReachEachOtherAndNotTheAgent(t *testing.T) {
	scoped := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: it is tried on a thread that ends with this
		scoped <- confine.Scope()
	}()
	if err := <-scoped; errors.Is(err, errors.ErrUnsupported) {
		t.Skipf("%v: needs version 6 of Landlock (Linux 6.12); boot it with lsm=landlock,...", err)
	}
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		r := begin(t, u)
		victim := r.sh("sleep 600")
		self := r.cmd.Process.Pid
		got := r.follow(t, r.sh(fmt.Sprintf("kill -9 %d && echo killed; kill -9 %d && echo agent; cat /proc/%d/environ >/dev/null && echo memory", victim, self, self)))
		if want := "killed\n"; u == harness.Root {
			if out := strings.ReplaceAll(string(got.out), "memory\n", ""); out != want { // root reads everything
				t.Errorf("got %q, %q", got.out, got.err)
			}
		} else if string(got.out) != want {
			t.Errorf("got %q, %q", got.out, got.err)
		}
		if got := r.follow(t, victim); got.end.Status != uint32(syscall.SIGKILL) {
			t.Errorf("the other one: %v", got.end)
		}
	})
}

func TestMetrics(t *testing.T) {
	r := begin(t, harness.Users()[0])
	r.sh("sleep 600")
	res, err := r.Metrics(deadline(t), connect.NewRequest(&pb.MetricsRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	m := res.Msg
	if m.Processes < 1 || m.MemoryTotalBytes != 0 || m.MemoryUsedBytes == 0 || m.DiskTotalBytes == 0 || m.AgentRssBytes < 1<<20 || m.CpuMicros == 0 {
		t.Errorf("got %v", m)
	}
}
