package daemon

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
	"github.com/sunaba-dev/sunaba/test/harness"
)

func (c *client) hello(t testing.TB) {
	t.Helper()
	if _, err := c.Hello(deadline(t), connect.NewRequest(&pb.HelloRequest{})); err != nil {
		t.Fatal(err)
	}
}

func TestAgentOutlivesWhoeverSpeaksToIt(t *testing.T) {
	r := begin(t, harness.Users()[0])
	pid := r.sh("echo early; read x; echo got $x; exit 4", func(m *pb.StartRequest) { m.Stdin = true })
	r.waitOutput(t, pid, "early\n")
	second := r.dial()
	second.hello(t)
	third := r.dial()
	third.hello(t)
	r.link.Close() // nothing can be handed over any more
	if _, err := third.Input(deadline(t), connect.NewRequest(&pb.InputRequest{Pid: pid, Data: []byte("it\n")})); err != nil {
		t.Fatal(err)
	}
	if got := second.follow(t, pid); string(got.out) != "early\ngot it\n" || got.end.Status != 4<<8 {
		t.Errorf("got %q, %v", got.out, got.end)
	}
}

// TestWhatIsHandedOverAndIsNoStreamIsLeftOut: and the next one is served.
func TestWhatIsHandedOverAndIsNoStreamIsLeftOut(t *testing.T) {
	r := begin(t, harness.Users()[0])
	file, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	packets, packets2 := pair(t, unix.SOCK_SEQPACKET)
	streams, streams2 := pair(t, unix.SOCK_STREAM)
	for _, f := range []*os.File{packets, packets2, streams, streams2} {
		defer f.Close()
	}
	lone, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(lone)
	for _, fds := range [][]int{{}, {int(file.Fd())}, {int(packets.Fd())}, {lone}, {int(streams.Fd()), int(streams2.Fd())}} {
		var oob []byte
		if len(fds) > 0 {
			oob = unix.UnixRights(fds...)
		}
		if _, _, err := r.link.WriteMsgUnix([]byte("x"), oob, nil); err != nil {
			t.Fatal(err)
		}
	}
	garbage := r.stream()
	if _, err := garbage.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n" + strings.Repeat("\xff", 10_000))); err != nil {
		t.Fatal(err)
	}
	_ = garbage.SetReadDeadline(time.Now().Add(longest))
	if _, err := io.Copy(io.Discard, garbage); os.IsTimeout(err) {
		t.Error("a stream of garbage is kept")
	}
	garbage.Close()
	r.dial().hello(t)
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", r.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if len(fds) > 12 { // three of its own, the poller's, the hand-over, a stream or two
		t.Errorf("it holds %d descriptors: %v", len(fds), fds)
	}
}

func TestOneStreamAndAConnector(t *testing.T) {
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		dir := harness.Dir(t, u)
		sock := dir + "/sock"
		ours, theirs := pair(t, unix.SOCK_STREAM)
		defer ours.Close()
		defer theirs.Close()
		r := launch(t, u, dir, func(cmd *exec.Cmd) {
			cmd.Args = []string{Argv, "serve", dir, "--socket", sock}
			cmd.ExtraFiles = []*os.File{theirs}
		})
		c, err := net.FileConn(ours)
		if err != nil {
			t.Fatal(err)
		}
		first := speak(t, c)
		first.hello(t)
		ours2, theirs2 := pair(t, unix.SOCK_STREAM)
		defer ours2.Close()
		connector := exec.Command(r.cmd.Path, "connect", "--socket", sock)
		connector.Env, connector.ExtraFiles, connector.SysProcAttr = []string{}, []*os.File{theirs2}, r.cmd.SysProcAttr
		if b, err := connector.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, b)
		}
		theirs2.Close()
		c2, err := net.FileConn(ours2)
		if err != nil {
			t.Fatal(err)
		}
		speak(t, c2).hello(t)
		c.Close()
		speak(t, c2) // nothing of the second depends on the first
		connector = exec.Command(r.cmd.Path, "connect", "--socket", dir+"/nothing")
		connector.Env = []string{}
		if b, err := connector.CombinedOutput(); err == nil || !strings.Contains(string(b), "cannot connect to "+dir+"/nothing") {
			t.Errorf("%v: %s", err, b)
		}
	})
}

func TestPortIsReached(t *testing.T) {
	r := begin(t, harness.Users()[0])
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				n, _ := io.Copy(c, c)
				fmt.Fprintf(c, " %d in all", n)
				c.Close()
			}()
		}
	}()
	port := uint32(l.Addr().(*net.TCPAddr).Port)
	s := r.Dial(deadline(t))
	if err := s.Send(&pb.DialRequest{Port: port, Data: []byte("hel")}); err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&pb.DialRequest{Data: []byte("lo"), End: true}); err != nil {
		t.Fatal(err)
	}
	var got []byte
	for m, err := s.Receive(); err == nil; m, err = s.Receive() {
		got = append(got, m.Data...)
	}
	if string(got) != "hello 5 in all" {
		t.Errorf("got %q", got)
	}
	// Bound, so that nobody else begins to listen there, and not listening.
	silent, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(silent)
	if err := unix.Bind(silent, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(silent)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		port  uint32
		words string
	}{{uint32(at.(*unix.SockaddrInet4).Port), "connection refused"}, {0, "there is none"}, {70_000, "there is none"}} {
		s := r.Dial(deadline(t))
		if err := s.Send(&pb.DialRequest{Port: c.port}); err != nil {
			t.Fatal(err)
		}
		_, err := s.Receive()
		wantError(t, err, connect.CodeInvalidArgument, c.words)
	}
}

// TestManyCallsLeaveNothingBehind counts the agent's descriptors and memory.
func TestManyCallsLeaveNothingBehind(t *testing.T) {
	r := begin(t, harness.Users()[0])
	fds := func() int {
		all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", r.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	use := func() {
		pid := r.sh("echo hello")
		r.follow(t, pid)
		pid = r.sh("cat", func(m *pb.StartRequest) { m.Terminal = &pb.Size{Rows: 1, Cols: 1} })
		r.signal(t, pid, unix.SIGKILL, true)
		r.follow(t, pid)
		r.write(t, r.dir+"/f", []byte("x"), nil)
		r.read(t, r.dir+"/f", 0, -1)
		_, _ = r.tryRead(t, "/dev/null", 0, -1)
		_, _ = r.tryWrite(t, "/nowhere/f", nil, nil)
		_, _ = r.Start(deadline(t), connect.NewRequest(&pb.StartRequest{Argv: []string{"/nothing"}}))
		ctx, cancel := context.WithCancel(deadline(t))
		if s, err := r.Watch(ctx, connect.NewRequest(&pb.WatchRequest{Path: []byte(r.dir)})); err == nil {
			s.Receive()
		}
		cancel()
		if b, _, err := r.pack(t, r.dir, 1<<20); err == nil {
			_, _, _ = r.unpack(t, r.dir+"/to", b[:len(b)-1])
			if err := os.RemoveAll(r.dir + "/to"); err != nil {
				t.Fatal(err)
			}
		}
		r.list(t, r.dir, 9, 0)
	}
	use()
	before := fds()
	for range 50 {
		use()
	}
	until(func() bool { return fds() <= before })
	if after := fds(); after > before {
		t.Errorf("%d descriptors, before %d", after, before)
	}
}
