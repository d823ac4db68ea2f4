package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host/cgroup"
)

// The kernel chooses between a small program that is marked and large ones of
// which nobody knows yet. With the mark as it is it takes these; with one of half
// the memory, which it once was, the small one. That is the control.
func TestAMarkedProgramOutlivesALargeOneThatIsNotMarkedYet(t *testing.T) {
	const limit = 192 << 20
	m, err := cgroup.Detect(cgroup.Root, cgroup.MountInfo, cgroup.SelfCgroup)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		score int64
		lives bool
	}{{scoreOf(limit), true}, {500, false}} {
		t.Run(fmt.Sprint(c.score), func(t *testing.T) {
			g, err := m.Create(string(box.NewID()), cgroup.Limits{Memory: limit, Pids: 64, MilliCPU: 2000, KillOne: true})
			if err != nil {
				t.Skipf("no control groups here: %v", err)
			}
			defer func() {
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				defer cancel()
				if err := g.Kill(ctx); err != nil {
					t.Error(err)
				}
				if err := g.Remove(ctx); err != nil {
					t.Error(err)
				}
			}()
			small := inGroup(t, g, "exec sleep 60")
			ended := make(chan error, 1)
			go func() { ended <- small.Wait() }()
			if err := os.WriteFile("/proc/"+strconv.Itoa(small.Process.Pid)+"/oom_score_adj", []byte(strconv.FormatInt(c.score, 10)), 0); err != nil {
				t.Fatal(err)
			}
			// Five that hold 50 MiB each, of which three fit: when there is no more, the
			// largest has at least 38 and none has more than 50.
			large := inGroup(t, g, "for i in 1 2 3 4 5; do dd if=/dev/zero bs=50M count=1 2>/dev/null | sleep 4 & done; wait")
			if err := large.Wait(); err != nil {
				t.Error(err)
			}
			if s, err := g.Stats(); err != nil || s.OOMKills.N == 0 {
				t.Fatalf("the kernel ended nothing: %+v, %v", s, err)
			}
			lives := true
			select {
			case <-ended:
				lives = false
			case <-time.After(100 * time.Millisecond):
			}
			if lives != c.lives {
				t.Errorf("with a mark of %d the small one lives: %v", c.score, lives)
			}
		})
	}
}

// inGroup starts a script that does nothing before it is in the group.
func inGroup(t *testing.T, g *cgroup.Group, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "read go; "+script)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		err = g.Add(cmd.Process.Pid)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, _ = in.Write([]byte("\n"))
	return cmd
}

func TestAMarkIsSomeMegabytesWhateverABoxMayHave(t *testing.T) {
	for limit, want := range map[int64]int64{0: 500, 16 << 20: 1000, 64 << 20: 500, 256 << 20: 125, 1 << 40: 1} {
		if got := scoreOf(limit); got != want {
			t.Errorf("of %d MiB: %d, want %d", limit>>20, got, want)
		}
	}
}
