package field

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/test/harness"
)

// withVolume makes a volume, and tells what to ask for a box with it.
func (c *client) withVolume(name string) (more map[string]any, path string) {
	c.t.Helper()
	c.Must("POST", "/v1/volumes", map[string]any{"name": name, "bytes": 16 << 20}, nil)
	c.t.Cleanup(func() {
		// The boxes of a test are destroyed before, in the order of Cleanup.
		c.Must("DELETE", "/v1/volumes/"+name, nil, nil)
	})
	return c.sandboxWith(name, false), "/v1/volumes/" + name
}

func (c *client) sandboxWith(name string, readOnly bool) map[string]any {
	return map[string]any{"sandbox": map[string]any{
		"runtime": c.tier, "trust": "trusted", "resource_limits": map[string]any{"memory": "256m", "disk": "64m", "max_processes": 64},
		"volumes": []any{map[string]any{"name": name, "container": "/data", "read_only": readOnly}},
	}}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user has no volumes")
	}
}

// Data of a volume survive whatever ends first: the daemon, the box, or both, by
// SIGKILL; and nothing but the box that lives keeps it.
func TestAVolumeOutlivesKills(t *testing.T) {
	needRoot(t)
	inTurn(t, func(c *client) {
		more, vol := c.withVolume("kept-" + string(c.tier))
		log := "for i in $(seq 100000); do echo line $i >> /data/log; sync /data/log; echo $i > /data/last.new; sync /data/last.new; mv /data/last.new /data/last; done"
		killBox := func(b string) {
			for _, pid := range members(c.t, strings.TrimPrefix(b, "/v1/boxes/")) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		// synced is how many lines a program knows to be on the volume: it renames last
		// when it has synced them. The log is written on meanwhile, so it is looked at
		// after that, and no further than its last whole line.
		synced := func(b string) (last int) {
			c.t.Helper()
			e := c.exec(b, `touch /data/log; cat /data/last 2>/dev/null || echo 0; n=$(wc -l < /data/log); echo $n; head -n $n /data/log | grep -cv '^line [0-9]*$'`, nil)
			var n, bad int
			if _, err := fmt.Sscan(e.Stdout, &last, &n, &bad); err != nil || bad != 0 || last > n {
				c.t.Errorf("%d lines are synced, %d are there, %d of them are none: %+v, %v", last, n, bad, e, err)
			}
			return last
		}
		had := 0
		for round, kill := range map[string]func(b string){
			"daemon": func(string) { c.Kill(); c.Start() },
			"box":    killBox,
			"both, the daemon first": func(b string) {
				c.Kill()
				killBox(b)
				c.Start()
			},
			"both, the box first": func(b string) {
				killBox(b)
				c.Kill()
				c.Start()
			},
		} {
			var b string
			within(c.t, "its volume is written out", func() bool { // of a box that was killed, by the host's kernel
				var made boxInfo
				code, err := c.Call(context.Background(), "POST", "/v1/boxes", more, &made)
				if err == nil {
					b = "/v1/boxes/" + made.ID
					c.t.Cleanup(func() { c.Must("DELETE", b, nil, nil) })
					return true
				}
				if !harness.ComeAgain(code, err) && !(code == 409 && strings.Contains(err.Error(), "no box that is known here")) {
					c.t.Fatal(err)
				}
				return false
			})
			if n := synced(b); n < had {
				c.t.Errorf("before %s: %d lines of %d", round, n, had)
			}
			c.exec(b, "rm -f /data/log /data/last", nil)
			c.start(b, log, map[string]any{"timeout_sec": 0})
			within(c.t, "it writes", func() bool { had = synced(b); return had > 20 })
			kill(b)
			if strings.HasPrefix(round, "daemon") {
				// The box lives, writes on, and has it.
				code, err := c.Call(context.Background(), "POST", "/v1/boxes", more, nil)
				if code != 409 || !strings.Contains(fmt.Sprint(err), strings.TrimPrefix(b, "/v1/boxes/")) {
					c.t.Errorf("%s: a second writer: %d, %v", round, code, err)
				}
				within(c.t, "it writes on", func() bool { return synced(b) > had })
				had = synced(b)
				c.Must("DELETE", b, nil, nil)
			} else {
				within(c.t, "it is known to be no more", func() bool { return c.inspect(b).Phase == "destroyed" })
			}
			within(c.t, "nobody has it", func() bool {
				var v struct{ Boxes []string }
				c.Must("GET", vol, nil, &v)
				return len(v.Boxes) == 0
			})
			c.t.Logf("%s: %d lines", round, had)
		}
	})
}

// Two tenants at one time: who reads and who writes is told by name.
func TestAVolumeHasOneWriterOrManyReaders(t *testing.T) {
	needRoot(t)
	eachTier(t, func(c *client) {
		name := "shared-" + string(c.tier)
		more, vol := c.withVolume(name)
		w := c.make(more)
		c.exec(w, "echo kept > /data/file; sync /data/file", nil)
		for _, readOnly := range []bool{false, true} {
			code, err := c.Call(context.Background(), "POST", "/v1/boxes", c.sandboxWith(name, readOnly), nil)
			if code != 409 || !strings.Contains(fmt.Sprint(err), strings.TrimPrefix(w, "/v1/boxes/")) {
				c.t.Errorf("beside a writer, read_only %v: %d, %v", readOnly, code, err)
			}
		}
		if code, err := c.Call(context.Background(), "DELETE", vol, nil, nil); code != 409 {
			c.t.Errorf("deleted while it is used: %d, %v", code, err)
		}
		// What runs on a volume has no copy.
		for what, in := range map[string]map[string]any{"/fork": {"count": 1}, "/snapshots": {"kind": "memory"}} {
			if code, err := c.Call(context.Background(), "POST", w+what, in, nil); code != 501 {
				c.t.Errorf("%s: %d, %v", what, code, err)
			}
		}
		c.Must("POST", w+"/pause", nil, nil)
		if code, err := c.Call(context.Background(), "POST", "/v1/boxes", more, nil); code != 409 {
			c.t.Errorf("beside one that stands still: %d, %v", code, err)
		}
		c.Must("DELETE", w, nil, nil)
		for range 3 {
			r := c.make(c.sandboxWith(name, true))
			if e := c.exec(r, "cat /data/file; echo no >> /data/file", nil); e.Stdout != "kept\n" || *e.ExitCode == 0 {
				c.t.Errorf("%+v", e)
			}
		}
		if code, err := c.Call(context.Background(), "POST", "/v1/boxes", more, nil); code != 409 {
			c.t.Errorf("a writer beside readers: %d, %v", code, err)
		}
	})
}

// One-call runs of both tiers take turns, and find what the last one left.
func TestRunsTakeTurnsOnAVolume(t *testing.T) {
	needRoot(t)
	inTurn(t, func(c *client) {
		name := "turns-" + string(c.tier)
		more, _ := c.withVolume(name)
		for i := range 5 {
			var rep struct {
				Stdout string
				Policy struct{ Volumes []struct{ Name string } }
				Weak   []string
			}
			c.Must("POST", "/v1/execute", map[string]any{"language": "bash", "code": "echo x >> /data/log; wc -l < /data/log", "sandbox": more["sandbox"]}, &rep)
			if rep.Stdout != fmt.Sprintln(i+1) || len(rep.Policy.Volumes) != 1 || rep.Policy.Volumes[0].Name != name {
				c.t.Errorf("%+v", rep)
			}
		}
		// A daemon that is killed among one takes the run with it, and not the volume.
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = c.Call(context.Background(), "POST", "/v1/execute", map[string]any{"language": "bash", "code": "echo y >> /data/log; sync /data/log; sleep 60", "sandbox": more["sandbox"]}, nil)
		}()
		within(c.t, "it runs", func() bool {
			var v struct{ Boxes []string }
			c.Must("GET", "/v1/volumes/"+name, nil, &v)
			return len(v.Boxes) == 1
		})
		time.Sleep(2 * time.Second)
		c.Kill()
		<-done
		c.Start()
		within(c.t, "the next one gets it", func() bool {
			var rep struct{ Stdout string }
			_, err := c.Call(context.Background(), "POST", "/v1/execute", map[string]any{"language": "bash", "code": "wc -l < /data/log", "sandbox": more["sandbox"]}, &rep)
			return err == nil && (rep.Stdout == "6\n" || rep.Stdout == "5\n") // it was killed before it came to that
		})
	})
}
