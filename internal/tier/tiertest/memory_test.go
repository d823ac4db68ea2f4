package tiertest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// What takes all memory: at once and byte by byte, by one program and by many,
// from one that is the agent's child and from one that is not.
func bombs() map[string]string {
	const py = "exec python3 -c '%s\nimport time; time.sleep(60)'"
	return map[string]string{
		"at once":    fmt.Sprintf(py, "x = bytearray(1 << 30)"),
		"by and by":  fmt.Sprintf(py, "x = []\nwhile True: x.append(bytearray(1 << 20))"),
		"by many":    "for i in 1 2 3 4; do python3 -c 'x = bytearray(300 << 20); import time; time.sleep(60)' & done; wait; exit 1",
		"by crowds":  "for i in $(seq 12); do python3 -c 'x = bytearray(300 << 20); import time; time.sleep(60)' & done; wait; exit 1",
		"its own":    "python3 -c 'x = bytearray(1 << 30); import time; time.sleep(60)'; exit 1",
		"by a call":  "exec dd if=/dev/zero of=/dev/null bs=1G",
		"by buffers": fmt.Sprintf(py, "import os, mmap\nos.readv(os.open(\"/dev/zero\", 0), [mmap.mmap(-1, 1 << 29), mmap.mmap(-1, 1 << 29)])"),
		"by calls":   "for i in 1 2 3 4; do (timeout --foreground 60 dd if=/dev/zero of=/dev/null bs=100M; sleep 2; kill -9 0) & done; wait; exit 1",
		"a memfd":    fmt.Sprintf(py, "import os, mmap\nos.write(os.memfd_create(\"x\"), mmap.mmap(-1, 1 << 30))"),
		"in a group": "setsid python3 -c 'x = bytearray(1 << 30); import time; time.sleep(60)'; exit 1",
	}
}

