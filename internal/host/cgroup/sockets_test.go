package cgroup

import (
	"os"
	"testing"
)

// hoard fills a hundred connections to itself.
const hoard = `exec python3 -c '
import socket, time
keep = []
try:
    for _ in range(100):
        l = socket.socket(); l.bind(("127.0.0.1", 0)); l.listen(1)
        c = socket.socket(); c.connect(l.getsockname()); s, _ = l.accept(); c.setblocking(False)
        keep.append((l, c, s))
        try:
            while True: c.send(b"x" * 65536)
        except BlockingIOError: pass
except OSError: pass
open("'$1'", "w")
time.sleep(300)'`

func TestBuffersOfSocketsAreBoundedWithTheMemory(t *testing.T) {
	m := realManager(t)
	const limit = 64 << 20
	for _, bounded := range []bool{false, true} {
		l := Limits{Memory: limit}
		if !bounded {
			l.Memory = 1 << 40 // the control: what a group may have that is bounded by nothing
		}
		g := realGroup(t, m, l)
		d, ok := g.dir("memory")
		if !ok {
			t.Fatal("no memory controller")
		}
		if d.version == 2 {
			t.Skip("version 2 counts sockets with the rest; nothing is set")
		}
		if !g.CountsSockets() {
			t.Skip("this kernel has no account of sockets in version 1; boxes of the process tier say so")
		}
		full := t.TempDir() + "/full"
		shell(t, g, hoard, full)
		eventually(t, "full", func() bool { _, err := os.Stat(full); return err == nil })
		used, err := g.readInt(d, "memory.kmem.tcp.usage_in_bytes")
		if err != nil {
			t.Fatal(err)
		}
		if bounded && used > limit/2 { // each socket has a little that is never refused
			t.Errorf("sockets hold %d bytes; their limit is %d", used, limit/socketShare)
		}
		if !bounded && used < limit {
			t.Errorf("without a limit sockets hold %d bytes only: the test proves nothing", used)
		}
	}
}
