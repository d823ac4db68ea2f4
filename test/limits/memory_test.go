package limits

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// memorySource is whose account ends a box that takes too much.
func memorySource(t *testing.T, p place) string {
	if len(weakFor(t, p)) > 0 {
		return "watchdog"
	}
	return "host cgroup v"
}

func TestMemory(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		t.Run("over the limit", func(t *testing.T) {
			// Who counts by looking has to come by: it does not go at once.
			e := python(t, p, "x = bytearray(400 << 20)\nimport time\ntime.sleep(200)", "--memory", "64m", "--timeout", "120")
			e.check(t, box.OutOfMemory, 246, ended("memory", memorySource(t, p)))
		})
		t.Run("over the limit in a child", func(t *testing.T) {
			e := python(t, p, `
import subprocess, sys, time
subprocess.run([sys.executable, "-c", "x = []\nwhile True: x.append(bytearray(1 << 20))"])
time.sleep(200)`, "--memory", "64m", "--timeout", "120")
			e.check(t, box.OutOfMemory, 246, ended("memory", memorySource(t, p)))
		})
		if p.tier == box.TierGvisor {
			t.Run("over the limit in the guest kernel itself", func(t *testing.T) {
				e := python(t, p, `
import os
for n in range(10000):
    with open(f"f{n}", "w"): pass
    for k in range(32): os.setxattr(f"f{n}", f"user.{k}", bytes(60000))`, "--memory", "64m")
				e.check(t, box.OutOfMemory, 246, ended("memory", memorySource(t, p)))
			})
		}
		if p.tier == box.TierProcess && p.user == harness.Root {
			t.Run("over the limit in the kernel, on the program's behalf", func(t *testing.T) {
				e := python(t, p, `
import os, socket, time
for _ in range(12):
    if os.fork() == 0:
        pairs = []
        for _ in range(100):
            a, b = socket.socketpair()
            a.setblocking(False)
            pairs.append((a, b))
            try:
                while True: a.send(bytes(4096))
            except BlockingIOError:
                pass
        time.sleep(200)
time.sleep(200)`, "--memory", "64m", "--timeout", "120")
				e.check(t, box.OutOfMemory, 246, ended("memory", memorySource(t, p)))
			})
		}
		t.Run("within the limit", func(t *testing.T) {
			python(t, p, `x = bytearray(40 << 20)`, "--memory", "64m").exited(t)
			e := python(t, p, `x = bytearray(700 << 20); print(len(x) >> 20)`, "--memory", "2g")
			e.exited(t)
			if e.Policy.Limits.MemoryBytes != 2<<30 {
				t.Errorf("policy says %d bytes", e.Policy.Limits.MemoryBytes)
			}
		})
		if p.tier == box.TierGvisor {
			t.Run("is what the guest sees", func(t *testing.T) {
				for flag, mib := range map[string]int{"64m": 64, "2g": 2048} {
					e := shell(t, p, `free -m | awk '/^Mem:/ {print $2}'; awk '/MemTotal/ {print $2/1024}' /proc/meminfo`, "--memory", flag)
					e.exited(t)
					if want := fmt.Sprintf("%d\n%d\n", mib, mib); e.stdout() != want {
						t.Errorf("--memory %s: the guest sees %q", flag, e.stdout())
					}
				}
			})
		}
		t.Run("is not guessed from an exit code", func(t *testing.T) {
			shell(t, p, `exit 137`).check(t, box.Exited, 137)
			e := shell(t, p, `kill -9 $$`)
			e.check(t, box.Signaled, 137)
			if e.Signal == nil || *e.Signal != 9 {
				t.Errorf("signal is %v, want 9", e.Signal)
			}
		})
	})
}

// The host's limit is the guest's and what the runtime may need, in the live
// group, as the kernel tells it.
func TestMemoryOfTheGroupIsTheGuestsAndTheOverhead(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		if len(weakFor(t, p)) > 0 {
			t.Skip("no control group for this user: memory is weak, which the other tests check")
		}
		l := start(t, p, "--memory", "100m", "--", "sh", "-c", "echo up; read x")
		l.up(t)
		limit := int64(-1)
		for _, d := range groupsOf(l.id(t)) {
			for _, name := range []string{"/memory.max", "/memory.limit_in_bytes"} {
				if b, err := os.ReadFile(d + name); err == nil {
					limit, _ = strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
				}
			}
		}
		if limit < 100<<20 || limit > (100+96)<<20 {
			t.Errorf("the group may use %d bytes for a guest of %d", limit, 100<<20)
		}
		l.type_(t, "\n")
		l.wait(t, 0)
	})
}
