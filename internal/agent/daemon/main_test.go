package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
	"github.com/sunaba-dev/sunaba/internal/agent/agentpb/agentpbconnect"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// buildAgent makes the program once per test process, as `make` does.
var buildAgent = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sunaba-agentd-test-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	out := filepath.Join(dir, Argv)
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", out, "./cmd/sunaba-agentd")
	cmd.Dir = harness.ModuleRoot()
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, b)
	}
	return out, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if p, err := buildAgent(); err == nil {
		os.RemoveAll(filepath.Dir(p))
	}
	os.Exit(code)
}

// testAgent is an agent under test, on this host and without a box.
type testAgent struct {
	t    testing.TB
	dir  string // its working folder
	cmd  *exec.Cmd
	link *net.UnixConn // on which streams are handed over
	end  func()        // ends it, with all that it has started
	*client
}

// client speaks to an agent over one stream.
type client struct {
	agentpbconnect.ProcessesClient
	agentpbconnect.FilesClient
	agentpbconnect.MachineClient
	transport *http.Transport
}

// begin starts an agent as u, in a folder of its own.
func begin(t testing.TB, u harness.User, words ...string) *testAgent {
	t.Helper()
	dir := harness.Dir(t, u)
	return beginIn(t, u, dir, nil, words...)
}

func beginIn(t testing.TB, u harness.User, dir string, change func(*exec.Cmd), words ...string) *testAgent {
	t.Helper()
	r := launch(t, u, dir, change, words...)
	r.client = r.dial()
	return r
}

// launch starts an agent and does not speak to it.
func launch(t testing.TB, u harness.User, dir string, change func(*exec.Cmd), words ...string) *testAgent {
	t.Helper()
	program, err := buildAgent()
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := pair(t, unix.SOCK_SEQPACKET)
	cmd := exec.Command(program, append([]string{"serve", dir, "handover"}, words...)...)
	cmd.Args[0] = Argv
	cmd.Env, cmd.Dir = []string{}, "/"
	cmd.ExtraFiles = []*os.File{theirs}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 && u != harness.Root {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: harness.OrdinaryID, Gid: harness.OrdinaryID}
	}
	if change != nil {
		change(cmd)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	link, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		t.Fatal(err)
	}
	r := &testAgent{t: t, dir: dir, cmd: cmd, link: link.(*net.UnixConn)}
	r.end = sync.OnceFunc(func() {
		r.link.Close()
		for _, pid := range descendants(cmd.Process.Pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(func() {
		r.end()
		if t.Failed() && errs.Len() > 0 {
			t.Logf("the agent said: %s", &errs)
		}
	})
	return r
}

// descendants lists what was started by a process, as far as it still is below.
func descendants(pid int) []int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, task := range tasks {
		if more, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name())); err == nil && task.Name() != strconv.Itoa(pid) {
			b = append(append(b, ' '), more...)
		}
	}
	var all []int
	for _, f := range strings.Fields(string(b)) {
		if n, err := strconv.Atoi(f); err == nil {
			all = append(append(all, n), descendants(n)...)
		}
	}
	return all
}

func pair(t testing.TB, kind int) (ours, theirs *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
}

// stream hands a fresh stream to the agent and returns our end.
func (r *testAgent) stream() net.Conn {
	r.t.Helper()
	ours, theirs := pair(r.t, unix.SOCK_STREAM)
	defer ours.Close()
	defer theirs.Close()
	if _, _, err := r.link.WriteMsgUnix([]byte{1}, unix.UnixRights(int(theirs.Fd())), nil); err != nil {
		r.t.Fatal(err)
	}
	c, err := net.FileConn(ours)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// dial speaks to the agent over a fresh stream.
func (r *testAgent) dial() *client { return speak(r.t, r.stream()) }

func speak(t testing.TB, c net.Conn) *client {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	once := make(chan net.Conn, 1)
	once <- c
	tr := &http.Transport{
		Protocols: &p,
		HTTP2:     &http.HTTP2Config{MaxReceiveBufferPerConnection: 1 << 20, MaxReceiveBufferPerStream: window},
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			select {
			case c := <-once:
				return c, nil
			default:
				return nil, errors.New("the stream was cut")
			}
		},
	}
	t.Cleanup(func() { c.Close(); tr.CloseIdleConnections() })
	h := &http.Client{Transport: tr}
	return &client{
		agentpbconnect.NewProcessesClient(h, "http://box"),
		agentpbconnect.NewFilesClient(h, "http://box"),
		agentpbconnect.NewMachineClient(h, "http://box"),
		tr,
	}
}

