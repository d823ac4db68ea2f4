package limits

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/internal/host/cgroup"
)

func TestCPUCountIsTheQuotaRoundedUp(t *testing.T) {
	onGvisor(t, func(t *testing.T, p place) {
		for flag, want := range map[string]string{"0.5": "1\n1\n", "2": "2\n2\n"} {
			e := shell(t, p, `nproc; grep -c ^processor /proc/cpuinfo`, "--cpu", flag)
			e.exited(t) // for an ordinary user: cpu is weak, and said so
			if e.stdout() != want {
				t.Errorf("--cpu %s: the guest sees %q, want %q", flag, e.stdout(), want)
			}
		}
	})
}

func TestCPUQuotaIsSetAndHolds(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		if len(weakFor(t, p)) > 0 {
			t.Skip("no control group for this user: the quota is weak, which the other tests check")
		}
		// So little that it is held back also where it gets next to nothing of the
		// processors, because much else runs.
		l := start(t, p, "--cpu", "0.02", "--", "sh", "-c", `echo up; read x; while :; do :; done`)
		l.up(t)
		id := l.id(t)
		if got := quota(t, id); got != "2000 of 100000" {
			t.Errorf("the quota in the group is %s", got)
		}
		m, err := cgroup.Detect(cgroup.Root, cgroup.MountInfo, cgroup.SelfCgroup)
		if err != nil {
			t.Fatal(err)
		}
		g, err := m.Open(id)
		if err != nil {
			t.Fatal(err)
		}
		throttled := func() int64 {
			s, err := g.Stats()
			if err != nil {
				t.Fatal(err)
			}
			return s.Throttled.N
		}
		before := throttled()
		l.type_(t, "go\n")
		for deadline := time.Now().Add(90 * time.Second); throttled() < before+3; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("a program that spins was held back %d times in 90s", throttled()-before)
			}
		}
		l.signal(t, os.Interrupt)
		l.wait(t, 250)
	})
}

// groupsOf lists a box's group in every hierarchy that has one.
func groupsOf(id string) []string {
	v1, _ := filepath.Glob("/sys/fs/cgroup/*/sunaba/" + id)
	v2, _ := filepath.Glob("/sys/fs/cgroup/sunaba/" + id)
	return append(v1, v2...)
}

// quota reads a box's CPU quota and period, in either version.
func quota(t *testing.T, id string) string {
	t.Helper()
	for _, d := range groupsOf(id) {
		if b, err := os.ReadFile(d + "/cpu.max"); err == nil {
			q, p, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
			return q + " of " + p
		}
		q, err1 := os.ReadFile(d + "/cpu.cfs_quota_us")
		p, err2 := os.ReadFile(d + "/cpu.cfs_period_us")
		if err1 == nil && err2 == nil {
			return strings.TrimSpace(string(q)) + " of " + strings.TrimSpace(string(p))
		}
	}
	t.Fatalf("box %s has no group with a quota", id)
	return ""
}
