package tiertest

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// takesStream is a program of guest root's that takes the agent's place for a moment
// and gets the next stream to it, and the descriptors of the process that brings it.
// How it keeps what it has is in its argument.
const takesStream = `
import array, os, socket, sys
p = '/.sunaba-agent/sock'
os.rename(p, p + '~')
s = socket.socket(socket.AF_UNIX); s.bind(p); s.listen()
print('listens', flush=True)
c, _ = s.accept()
_, anc, _, _ = c.recvmsg(1, 64)
fd = array.array('i', anc[0][2])[0]
how = sys.argv[1]
c.send(b'1'); c.close(); s.close()
os.rename(p + '~', p)
if how == 'queue':
    a, b = socket.socketpair()
    a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [fd]))])
    os.close(fd)
if how == 'process':
    r, w = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.close(w); os.read(r, 1); os._exit(0)
    os.close(fd)
print('has it', flush=True)
sys.stdin.readline()
`

// keeps are the ways in which a guest keeps a file of the host's. Each returns how it
// lets go of it.
func keeps() map[string]func(*testing.T, box.Lasting) func() {
	takes := func(how string) func(*testing.T, box.Lasting) func() {
		return func(t *testing.T, b box.Lasting) func() {
			g := use(t, b)
			pr, err := g.Start(t.Context(), box.ProcessSpec{Stdin: true, Command: box.Command{
				Argv: []string{"python3", "-c", takesStream, how}, Env: []string{"PATH=/usr/bin:/bin"}, User: box.UserRoot,
			}})
			if err != nil {
				t.Fatal(err)
			}
			says(t, g, pr.PID, "listens")
			stream, err := b.Agent(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			says(t, g, pr.PID, "has it")
			leave(t, g)
			stream.Close()
			return func() {
				g := use(t, b)
				if _, err := g.Input(t.Context(), box.ProcessRef{PID: pr.PID}, box.Input{Data: []byte("\n")}); err != nil {
					t.Fatal(err)
				}
				ended(t, g, pr.PID)
				leave(t, g)
			}
		}
	}
	return map[string]func(*testing.T, box.Lasting) func(){
		"a descriptor": takes("descriptor"), "a queue": takes("queue"), "a process of nobody's": takes("process"),
		"the input of a program": func(t *testing.T, b box.Lasting) func() {
			r, err := b.Run(t.Context(), box.Command{Argv: []string{"sh", "-c", "exec 3<&0; sleep 1234 <&3 >/dev/null 2>&1 &"}}, box.Streams{Stdout: io.Discard, Stderr: io.Discard})
			if err != nil || r.ExitCode != 0 {
				t.Fatalf("%+v, %v", r, err)
			}
			leave(t, use(t, b)) // its first stream
			return func() {
				g := use(t, b)
				run(t, g, "pkill -f 'sleep 123[4]'")
				leave(t, g)
			}
		},
	}
}

// A guest that has a file of the host's would have another one in its copy: what has
// that number there.
func TestAGuestThatHasAFileOfTheHostsHasNoCopies(t *testing.T) {
	p := newPlace(t, box.TierGvisor)
	first := p.create(t, memorySpec())
	leave(t, use(t, first))
	head := p.copyMemory(t, first).SnapshotHead
	p.destroy(t, first)
	for how, keep := range keeps() {
		t.Run(how, func(t *testing.T) {
			made := memorySpec()
			b := p.create(t, made)
			letGo := keep(t, b)
			what := "a stream of its agent"
			if strings.Contains(how, "program") {
				what = "a stream of a program"
			}
			began := time.Now()
			_, err := b.(box.Snapshotter).Snapshot(t.Context(), box.SnapshotMemory, func(string, io.Reader) error { return nil })
			if box.KindOf(err) != box.Conflict || !strings.Contains(err.Error(), "has not closed "+what) || !strings.Contains(err.Error(), string(b.ID())) {
				t.Errorf("its copy: %v", err)
			}
			t.Logf("refused after %v: %v", time.Since(began), err)
			// Its own kernel does copy it, when we are not asked. What comes of that is luck.
			wanted := made
			wanted.ID = box.NewID()
			c, err := p.standing.(box.Restorer).Restore(t.Context(), somebodys(wanted), p.copyPastUs(t, b, head))
			t.Logf("of a copy that was made all the same: %v", err)
			if err == nil {
				p.destroy(t, c.(box.Lasting))
			}
			letGo()
			good := p.restore(t, made, p.copyMemory(t, b))
			run(t, use(t, good), "true")
			p.destroy(t, good)
			p.destroy(t, b)
		})
	}
	p.empty(t)
}

// copyPastUs has the guest's kernel copy the guest as the box's runner does it, but
// does not ask what the guest has.
func (p *place) copyPastUs(t *testing.T, b box.Lasting, head box.SnapshotHead) *box.Snapshot {
	t.Helper()
	names := []string{"kernel", "pages.list", "pages"}
	var fds []int
	s := &box.Snapshot{SnapshotHead: head, Parts: map[string]*os.File{}}
	for _, name := range names {
		f, err := host.OpenUnlinked(p.state)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		s.Parts[name], fds = f, append(fds, int(f.Fd()))
	}
	socks, err := filepath.Glob(filepath.Join(p.state, "boxes", string(b.ID()), "run", "state", "*.sock"))
	if err != nil || len(socks) != 1 {
		t.Fatalf("its kernel listens at %q (%v)", socks, err)
	}
	dir, err := os.Open(filepath.Dir(socks[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	c, err := net.Dial("unix", filepath.Join(host.FDPath(dir.Fd()), filepath.Base(socks[0])))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ask, err := json.Marshal(map[string]any{"method": "containerManager.Checkpoint", "arg": map[string]any{
		"metadata": map[string]string{"compression": "none"}, "have_pages_file": true, "Resume": true,
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.(*net.UnixConn).WriteMsgUnix(ask, syscall.UnixRights(fds...), nil); err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Success bool
		Err     string
	}
	if err := json.NewDecoder(c).Decode(&answer); err != nil || !answer.Success {
		t.Fatalf("%+v (%v)", answer, err)
	}
	return s
}
