package tiertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/posture"
)

// fork starts tasks until it is refused, says how many it got, and keeps them
// until its input ends.
const fork = `exec python3 -c '
import os, signal, sys
n = 0
try:
    while n < 500:
        if os.fork() == 0:
            while True: signal.pause()
        n += 1
except OSError as e:
    print(n, e.errno, flush=True)
sys.stdin.readline()
os.kill(0, signal.SIGKILL)'`

func begin(t *testing.T, g box.Guest, script string) box.Process {
	t.Helper()
	p, err := g.Start(t.Context(), box.ProcessSpec{Command: box.Command{Argv: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// said waits for the first line of a program's output.
func said(t *testing.T, g box.Guest, pid int) (line string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_ = g.Follow(ctx, box.ProcessRef{PID: pid}, box.Positions{}, func(e box.ProcessEvent) error {
		if line += string(e.Data); strings.Contains(line, "\n") || e.End != nil {
			cancel()
		}
		return nil
	})
	return line
}

// The limit is the programs': the agent has its threads beside it, and can still
// be reached by a front to come when a box is full.
func TestAFullBoxCanBeTakenUpAndUsed(t *testing.T) {
	eachTier(t, func(t *testing.T, p *place) {
		s := spec()
		s.Limits.Processes = 40
		b := p.create(t, s)
		g := use(t, b)
		bomb := begin(t, g, fork)
		var tasks, errno int
		line := said(t, g, bomb.PID)
		_, err := fmt.Sscan(line, &tasks, &errno)
		// Itself is one. The guest's kernel counts programs apart from the agent; the
		// host's counts tasks, and what the agent does not use of its own is theirs.
		if most := map[box.TierName]int{box.TierGvisor: 39, box.TierProcess: 39 + 12}[p.Name()]; err != nil || tasks < 39 || tasks > most || errno != 11 {
			t.Errorf("a program that forks said %q", line)
		}
		newer := p.recover(t, b.ID(), b.State())
		b.Detach()
		g = use(t, newer)
		all, err := g.Processes(t.Context())
		if err != nil || len(all) != 1 || all[0].PID != bomb.PID {
			t.Errorf("processes %v, %v", all, err)
		}
		if _, err := g.Start(t.Context(), box.ProcessSpec{Command: box.Command{Argv: []string{"/bin/true"}}}); err == nil {
			t.Error("one more program was started in a full box")
		}
		hit := func(l box.LimitHit) bool { return l.Limit == "max_processes" }
		if err := comes(func() error { // a guest's kernel tells its runner
			a, err := newer.Account(t.Context())
			if err == nil && !slices.ContainsFunc(a.Limits, hit) {
				err = fmt.Errorf("account %+v", a)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
		if _, err := g.Input(t.Context(), box.ProcessRef{PID: bomb.PID}, box.Input{Data: []byte("\n")}); err != nil {
			t.Fatal(err)
		}
		ended(t, g, bomb.PID)
		run(t, g, "true")
		p.destroy(t, newer)
	})
}

func TestAFullDiskIsToldToTheFrontsToCome(t *testing.T) {
	eachTier(t, func(t *testing.T, p *place) {
		b := p.create(t, spec())
		g := use(t, b)
		run(t, g, "head -c 100000000 /dev/zero > /workspace/f 2>/dev/null; :")
		if err := comes(func() error { // some look at it now and then
			a, err := b.Account(t.Context())
			if err == nil && len(a.Limits) == 0 {
				err = errors.New("nobody sees that the disk is full")
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		run(t, g, "rm /workspace/f")
		newer := p.recover(t, b.ID(), b.State())
		b.Detach()
		a, err := newer.Account(t.Context())
		if err != nil || len(a.Limits) != 1 || a.Limits[0].Limit != "disk" {
			t.Errorf("account %+v, %v", a, err)
		}
		run(t, use(t, newer), "head -c 1000000 /dev/zero > /workspace/f")
		if err := comes(func() error { // a guest's kernel gives the room of a removed file back by and by
			a, err := newer.Account(t.Context())
			if err == nil && (a.Written < 1000000 || a.Written > 4000000) {
				err = fmt.Errorf("account %+v", a)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
		p.destroy(t, newer)
	})
}

// What a program writes to a folder of the host belongs to that folder's owner.
func TestHostFoldersAreUsedAsTheirOwner(t *testing.T) {
	eachTier(t, func(t *testing.T, p *place) {
		dir, err := os.MkdirTemp("/var/tmp", "sunaba-tiertest-mount-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		s := spec()
		s.Mounts = []box.Mount{{Source: dir, Target: "/mnt/x"}}
		b := p.create(t, s)
		if out := run(t, use(t, b), "id -u > /mnt/x/f; cat /mnt/x/f"); out != "1000\n" {
			t.Errorf("a program said %q", out)
		}
		st, err := os.Stat(filepath.Join(dir, "f"))
		if err != nil {
			t.Fatal(err)
		}
		if sys, ok := st.Sys().(*syscall.Stat_t); !ok || int(sys.Uid) != os.Geteuid() {
			t.Errorf("the file is %+v", st.Sys())
		}
		p.destroy(t, b)
	})
}

// Nothing depends on the goodwill of the box's first process.
func TestAStuckBoxCanBeDestroyed(t *testing.T) {
	eachTier(t, func(t *testing.T, p *place) {
		b := p.create(t, spec())
		stop(t, firstOf(t, b.State()).PID)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if p.Name() == box.TierGvisor {
			c, err := b.Agent(t.Context()) // that of the start
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
		}
		if _, err := b.Agent(ctx); box.KindOf(err) != box.Unavailable {
			t.Errorf("a stuck box answers: %v", err)
		}
		p.destroy(t, b)
	})
}

// starve leaves the box's other processes no time: SCHED_IDLE of sched(7).
const starve = `exec python3 -c '
import os, time
for pid in [int(p) for p in os.listdir("/proc") if p.isdigit() and int(p) != os.getpid()]:
    for tid in os.listdir("/proc/%d/task" % pid):
        os.sched_setscheduler(int(tid), os.SCHED_IDLE, os.sched_param(0))
        os.sched_setaffinity(int(tid), {min(os.sched_getaffinity(0))})
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
for _ in range(40):
    if os.fork() == 0:
        while True: pass
print("starved", flush=True)
time.sleep(1000)'`

// A box's first process has the programs' user, who can take its time away.
func TestAStarvedBoxCanBeDestroyed(t *testing.T) {
	p := newPlace(t, box.TierProcess)
	s := spec()
	s.Limits.MilliCPU = 200
	b := p.create(t, s)
	g := use(t, b)
	begin(t, g, starve)
	first := firstOf(t, b.State()).PID
	if err := comes(func() error { // seen from outside: the agent, which would tell, has no time either
		all, err := posture.Tree(first)
		if err != nil {
			return err
		}
		if n := len(all); n < 42 || !givesWay(first) {
			return fmt.Errorf("%d processes; the first one gives way: %v", n, givesWay(first))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	p.destroy(t, b)
	if took := time.Since(begun); took > time.Minute {
		t.Errorf("it took %v", took)
	}
	p.empty(t)
}

// givesWay reports whether a process runs when nobody else wants to: field 41 of
// proc_pid_stat(5), SCHED_IDLE.
func givesWay(pid int) bool {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	return len(f) > 38 && f[38] == "5"
}

// stop stops a process and returns when all its threads stand.
func stop(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := comes(func() error {
		all, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil || len(all) == 0 {
			t.Fatalf("process %d has no threads (%v)", pid, err)
		}
		if slices.ContainsFunc(all, func(f string) bool {
			b, err := os.ReadFile(f)
			return err == nil && !strings.Contains(string(b), ") T ")
		}) {
			return fmt.Errorf("process %d does not stop", pid)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// flight puts as many descriptors on the way as the kernel takes, and stays.
const flight = `exec python3 -c '
import array, os, socket, sys
fds, kept, n = array.array("i", [os.open("/dev/null", 0) for _ in range(200)]), [], 0
try:
    while n < 4000:
        kept.append(socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
        for _ in range(5):
            kept[-1][0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
            n += len(fds)
except OSError as e:
    print(n, e.errno, flush=True)
sys.stdin.read()'`

// The kernel lets nobody pass a descriptor while a user has more than his limit of
// open files on the way: ETOOMANYREFS of unix(7). An ordinary user's boxes are one
// user.
func TestWhatOneBoxHasOnTheWayKeepsNobodyFromAnother(t *testing.T) {
	p := newPlace(t, box.TierProcess)
	bad, good := p.create(t, spec()), p.create(t, spec())
	g := use(t, bad)
	b := begin(t, g, flight)
	var n, errno int
	if line := said(t, g, b.PID); !strings.HasSuffix(strings.TrimSpace(line), "109") {
		t.Fatalf("the flood said %q", line)
	} else if _, err := fmt.Sscan(line, &n, &errno); err != nil || n <= 256 {
		t.Fatalf("%d descriptors are on the way (%v)", n, err)
	}
	run(t, use(t, good), "true")
	p.destroy(t, bad)
	p.destroy(t, good)
	p.empty(t)
}