// A box that lasts loses the guilty program and not itself, where the host or
// the guest's own memory can be bounded without ending all of it.
func TestAMemoryBombEndsItselfAlone(t *testing.T) {
	eachTier(t, func(t *testing.T, p *place) {
		if p.groups == nil && p.Name() == box.TierProcess {
			endsWhole(t, p)
			return
		}
		b := p.create(t, spec())
		if p.Name() == box.TierProcess && len(b.Weak()) > 0 && strings.Contains(strings.Join(b.Weak(), " "), "memory:") {
			p.destroy(t, b)
			endsWhole(t, p)
			return
		}
		g := use(t, b)
		innocent := start(t, g, "sh", "-c", "read x; echo lives")
		other := start(t, g, "sleep", "1000")
		kills := int64(0)
		for name, bomb := range bombs() {
			begun := time.Now()
			end, out := ended(t, g, start(t, g, "sh", "-c", bomb).PID)
			took := time.Since(begun)
			if end.Cause == box.Exited && end.ExitCode == 0 || strings.Contains(out, "Traceback") {
				t.Errorf("%s: %+v, %q", name, end, out)
			}
			if strings.HasPrefix(bomb, "exec") && end.Cause != box.OutOfMemory && p.Name() == box.TierGvisor {
				t.Errorf("%s: the program ended by %s", name, end.Cause)
			}
			a := counted(t, b, kills)
			if a.MemoryKills <= kills || len(a.Limits) != 1 || a.Limits[0].Limit != "memory" || a.Limits[0].Ended {
				t.Errorf("%s: account %+v; %d kills before", name, a, kills)
			}
			t.Logf("%s: %v, %+v; peak %d MiB, %d kills", name, took, end, a.MemoryPeak>>20, a.MemoryKills)
			kills = a.MemoryKills
			select {
			case <-b.Ended():
				t.Fatalf("%s: the box has ended", name)
			default:
			}
		}
		for _, pid := range []int{innocent.PID, other.PID} {
			all, err := g.Processes(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range all {
				if q.PID == pid && q.End != nil && q.PID != innocent.PID {
					t.Errorf("an innocent program has ended: %+v", q.End)
				}
			}
		}
		if _, out := ended(t, g, innocent.PID); out != "lives\n" {
			t.Errorf("an innocent program said %q", out)
		}
		run(t, use(t, b), "true")
		p.destroy(t, b)
	})
}

// What takes memory at once is ended, and not what was there before it.
func TestABombOfManyTakesNothingOldAlong(t *testing.T) {
	p := newPlace(t, box.TierProcess)
	b := p.create(t, spec())
	if strings.Contains(strings.Join(b.Weak(), " "), "memory:") {
		p.destroy(t, b)
		return // ends as a whole
	}
	g := use(t, b)
	old := start(t, g, "sleep", "1000")
	if err := comes(func() error { // it is looked at now and then
		first := firstOf(t, b.State()).PID
		if sleeps, agent := inBox(t, first, "sleep").OOMScoreAdj, inBox(t, first, "sunaba-agentd").OOMScoreAdj; sleeps <= agent {
			return fmt.Errorf("a program is to be ended by %d, and the agent by %d", sleeps, agent)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	kills := int64(0)
	for n := range 2 {
		many := start(t, g, "sh", "-c", "for i in 1 2 3 4; do dd if=/dev/zero bs=100M count=1 | sleep 1000 & done; wait")
		counted(t, b, kills)
		<-time.After(3 * time.Second) // for the others of them
		if err := g.Signal(t.Context(), box.ProcessRef{PID: many.PID}, 9, true); err != nil {
			t.Fatal(err)
		}
		ended(t, g, many.PID)
		a := counted(t, b, kills)
		if a.MemoryKills == kills {
			t.Errorf("round %d: nothing was ended for want of memory: %+v", n, a)
		}
		kills = a.MemoryKills
		all, err := g.Processes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range all {
			if q.PID == old.PID && q.End != nil {
				t.Fatalf("round %d: a program that was there before has ended: %+v", n, q.End)
			}
		}
	}
	p.destroy(t, b)
	p.empty(t)
}

// The kernel of the host ends the largest process, and the agent must not be it,
// though each of many is smaller.
func TestASwarmDoesNotTakeTheAgentAlong(t *testing.T) {
	eachTier(t, func(t *testing.T, p *place) {
		s := spec()
		s.Limits.Processes, s.Limits.Memory = 600, 128<<20
		b := p.create(t, s)
		if strings.Contains(strings.Join(b.Weak(), " "), "memory:") {
			p.destroy(t, b)
			return // ends as a whole
		}
		g := use(t, b)
		const each = `sleep 0.$((100 + i * 7)); x=$(head -c 3500000 /dev/zero | tr "\\0" x); sleep 60`
		start(t, g, "bash", "-c", "for i in $(seq 120); do ("+each+") & done; sleep 60")
		if a := counted(t, b, 0); a.MemoryKills == 0 {
			t.Errorf("account %+v", a)
		}
		// While programs fight for the last page the agent waits in line with them, and
		// that it answered once does not mean that they are done.
		err := comes(func() error {
			select {
			case <-b.Ended():
				a, err := b.Account(t.Context())
				t.Fatalf("the box has ended: %+v, %v", a, err)
			default:
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience/2)
			defer cancel()
			made, err := g.Start(ctx, box.ProcessSpec{Command: box.Command{Argv: []string{"true"}, Env: []string{"PATH=/usr/bin:/bin"}}})
			if err != nil {
				return err
			}
			return g.Follow(ctx, box.ProcessRef{PID: made.PID}, box.Positions{}, func(e box.ProcessEvent) error {
				if e.End != nil && (e.End.Cause != box.Exited || e.End.ExitCode != 0) {
					return fmt.Errorf("a program of the agent's own ended: %+v", *e.End)
				}
				return nil
			})
		})
		if err != nil {
			a, aerr := b.Account(t.Context())
			t.Fatalf("the agent answers no more: %v; account %+v, %v", err, a, aerr)
		}
		p.destroy(t, b)
	})
}

// What the guest's kernel holds for a guest counts as that guest's, and is free
// again when it is gone.
func TestManyFilesAreMemoryOfTheGuests(t *testing.T) {
	p := newPlace(t, box.TierGvisor)
	s := spec()
	s.Limits.Files = 60_000
	b := p.create(t, s)
	g := use(t, b)
	const takes = "python3 -c 'x = bytearray(160 << 20)'"
	run(t, g, takes)
	run(t, g, "mkdir d; cd d; seq 40000 | xargs touch")
	if end, out := ended(t, g, start(t, g, "sh", "-c", takes).PID); end.Cause != box.OutOfMemory {
		t.Errorf("beside 40000 files: %+v, %q", end, out)
	}
	run(t, g, "python3 -c 'x = bytearray(30 << 20)'")
	run(t, g, "rm -r d")
	run(t, g, takes)
	a, err := b.Account(t.Context())
	if err != nil || a.MemoryKills != 1 {
		t.Errorf("account %+v, %v", a, err)
	}
	t.Logf("peak %d MiB", a.MemoryPeak>>20)
	p.destroy(t, b)
	p.empty(t)
}

// The least that a box can have is enough for its agent.
func TestASmallBoxIsABox(t *testing.T) {
	eachTier(t, func(t *testing.T, p *place) {
		s := spec()
		s.Limits.Memory, s.Limits.Disk, s.Limits.Processes = 16<<20, 8<<20, 1
		b := p.create(t, s)
		g := use(t, b)
		for range 3 {
			if end, out := ended(t, g, start(t, g, "echo", "x").PID); end.Cause != box.Exited || out != "x\n" {
				t.Errorf("%+v, %q", end, out)
			}
		}
		if a, err := b.Account(t.Context()); err != nil || a.MemoryKills != 0 {
			t.Errorf("account %+v, %v", a, err)
		}
		p.destroy(t, b)
	})
}

// A program that starts another is two processes with one memory until the other is
// a program of its own (vfork(2)): that is no more memory. It takes a while where
// there is much to do, and here.
func TestAProgramThatStartsAnotherHasItsMemoryOnce(t *testing.T) {
	eachTier(t, func(t *testing.T, p *place) {
		b := p.create(t, spec())
		g := use(t, b)
		script := fmt.Sprintf(`
import os, time
os.mkfifo("/workspace/held")
os.posix_spawn("/bin/sh", ["sh", "-c", "until [ -e /workspace/full ]; do sleep 0.05; done; sleep 1.5; : > /workspace/held"], os.environ)
x = bytearray(%d)
open("/workspace/full", "w").close()
begun = time.monotonic()
os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 9, "/workspace/held", os.O_RDONLY, 0)])
held = time.monotonic() - begun
print("held" if held > 0.5 else held)`, spec().Limits.Memory*6/10)
		end, out := ended(t, g, start(t, g, "python3", "-c", script).PID)
		if end.Cause != box.Exited || out != "held\n" {
			t.Errorf("%+v, %q", end, out)
		}
		if a, err := b.Account(t.Context()); err != nil || a.MemoryKills != 0 || len(a.Limits) > 0 {
			t.Errorf("account %+v, %v", a, err)
		}
		p.destroy(t, b)
	})
}

// counted is a box's account with more kills than there were; the end of a
// program may be told before it is counted.
func counted(t *testing.T, b box.Lasting, kills int64) box.Account {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		a, err := b.Account(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if a.MemoryKills > kills || time.Now().After(deadline) {
			return a
		}
	}
}

// endsWhole is what becomes of a box whose memory only the watchdog bounds.
func endsWhole(t *testing.T, p *place) {
	b := p.create(t, spec())
	if weak := strings.Join(b.Weak(), " "); !strings.Contains(weak, "memory:") {
		t.Errorf("weak is %q", weak)
	}
	start(t, use(t, b), "python3", "-c", "x = bytearray(1 << 30); import time; time.sleep(60)")
	waitEnd(t, b)
	a, err := b.Account(t.Context())
	if err != nil || len(a.Limits) != 1 || a.Limits[0].Limit != "memory" {
		t.Errorf("account %+v, %v", a, err)
	}
	p.destroy(t, b)
}
