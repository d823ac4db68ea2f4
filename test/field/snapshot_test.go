package field

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/test/harness"
)

type snapshotInfo struct {
	ID    string `json:"id"`
	Kind  string `json:"kind"`
	Bytes int64  `json:"bytes"`
}

// copyable ends a test where a box gives no snapshot, which is said with the reason.
func (c *client) copyable(b, kind string) {
	c.t.Helper()
	var s snapshotInfo
	code, err := c.Call(context.Background(), "POST", b+"/snapshots", map[string]any{"kind": kind}, &s)
	if code == 501 && c.tier == "process" && (kind == "memory" || c.User != "root") {
		c.t.Skip(err)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.Must("DELETE", "/v1/snapshots/"+s.ID, nil, nil)
}

func (c *client) snapshot(b, kind string) (s snapshotInfo) {
	c.t.Helper()
	c.Must("POST", b+"/snapshots", map[string]any{"kind": kind}, &s)
	c.t.Cleanup(func() { c.Call(context.Background(), "DELETE", "/v1/snapshots/"+s.ID, nil, nil) })
	return s
}

// from makes a box from a snapshot.
func (c *client) from(ref string) string {
	c.t.Helper()
	var b struct {
		ID     string `json:"id"`
		Start  string `json:"start"`
		Reason string `json:"start_reason"`
	}
	c.Must("POST", "/v1/boxes", map[string]any{"snapshot": ref}, &b)
	c.t.Cleanup(func() { c.Must("DELETE", "/v1/boxes/"+b.ID, nil, nil) })
	if b.Start != "restored" || !strings.Contains(b.Reason, ref) {
		c.t.Errorf("%+v", b)
	}
	return "/v1/boxes/" + b.ID
}

// fork makes copies of a box, all of which have to be there. A host that is busy may
// say of some that they are to be asked for again.
func (c *client) fork(b string, n int) (all []string) {
	c.t.Helper()
	type failure struct {
		Code    int
		Message string
	}
	within(c.t, fmt.Sprint(n, " copies"), func() bool {
		var out struct {
			Forks []struct {
				Box   *boxInfo
				Error *failure
			}
		}
		want := n - len(all)
		c.Must("POST", b+"/fork", map[string]any{"count": want}, &out)
		if len(out.Forks) != want {
			c.t.Fatalf("%d answers for %d copies", len(out.Forks), want)
		}
		for _, f := range out.Forks {
			switch {
			case f.Box != nil:
				all = append(all, "/v1/boxes/"+f.Box.ID)
				c.t.Cleanup(func() { c.Must("DELETE", "/v1/boxes/"+f.Box.ID, nil, nil) })
			case f.Error != nil && (f.Error.Code == 429 || f.Error.Code == 503):
				c.t.Logf("a copy is to come later: %+v", *f.Error)
			default:
				c.t.Fatalf("no copy: %+v", f)
			}
		}
		return len(all) == n
	})
	return all
}

// writes that nobody flushes, names that are no ASCII, links, modes, deletions.
const written = `set -e
echo %[1]d > cycle-%[1]d
printf 'x%%.0s' $(seq 1 70000) > big-%[1]d
mkdir -p d/ü; echo deep > d/ü/f-%[1]d; chmod 640 d/ü/f-%[1]d; ln -sf cycle-%[1]d last; ln big-%[1]d hard-%[1]d
rm -f big-$((%[1]d-1)); echo home > ~/home-%[1]d; echo tmp > /tmp/t-%[1]d`

// Files of cycle k are there in cycle k+5, each by another box and a later daemon.
func TestFilesSurviveFiveGenerations(t *testing.T) {
	inTurn(t, func(c *client) {
		b := c.make(nil)
		c.copyable(b, "files")
		for k := range 6 {
			if e := c.exec(b, fmt.Sprintf(written, k), nil); *e.ExitCode != 0 {
				c.t.Fatalf("%+v", e)
			}
			if k == 2 {
				c.Must("POST", b+"/pause", nil, nil)
			}
			s := c.snapshot(b, "files")
			c.exec(b, "rm -rf *; echo gone > cycle-0", nil) // it is not in the copy
			if k == 3 {
				c.Kill()
				c.Start()
			}
			b = c.from(s.ID)
			c.t.Logf("cycle %d: %d bytes", k, s.Bytes)
		}
		e := c.exec(b, "cat cycle-* ~/home-* d/ü/* /tmp/t-*; cat last; stat -c '%a %U %h' d/ü/f-0 cycle-3 hard-5; ls big-* | tr '\n' ' '; wc -c < big-5", nil)
		want := "0\n1\n2\n3\n4\n5\n" + strings.Repeat("home\n", 6) + strings.Repeat("deep\n", 6) + strings.Repeat("tmp\n", 6) +
			"5\n640 user 1\n644 user 1\n644 user 2\nbig-5 70000\n"
		if e.Stdout != want {
			c.t.Errorf("%q, want %q (%s)", e.Stdout, want, e.Stderr)
		}
	})
}

// lively is the program of a box whose memory is copied: see living.
func (c *client) lively(t *testing.T) (b string, ask func(b, how string) (ticks, pid int)) {
	b = c.make(map[string]any{"sandbox": map[string]any{
		"runtime": c.tier, "trust": "trusted", "image": "base", "resource_limits": map[string]any{"memory": "512m", "disk": "128m", "max_processes": 64},
	}})
	c.copyable(b, "memory")
	c.exec(b, "cat > living.py <<'EOF'\n"+living+"EOF\ncat > asking.py <<'EOF'\n"+asking+"\nEOF", nil)
	c.start(b, "python3 living.py > log 2>&1", map[string]any{"timeout_sec": 0, "tag": "living"})
	within(t, "it is up", func() bool { return strings.Contains(c.exec(b, "cat log 2>/dev/null || :", nil).Stdout, "up") })
	return b, func(b, how string) (n, p int) {
		t.Helper()
		var good string
		e := c.exec(b, "python3 asking.py "+how, nil)
		if _, err := fmt.Sscan(e.Stdout, &good, &n, &p); err != nil || good != "True" {
			t.Fatalf("%v: %+v; its log: %s", err, e, c.exec(b, "cat log", nil).Stdout)
		}
		return n, p
	}
}

// What is random in a new box has to be new in a copy. The interpreter is a code
// context, which was asked before, so that its state is the original's.
const random = `import os, uuid, random
print(os.urandom(8).hex(), uuid.uuid4(), random.random(), open('/proc/sys/kernel/random/boot_id').read().strip(), open('/proc/sys/kernel/random/uuid').read().strip())`

func (c *client) code(b, code string) []string {
	c.t.Helper()
	var r struct {
		Stdout string `json:"stdout"`
	}
	c.Must("POST", b+"/code", map[string]any{"language": "python", "code": code}, &r)
	return strings.Fields(r.Stdout)
}

// different fails if two boxes got the same of anything.
func (c *client) different(all [][]string) {
	c.t.Helper()
	seen := map[string]bool{}
	for i, one := range all {
		if len(one) != 5 {
			c.t.Fatalf("copy %d says %q", i, one)
		}
		for _, v := range one {
			if seen[v] {
				c.t.Errorf("copy %d has %s, too", i, v)
			}
			seen[v] = true
		}
	}
}

func TestAProgramSurvivesFork(t *testing.T) {
	eachTier(t, func(c *client) {
		b, ask := c.lively(c.t)
		c.code(b, "import random; random.random()")
		before, pid := ask(b, "-")
		begun := time.Now()
		all := c.fork(b, 5)
		c.t.Logf("fork(5) in %v", time.Since(begun))
		var said [][]string
		for i, f := range append(slices.Clone(all), b) {
			ticks, p := ask(f, "-")
			if p != pid || ticks < before {
				c.t.Errorf("copy %d: pid %d, ticks %d; was %d, %d", i, p, ticks, pid, before)
			}
			said = append(said, c.code(f, random))
			if e := c.exec(f, fmt.Sprintf("cat own 2>/dev/null; echo %d > own; hostname", i), nil); e.Stdout != "sunaba\n" {
				c.t.Errorf("copy %d: %+v", i, e)
			}
		}
		c.different(said)
		ask(all[0], "f") // it flushes its open file; the others do not
		for i, f := range all {
			want := fmt.Sprintln(i)
			if i == 0 {
				want += "not flushed"
			}
			if e := c.exec(f, "cat own open", nil); e.Stdout != want {
				c.t.Errorf("copy %d: %+v, want %q", i, e, want)
			}
		}
		// The end of a program that is older than the copy is told by the copy.
		c.exec(all[1], "kill -KILL "+fmt.Sprint(pid), nil)
		within(c.t, "it has ended", func() bool {
			var p struct {
				End *ended `json:"end"`
			}
			c.Must("GET", all[1]+"/processes/tag:living", nil, &p)
			return p.End != nil
		})
		ask(all[2], "-")
		ask(c.fork(all[2], 1)[0], "-") // of a copy
	})
}

func TestAProgramSurvivesFiveSnapshots(t *testing.T) {
	harness.EachUser(t, func(t *testing.T, u harness.User) { inTurnAs(t, u, func(c *client) { c.fiveSnapshots() }) })
}

func (c *client) fiveSnapshots() {
	b, ask := c.lively(c.t)
	c.code(b, "import random; random.random()")
	ticks, pid := ask(b, "-")
	var said [][]string
	for k := range 5 {
		c.exec(b, fmt.Sprintf("echo %d > cycle-%d", k, k), nil)
		if k == 1 {
			c.Must("POST", b+"/pause", nil, nil)
		}
		begun := time.Now()
		s := c.snapshot(b, "memory")
		kept := time.Since(begun)
		c.Must("DELETE", b, nil, nil)
		if k == 2 {
			c.Kill()
			c.Start()
		}
		begun = time.Now()
		b = c.from(s.ID)
		made := time.Since(begun)
		n, p := ask(b, "-")
		c.t.Logf("generation %d: %d MiB, kept in %v, made in %v, first answer after %v", k, s.Bytes>>20, kept, made, time.Since(begun))
		if n < ticks || p != pid {
			c.t.Errorf("generation %d: %d ticks of %d, were %d of %d", k, n, p, ticks, pid)
		}
		ticks = n
		said = append(said, c.code(b, random))
	}
	c.different(said)
	ask(b, "f")
	if e := c.exec(b, "cat open; cat cycle-*", nil); e.Stdout != "not flushed0\n1\n2\n3\n4\n" {
		c.t.Errorf("%+v", e)
	}
	for _, f := range c.fork(b, 2) {
		if n, p := ask(f, "-"); n < ticks || p != pid {
			c.t.Errorf("a fork of the last: %d ticks of %d, were %d of %d", n, p, ticks, pid)
		}
	}
}

// parts are the files of a snapshot on the host, the largest first.
func (c *client) parts(id string) (all []string) {
	c.t.Helper()
	dir := filepath.Join(harness.State(c.t, c.User), "snapshots")
	b, err := os.ReadFile(filepath.Join(dir, id[len("sha256:"):]+".json"))
	if err != nil {
		c.t.Fatal(err)
	}
	var m struct {
		Parts []struct {
			Bytes  int64
			SHA256 string
		}
	}
	if err := json.Unmarshal(b, &m); err != nil {
		c.t.Fatal(err)
	}
	slices.SortFunc(m.Parts, func(x, y struct {
		Bytes  int64
		SHA256 string
	}) int {
		return cmp.Compare(y.Bytes, x.Bytes)
	})
	for _, p := range m.Parts {
		all = append(all, filepath.Join(dir, p.SHA256))
	}
	return all
}

// Whatever was done to the files, no box comes of it; put back, they are good.
func TestADamagedSnapshotIsRefused(t *testing.T) {
	inTurn(t, func(c *client) {
		for _, kind := range []string{"files", "memory"} {
			c.t.Run(kind, func(t *testing.T) { (&client{Server: c.Server, t: t, tier: c.tier}).damaged(kind) })
		}
	})
}

func (c *client) damaged(kind string) {
	b := c.make(map[string]any{"sandbox": map[string]any{
		"runtime": c.tier, "trust": "trusted", "image": "base", "resource_limits": map[string]any{"memory": "256m", "disk": "128m", "max_processes": 64},
	}})
	c.copyable(b, kind)
	c.exec(b, "echo one > f; head -c 100000 /dev/urandom > r", nil)
	s := c.snapshot(b, kind)
	c.exec(b, "echo two > f; head -c 100000 /dev/urandom > r", nil)
	other := c.snapshot(b, kind)
	twos, spoiled := c.parts(other.ID), 0
	for i, one := range c.parts(s.ID) {
		if slices.Contains(twos, one) {
			continue // what they have alike is one file
		}
		c.spoiled(s.ID, one, twos[i])
		spoiled++
	}
	if spoiled == 0 {
		c.t.Error("the two have all parts alike: this judges nothing")
	}
	for ref, want := range map[string]string{s.ID: "one\n", other.ID: "two\n"} {
		if e := c.exec(c.from(ref), "cat f", nil); e.Stdout != want {
			c.t.Errorf("%+v, want %q", e, want)
		}
	}
}

// spoiled spoils one part of a snapshot in each way, and mends it.
func (c *client) spoiled(id, one, two string) {
	must := func(err error) {
		c.t.Helper()
		if err != nil {
			c.t.Fatal(err)
		}
	}
	// instead puts other bytes in the place of the part.
	instead := func(change func([]byte) []byte) func() {
		return func() {
			text, err := os.ReadFile(one)
			must(err)
			must(os.Rename(one, one+"~"))
			must(os.WriteFile(one, change(text), 0o400))
			harness.Give(c.t, c.User, one)
		}
	}
	back := func() {
		must(os.Remove(one))
		must(os.Rename(one+"~", one))
	}
	for name, change := range map[string]struct{ do, undo func() }{
		"a flipped byte": {instead(func(b []byte) []byte { b[len(b)/2] ^= 1; return b }), back},
		"truncated":      {instead(func(b []byte) []byte { return b[:len(b)-1] }), back},
		"swapped": {func() {
			must(os.Rename(one, one+"~"))
			must(os.Rename(two, one))
		}, func() {
			must(os.Rename(one, two))
			must(os.Rename(one+"~", one))
		}},
		"a link": {func() {
			must(os.Rename(one, one+"~"))
			must(os.Symlink(one+"~", one))
		}, back},
		"gone": {func() { must(os.Rename(one, one+"~")) }, func() { must(os.Rename(one+"~", one)) }},
	} {
		change.do()
		code, err := c.Call(context.Background(), "POST", "/v1/boxes", map[string]any{"snapshot": id}, nil)
		if code != 503 || !strings.Contains(fmt.Sprint(err), "unusable") || !strings.Contains(fmt.Sprint(err), id) {
			c.t.Errorf("%s: %d, %v", name, code, err)
		}
		change.undo()
	}
}

// A daemon that is killed while it copies a box leaves the box running, and of the
// copy all or nothing.
func TestAKillWhileABoxIsCopiedLeavesNoHalf(t *testing.T) {
	inTurn(t, func(c *client) {
		b := c.make(nil)
		c.copyable(b, "files")
		c.exec(b, "head -c 50000000 /dev/urandom > r; sync; sha256sum r > sum", nil)
		dir := filepath.Join(harness.State(c.t, c.User), "snapshots")
		halves := 0
		for k := 0; k < 4 || halves == 0 && k < 20; k++ { // on a host that is loaded a moment is missed
			done := make(chan struct{})
			go func() {
				defer close(done)
				c.Call(context.Background(), "POST", b+"/snapshots", map[string]any{}, nil) // it is cut off
			}()
			within(c.t, "it writes, or has written", func() bool {
				names, _ := filepath.Glob(dir + "/.new-*")
				select {
				case <-done:
					return true
				default:
					return len(names) > 0
				}
			})
			<-time.After(time.Duration(15*(k%4)) * time.Millisecond)
			c.Kill()
			<-done
			if names, _ := filepath.Glob(dir + "/.new-*"); len(names) > 0 {
				halves++
			}
			c.Start()
			var page struct{ Snapshots []snapshotInfo }
			c.Must("GET", "/v1/snapshots", nil, &page)
			names, _ := filepath.Glob(dir + "/*")
			hidden, _ := filepath.Glob(dir + "/.*")
			if len(page.Snapshots) > 1 || len(names) < 2*len(page.Snapshots) || len(page.Snapshots) == 0 && len(names) > 0 || len(hidden) > 0 {
				c.t.Errorf("%d snapshots, files %v %v", len(page.Snapshots), names, hidden)
			}
			if e := c.exec(b, "sha256sum -c sum", nil); e.Stdout != "r: OK\n" {
				c.t.Errorf("%+v", e)
			}
			for _, s := range page.Snapshots {
				if e := c.exec(c.from(s.ID), "sha256sum -c sum", nil); e.Stdout != "r: OK\n" {
					c.t.Errorf("%+v", e)
				}
				c.Must("DELETE", "/v1/snapshots/"+s.ID, nil, nil)
			}
		}
		if halves == 0 {
			c.t.Error("none was killed in the midst: this test judges nothing")
		}
	})
}
