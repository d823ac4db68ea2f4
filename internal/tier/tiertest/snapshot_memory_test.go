package tiertest

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/guest"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// memorySpec is of a box whose memory can be copied.
func memorySpec() box.Spec {
	s := spec()
	s.Image, s.Limits.Memory, s.Limits.Disk = box.ImageBase, 512<<20, 64<<20
	return s
}

// copyMemory takes a snapshot of all that runs in a box whose streams are closed.
func (p *place) copyMemory(t *testing.T, b box.Lasting) *box.Snapshot {
	t.Helper()
	s := &box.Snapshot{Parts: map[string]*os.File{}}
	began, bytes := time.Now(), int64(0)
	head, err := b.(box.Snapshotter).Snapshot(t.Context(), box.SnapshotMemory, func(name string, r io.Reader) error {
		f, err := host.OpenUnlinked(p.state)
		if err != nil {
			return err
		}
		t.Cleanup(func() { f.Close() })
		n, err := io.Copy(f, r)
		bytes += n
		s.Parts[name] = f
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("copied %d KiB in %v", bytes>>10, time.Since(began).Round(time.Millisecond))
	s.SnapshotHead = head
	return s
}

// leave closes all streams to a box's agent, at both ends: a guest that holds one is
// no guest to copy.
func leave(t *testing.T, g *guest.Guest) {
	t.Helper()
	if err := later(func() error { return g.Park(t.Context()) }); err != nil {
		t.Fatal(err)
	}
	g.Close()
}

// busy is a program with a large heap, a thread that counts, an open file without a
// name, and a socket that listens. It answers lines with what it has.
const busy = `
import socket, sys, tempfile, threading, time
heap = bytearray(b'sunaba!!' * (25 << 20))
file = tempfile.TemporaryFile(); file.write(b'kept'); file.flush()
sock = socket.socket(); sock.bind(('127.0.0.1', 8099)); sock.listen()
n = 0
def count():
    global n
    while True: n += 1; time.sleep(0.002)
threading.Thread(target=count, daemon=True).start()
def serve():
    while True:
        c, _ = sock.accept(); c.sendall(b'served'); c.close()
threading.Thread(target=serve, daemon=True).start()
print('ready', flush=True)
began = time.monotonic()
for line in sys.stdin:
    if line.startswith('end'): sys.exit(7)
    was, by = n, time.monotonic() + 60
    while n == was and time.monotonic() < by: time.sleep(0.01)
    file.seek(0)
    c = socket.create_connection(('127.0.0.1', 8099))
    print(line.strip(), n > was, heap.count(b'sunaba!!') >> 20, file.read().decode(), c.recv(9).decode(), time.monotonic() >= began, flush=True)
`

// says waits until a program has written text, and returns all that it wrote.
func says(t *testing.T, g box.Guest, pid int, text string) string {
	t.Helper()
	var out strings.Builder
	enough := fmt.Errorf("enough")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var end *box.End
	err := g.Follow(ctx, box.ProcessRef{PID: pid}, box.Positions{}, func(e box.ProcessEvent) error {
		out.Write(e.Data)
		end = e.End
		if strings.Contains(out.String(), text) {
			return enough
		}
		return nil
	})
	if !strings.Contains(out.String(), text) {
		t.Fatalf("it says %q, not %q (%v), and ended: %+v", out.String(), text, err, end)
	}
	return out.String()
}

// asks asks the busy program a question, which comes after at bytes of others.
func asks(t *testing.T, g box.Guest, pid int, at int64, word string) {
	t.Helper()
	if _, err := g.Input(t.Context(), box.ProcessRef{PID: pid}, box.Input{At: at, Data: []byte(word + "\n")}); err != nil {
		t.Fatal(err)
	}
	says(t, g, pid, word+" True 25 kept served True")
}

// fresh is what no two boxes have in common.
const fresh = `cat /proc/sys/kernel/random/boot_id; od -An -N16 -tx1 /dev/urandom; python3 -c 'import uuid; print(uuid.uuid4())'`

func TestABoxGoesOnInItsCopies(t *testing.T) {
	p := newPlace(t, box.TierGvisor)
	made := memorySpec()
	b := p.create(t, made)
	user := use(t, b)
	program, err := user.Start(t.Context(), box.ProcessSpec{Stdin: true, Command: box.Command{Argv: []string{"python3", "-c", busy}, Env: []string{"PATH=/usr/bin:/bin"}}})
	if err != nil {
		t.Fatal(err)
	}
	pid := program.PID
	says(t, user, pid, "ready")
	run(t, user, "echo written > /workspace/file; rm -f /etc/hostname; chmod 700 /workspace")
	asks(t, user, pid, 0, "first")
	leave(t, user)

	s := p.copyMemory(t, b)
	user = use(t, b)
	asks(t, user, pid, 6, "original")
	own := map[string]string{run(t, user, fresh): "original"}

	var boxes []box.Lasting
	for i := range 2 {
		began := time.Now()
		c := p.restore(t, made, s)
		g := use(t, c)
		t.Logf("restored in %v", time.Since(began).Round(time.Millisecond))
		asks(t, g, pid, 6, fmt.Sprintf("copy%d", i))
		if got := run(t, g, "cat /workspace/file; stat -c %a /workspace; echo copy > /workspace/file"); got != "written\n700\n" {
			t.Errorf("a copy has %q", got)
		}
		for _, line := range strings.Split(strings.TrimSpace(run(t, g, fresh)), "\n") {
			for was, whose := range own {
				if strings.Contains(was, line) {
					t.Errorf("copy %d has %q, as %s", i, line, whose)
				}
			}
			own[line] = fmt.Sprint("copy ", i)
		}
		if now := strings.TrimSpace(run(t, g, "date +%s")); !near(now) {
			t.Errorf("its clock says %s", now)
		}
		leave(t, g)
		boxes = append(boxes, c)
	}
	// A copy of a copy, of a paused box, which stays so; and a maker that comes anew.
	again := p.copyMemory(t, boxes[0])
	do(t, pauser(t, boxes[0]).Pause)
	p.copyMemory(t, boxes[0])
	do(t, pauser(t, boxes[0]).Resume)
	c := p.restore(t, made, again)
	raw := c.State()
	c.Detach()
	c = p.recover(t, c.ID(), raw)
	g := use(t, c)
	asks(t, g, pid, 12, "grandchild")
	if _, err := g.Input(t.Context(), box.ProcessRef{PID: pid}, box.Input{At: 23, Data: []byte("end\n")}); err != nil {
		t.Fatal(err)
	}
	if end, _ := ended(t, g, pid); end.Cause != box.Exited || end.ExitCode != 7 {
		t.Errorf("it ended with %+v", end)
	}
	if got := run(t, use(t, b), "cat /workspace/file"); got != "written\n" {
		t.Errorf("a copy has changed the original's file: %q", got)
	}
	for _, c := range append(boxes, c, b) {
		p.destroy(t, c)
	}
	p.empty(t)
}

func near(seconds string) bool {
	var s int64
	_, err := fmt.Sscan(seconds, &s)
	d := time.Now().Unix() - s
	return err == nil && d < 60 && d > -60
}

func TestFilesOfAGuestAreInItsCopies(t *testing.T) {
	p := newPlace(t, box.TierGvisor)
	made := spec()
	b := p.create(t, made)
	run(t, use(t, b), `set -e; cd /workspace; echo a > file; chmod 640 file; ln file same; ln -s file link; mkdir -m 711 dir; mkfifo pipe
		head -c 6000000 /dev/urandom > large; sha256sum large > sum; touch -d 2001-02-03T04:05:06 old; echo gone > gone; rm gone`)
	s := p.copyFiles(t, b)
	c := p.restore(t, made, s)
	got := run(t, use(t, c), `cd /workspace; sha256sum -c --quiet sum; stat -c '%a %u %h' file; cat link; stat -c '%a %F' dir pipe; stat -c %Y old; ls; echo b > file; cat same`)
	want := "640 1000 2\na\n711 directory\n644 fifo\n"
	if !strings.HasPrefix(got, want) || strings.Contains(got, "gone") || !strings.HasSuffix(got, "b\n") {
		t.Errorf("the copy has\n%s", got)
	}
	p.destroy(t, b)
	p.destroy(t, c)
	p.empty(t)
}