// longest is for how long something is waited for that has to come: much more than
// it takes on a host that has other things to do.
const longest = 3 * time.Minute

// deadline bounds one test's talk with its agent.
func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	t.Cleanup(cancel)
	return ctx
}

var pathEnv = []string{"PATH=/usr/bin:/bin"}

// run starts a program by sh.
func (r *testAgent) sh(script string, change ...func(*pb.StartRequest)) uint32 {
	r.t.Helper()
	m := &pb.StartRequest{Argv: []string{"sh", "-c", script}, Env: pathEnv}
	for _, c := range change {
		c(m)
	}
	res, err := r.Start(deadline(r.t), connect.NewRequest(m))
	if err != nil {
		r.t.Fatal(err)
	}
	return res.Msg.Pid
}

// told is a process's story.
type told struct {
	out, err []byte
	gap      bool // something was lost
	end      *pb.End
}

// follow reads a process's story to its end.
func (c *client) follow(t testing.TB, pid uint32) told {
	t.Helper()
	s, err := c.Output(deadline(t), connect.NewRequest(&pb.OutputRequest{Pid: pid, StdoutFrom: 0, StderrFrom: 0}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var got told
	var pos [2]uint64
	take := func(i int, to *[]byte, b *pb.Bytes) {
		got.gap = got.gap || b.At != pos[i]
		pos[i] = b.At + uint64(len(b.Data))
		*to = append(*to, b.Data...)
	}
	for s.Receive() {
		switch e := s.Msg().Event.(type) {
		case *pb.OutputResponse_Stdout:
			take(0, &got.out, e.Stdout)
		case *pb.OutputResponse_Stderr:
			take(1, &got.err, e.Stderr)
		case *pb.OutputResponse_End:
			got.end = e.End
		}
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	if got.end == nil {
		t.Fatal("the story has no end")
	}
	return got
}

// until waits for something to become so.
func until(is func() bool) bool {
	for end := time.Now().Add(longest); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// write makes a file of data.
func (c *client) write(t testing.TB, p string, data []byte, head *pb.WriteHead) *pb.Entry {
	t.Helper()
	e, err := c.tryWrite(t, p, data, head)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func (c *client) tryWrite(t testing.TB, p string, data []byte, head *pb.WriteHead) (*pb.Entry, error) {
	t.Helper()
	if head == nil {
		head = &pb.WriteHead{}
	}
	head.Path = []byte(p)
	w := c.Write(deadline(t))
	if err := w.Send(&pb.WriteRequest{Head: head}); err != nil {
		_, err = w.CloseAndReceive()
		return nil, err
	}
	for b := data; len(b) > 0; b = b[min(len(b), chunk):] {
		if w.Send(&pb.WriteRequest{Data: b[:min(len(b), chunk)]}) != nil {
			break // the answer says why
		}
	}
	res, err := w.CloseAndReceive()
	if err != nil {
		return nil, err
	}
	return res.Msg.Entry, nil
}

// read returns a file's bytes.
func (c *client) read(t testing.TB, p string, offset uint64, length int64) []byte {
	t.Helper()
	b, err := c.tryRead(t, p, offset, length)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (c *client) tryRead(t testing.TB, p string, offset uint64, length int64) (b []byte, err error) {
	t.Helper()
	s, err := c.Read(deadline(t), connect.NewRequest(&pb.ReadRequest{Path: []byte(p), Offset: offset, Length: length}))
	if err != nil {
		return nil, err
	}
	defer s.Close()
	for s.Receive() {
		b = append(b, s.Msg().Data...)
	}
	return b, s.Err()
}

// wantError wants an error of a code whose message has some words.
func wantError(t testing.TB, err error, code connect.Code, words string) {
	t.Helper()
	if connect.CodeOf(err) != code || err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("got %v, want %v with %q", err, code, words)
	}
}
