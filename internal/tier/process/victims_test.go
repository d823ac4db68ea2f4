package process

import (
	"context"
	"fmt"
	"io"
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
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
				defer cancel()
				if err := g.Kill(ctx); err != nil {
					t.Error(err)
				}
				if err := g.Remove(ctx); err != nil {
					t.Error(err)
				}
			}()
			small := inGroup(t, g, nil, "exec sleep 6000")
			ended := make(chan error, 1)
			go func() { ended <- small.Wait() }()
			if err := os.WriteFile("/proc/"+strconv.Itoa(small.Process.Pid)+"/oom_score_adj", []byte(strconv.FormatInt(c.score, 10)), 0); err != nil {
				t.Fatal(err)
			}
			// Five that hold 50 MiB each, of which three fit: when there is no more, the
			// largest has at least 38 and none has more than 50.
			// Each is waited for until it has its memory, or has been ended.
			out, in, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			inGroup(t, g, in, "for i in 1 2 3 4 5; do dd if=/dev/zero bs=50M count=1 2>/dev/null | { head -c 1 >/dev/null; echo; exec sleep 6000; } & done; wait")
			in.Close()
			if err := out.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(out, make([]byte, 5)); err != nil {
				t.Fatalf("not all of them are there: %v", err)
			}
			if s, err := g.Stats(); err != nil || s.OOMKills.N == 0 {
				t.Fatalf("the kernel ended nothing: %+v, %v", s, err)
			}
			lives, wait := true, 100*time.Millisecond
			if !c.lives {
				wait = 2 * time.Minute
			}
			select {
			case <-ended:
				lives = false
			case <-time.After(wait):
			}
			if lives != c.lives {
				t.Errorf("with a mark of %d the small one lives: %v", c.score, lives)
			}
		})
	}
}

// inGroup starts a script that does nothing before it is in the group.
func inGroup(t *testing.T, g *cgroup.Group, out *os.File, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "read go; "+script)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	if out != nil {
		cmd.Stdout = out
	}
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
