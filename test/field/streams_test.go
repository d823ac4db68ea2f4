package field

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A stream that many read at once, each of them to its end.
func TestThirtyOutputsOfFiftyMegabytesArriveWhole(t *testing.T) {
	const streams, size = 30, 50_000_000
	inTurn(t, func(c *client) {
		b := c.make(map[string]any{"sandbox": map[string]any{
			"runtime": c.tier, "trust": "trusted",
			"resource_limits": map[string]any{"memory": "512m", "disk": "128m", "max_processes": 256, "max_open_files": 1024, "cpu": 2},
		}})
		before := c.resident()
		var wg sync.WaitGroup
		for n := range streams {
			wg.Go(func() {
				// Each line says where it stands, so that what is missing shows.
				shell := fmt.Sprintf("yes 'stream %02d of many, and so on and on and on' | head -c %d", n, size)
				line := fmt.Appendf(nil, "stream %02d of many, and so on and on and on\n", n)
				var got int64
				end := false
				err := c.stream(c.t.Context(), "POST", b+"/exec", "", map[string]any{"shell": shell, "timeout_sec": 0}, func(e event) bool {
					switch e.Name {
					case "stdout":
						p := e.bytes()
						if e.Data.At != got || !continues(p, line, got) {
							t.Errorf("stream %d: at %d, had %d", n, e.Data.At, got)
							return false
						}
						got += int64(len(p))
					case "end":
						end = e.Data.Cause == "exited" && *e.Data.ExitCode == 0
					case "error":
						t.Errorf("stream %d: %+v", n, e.Data)
					}
					return true
				})
				if err != nil || got != size || !end {
					t.Errorf("stream %d: %d bytes, end %v, %v", n, got, end, err)
				}
			})
		}
		wg.Wait()
		if grown := c.resident() - before; grown > 128<<20 {
			c.t.Errorf("the daemon has grown by %d MiB", grown>>20)
		}
	})
}

// continues reports whether p is what follows position at of a line's repetition.
func continues(p, line []byte, at int64) bool {
	for len(p) > 0 {
		rest := line[at%int64(len(line)):]
		n := min(len(rest), len(p))
		if !bytes.Equal(p[:n], rest[:n]) {
			return false
		}
		p, at = p[n:], at+int64(n)
	}
	return true
}

// resident is the daemon's resident memory, in bytes.
func (c *client) resident() int64 {
	c.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.Pid()))
	if err != nil {
		c.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(v)[0], 10, 64)
			if err != nil {
				c.t.Fatal(err)
			}
			return kb << 10
		}
	}
	c.t.Fatal("no VmRSS")
	return 0
}

// A client that reads a byte a second slows its program down, and costs nothing.
func TestAClientThatHardlyReadsCostsNoMemory(t *testing.T) {
	inTurn(t, func(c *client) {
		b := c.make(nil)
		c.exec(b, "true", nil)
		before := c.resident()
		ctx, cancel := context.WithCancel(c.t.Context())
		defer cancel()
		const slow = 10
		for range slow {
			req, err := http.NewRequestWithContext(ctx, "POST", c.URL+b+"/exec", strings.NewReader(`{"shell":"yes","timeout_sec":0}`))
			if err != nil {
				c.t.Fatal(err)
			}
			req.Header.Set("X-API-Key", c.Key)
			req.Header.Set("Content-Type", "application/json")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				c.t.Fatal(err)
			}
			defer resp.Body.Close()
			go func() {
				for one := make([]byte, 1); ; time.Sleep(time.Second) {
					if _, err := io.ReadFull(resp.Body, one); err != nil {
						return
					}
				}
			}()
		}
		time.Sleep(4 * time.Second)
		if grown := c.resident() - before; grown > slow*8<<20 {
			c.t.Errorf("%d clients cost %d MiB", slow, grown>>20)
		}
		// And holds nobody else of the same box up.
		if e := c.exec(b, "echo quick", nil); e.Stdout != "quick\n" {
			c.t.Errorf("%+v", e)
		}
		cancel()
		within(c.t, "their programs end with them", func() bool {
			return c.exec(b, "pgrep -x yes || true", nil).Stdout == ""
		})
	})
}
