package field

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// pausable ends a test where a box cannot be paused, which is said with the reason.
func (c *client) pausable(b string) {
	c.t.Helper()
	code, err := c.Call(context.Background(), "POST", b+"/pause", nil, nil)
	if code == 501 && strings.Contains(err.Error(), "control group") && (c.User != "root" || os.Geteuid() != 0) {
		c.t.Skip(err)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.Must("POST", b+"/resume", nil, nil)
}

// living is a program with a large heap, an open file that is not flushed, a
// thread that counts, and a socket that answers with all of them.
const living = `
import socket, threading, time, os
heap = bytearray(200 << 20)
for i in range(0, len(heap), 4096): heap[i] = i // 4096 % 251
f = open('open', 'w', buffering=1 << 20); f.write('not flushed')
ticks = 0
def tick():
    global ticks
    while True:
        ticks += 1
        time.sleep(0.01)
threading.Thread(target=tick, daemon=True).start()
s = socket.create_server(('127.0.0.1', 7007))
print('up', flush=True)
while True:
    c, _ = s.accept()
    good = all(heap[i] == i // 4096 % 251 for i in range(0, len(heap), 4096))
    if c.recv(1) == b'f': f.flush()
    c.sendall(f'{good} {ticks} {os.getpid()}'.encode())
    c.close()
`

const asking = `import socket, sys
s = socket.create_connection(('127.0.0.1', 7007)); s.sendall(sys.argv[1].encode())
print(s.recv(100).decode())`

// What lives in a box survives pauses one after the other, by whichever daemon,
// and files of an early one are there in a later one.
func TestAProgramSurvivesFivePauses(t *testing.T) {
	inTurn(t, func(c *client) {
		b := c.make(map[string]any{"sandbox": map[string]any{
			"runtime": c.tier, "trust": "trusted", "resource_limits": map[string]any{"memory": "512m", "disk": "128m", "max_processes": 64},
		}})
		c.pausable(b)
		c.exec(b, "cat > living.py <<'EOF'\n"+living+"EOF\ncat > asking.py <<'EOF'\n"+asking+"\nEOF", nil)
		c.start(b, "python3 living.py > log 2>&1", map[string]any{"timeout_sec": 0})
		within(c.t, "it is up", func() bool { return strings.Contains(c.exec(b, "cat log 2>/dev/null || :", nil).Stdout, "up") })
		var ticks, pid int
		ask := func(how string) int {
			c.t.Helper()
			var good string
			var n, p int
			e := c.exec(b, "python3 asking.py "+how, nil)
			if _, err := fmt.Sscan(e.Stdout, &good, &n, &p); err != nil || good != "True" || n < ticks || pid != 0 && p != pid {
				c.t.Fatalf("%v: %+v after %d ticks of %d; its log: %s", err, e, ticks, pid, c.exec(b, "cat log", nil).Stdout)
			}
			pid = p
			return n
		}
		ticks = ask("-")
		for k := range 6 {
			c.exec(b, fmt.Sprintf("echo %d > cycle-%d", k, k), nil)
			begun := time.Now()
			before := ask("-")
			c.Must("POST", b+"/pause", nil, nil)
			runs := time.Since(begun)
			if k%2 == 1 {
				c.Kill()
				c.Start()
			}
			<-time.After(1500 * time.Millisecond)
			if i := c.inspect(b); i.Phase != "paused" {
				c.t.Fatalf("%+v", i)
			}
			begun = time.Now()
			ticks = ask("-")
			runs += time.Since(begun)
			// A tick takes 10 ms, and a running one makes 150 more.
			if most := int(runs/(10*time.Millisecond)) + 20; ticks-before > most {
				c.t.Errorf("%d ticks around a pause, in which it ran for %v at most", ticks-before, runs)
			}
		}
		ask("f")
		if e := c.exec(b, "cat open; cat cycle-*", nil); e.Stdout != "not flushed0\n1\n2\n3\n4\n5\n" {
			c.t.Errorf("%+v", e)
		}
		if i := c.inspect(b); i.Phase != "running" {
			c.t.Errorf("%+v", i)
		}
	})
}

// What was written and not flushed was lost when a machine was paused by itself.
func TestAnIdleBoxIsPausedWithAllItHas(t *testing.T) {
	eachTier(t, func(c *client) {
		c.pausable(c.make(nil))
		b := c.make(map[string]any{"idle_sec": 1, "on_idle": "pause", "ttl_sec": 600})
		ends := c.inspect(b).Ends
		for k := range 3 {
			c.exec(b, fmt.Sprintf("echo %d >> f", k), nil)
			within(c.t, "it is paused", func() bool { return c.inspect(b).Phase == "paused" })
			<-time.After(3 * time.Second)
		}
		if e := c.exec(b, "cat f", nil); e.Stdout != "0\n1\n2\n" {
			c.t.Errorf("%+v", e)
		}
		if i := c.inspect(b); i.Ends.Sub(ends) < 8*time.Second {
			c.t.Errorf("paused for 9 s, its end moved by %v", i.Ends.Sub(ends))
		}
	})
}

// A stream that is open stands still with its box, and goes on with it.
func TestAStreamGoesOnAfterAPause(t *testing.T) {
	eachTier(t, func(c *client) {
		b := c.make(nil)
		c.pausable(b)
		p := c.start(b, "i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo $i; sleep 0.01; done", map[string]any{"timeout_sec": 0})
		var out strings.Builder
		first, done := make(chan struct{}), make(chan error, 1)
		go func() {
			done <- c.stream(context.Background(), "GET", fmt.Sprint(b, "/processes/", p.PID, "/output"), "", nil, func(e event) bool {
				if out.Len() == 0 && len(e.bytes()) > 0 {
					close(first)
				}
				out.Write(e.bytes())
				return true
			})
		}()
		select {
		case <-first:
		case err := <-done:
			c.t.Fatalf("the stream ended before anything was written: %v", err)
		}
		c.Must("POST", b+"/pause", nil, nil)
		<-time.After(5 * time.Second)
		if i := c.inspect(b); i.Phase != "paused" {
			c.t.Errorf("%+v", i)
		}
		c.Must("POST", b+"/resume", nil, nil)
		if err := <-done; err != nil || !strings.HasPrefix(out.String(), "1\n2\n") || !strings.HasSuffix(out.String(), "\n299\n300\n") {
			c.t.Errorf("%v: %d bytes", err, out.Len())
		}
	})
}
