package limits

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// The program of these tests: it says that it is up, has a child in another
// session, and waits.
var waits = []string{"--", "sh", "-c", `setsid sleep 999 & echo up; read x; echo over`}

func TestKilledPartEndsTheBox(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		for _, role := range map[box.TierName][]string{
			box.TierGvisor:  {"sunaba-runner", "runsc-sandbox", "runsc-gofer"},
			box.TierProcess: {"sunaba-cell"},
		}[p.tier] {
			t.Run(role, func(t *testing.T) {
				harness.NothingLeft(t)
				l := start(t, p, waits...)
				l.up(t)
				kill(t, l.find(t, role))
				if out := l.wait(t, 251); out != "" {
					t.Errorf("the program went on: %q", out)
				}
				if !strings.Contains(l.errs.String(), "lost") {
					t.Errorf("stderr does not say that the box is lost: %s", l.errs.String())
				}
			})
		}
		t.Run("sunaba-janitor", func(t *testing.T) {
			harness.NothingLeft(t)
			l := start(t, p, waits...)
			l.up(t)
			kill(t, l.find(t, "sunaba-janitor"))
			l.type_(t, "go\n")
			if out := l.wait(t, 0); out != "over\n" {
				t.Errorf("without its janitor the run said %q", out)
			}
		})
	})
}

func TestKilledFrontTakesTheBoxAlong(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		t.Run("killed", func(t *testing.T) {
			harness.NothingLeft(t)
			l := start(t, p, waits...)
			l.up(t)
			l.signal(t, syscall.SIGKILL)
			l.wait(t, -1)
		})
		t.Run("stopped and killed", func(t *testing.T) {
			harness.NothingLeft(t)
			l := start(t, p, waits...)
			l.up(t)
			l.signal(t, syscall.SIGSTOP)
			l.signal(t, syscall.SIGKILL)
			l.wait(t, -1)
		})
		t.Run("killed with much to write", func(t *testing.T) {
			harness.NothingLeft(t)
			l := start(t, p, "--max-output", "1g", "--", "sh", "-c", "echo up; exec yes")
			l.up(t)
			l.signal(t, syscall.SIGKILL)
			l.wait(t, -1)
		})
		for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
			t.Run(s.String(), func(t *testing.T) {
				harness.NothingLeft(t)
				l := start(t, p, waits...)
				l.up(t)
				l.signal(t, s)
				if out := l.wait(t, 250); out != "" {
					t.Errorf("the program went on: %q", out)
				}
			})
		}
	})
}

// The front may die at any moment of a start. The moments are spread evenly
// over the time that a whole run takes here.
func TestFrontKilledDuringTheStart(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		begun := time.Now()
		l := start(t, p, waits...)
		l.up(t)
		whole := time.Since(begun)
		l.signal(t, os.Interrupt)
		l.wait(t, 250)
		for i := range 20 {
			s := syscall.SIGKILL
			if i%4 == 3 {
				s = syscall.SIGTERM
			}
			l := start(t, p, waits...)
			time.Sleep(whole * time.Duration(i) / 19)
			l.signal(t, s)
			_, _ = l.out.WriteTo(&strings.Builder{})
			_ = l.cmd.Wait()
			got := l.cmd.ProcessState.Sys().(syscall.WaitStatus)
			// Before it handles signals, SIGTERM ends it as it does any program.
			if !got.Signaled() && (s == syscall.SIGKILL || got.ExitStatus() != 250) {
				t.Errorf("%s after %v: ended with %d, stderr %s", s, whole*time.Duration(i)/19, got.ExitStatus(), l.errs.String())
			}
		}
	})
}

func TestParallelBoxesHaveOnlyTheirOwnProcessesInTheirGroups(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		const n = 8
		boxes := make([]*live, n)
		for i := range boxes {
			boxes[i] = start(t, p, "--memory", "64m", "--", "sh", "-c", `echo up; read x; echo over`)
		}
		for _, l := range boxes {
			l.up(t)
		}
		seen := make(map[string]bool)
		for _, l := range boxes {
			id := l.id(t)
			if seen[id] {
				t.Errorf("two boxes are called %s", id)
			}
			seen[id] = true
			if len(weakFor(t, p)) == 0 {
				l.checkGroups(t, id)
			}
		}
		var wg sync.WaitGroup
		for _, l := range boxes {
			wg.Go(func() {
				l.type_(t, "go\n")
				if out := l.wait(t, 0); out != "over\n" {
					t.Errorf("got %q", out)
				}
			})
		}
		wg.Wait()
	})
}

// checkGroups compares the processes in each of a box's groups with those that
// descend from its front, its janitor excepted. The guest kernel has processes come
// and go; what is not so for a minute is not so.
func (l *live) checkGroups(t *testing.T, id string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		wrong := l.wrongGroups(id)
		if len(wrong) == 0 {
			return
		}
		if time.Now().After(deadline) {
			for _, w := range wrong {
				t.Error(w)
			}
			return
		}
	}
}

func (l *live) wrongGroups(id string) (wrong []string) {
	want := []string{}
	for _, p := range l.parts() {
		if p.role != "sunaba-janitor" {
			want = append(want, fmt.Sprint(p.pid))
		}
	}
	slices.Sort(want)
	dirs := groupsOf(id)
	if len(dirs) == 0 {
		wrong = append(wrong, fmt.Sprintf("box %s has no group", id))
	}
	for _, d := range dirs {
		b, err := os.ReadFile(d + "/cgroup.procs")
		if err != nil {
			wrong = append(wrong, err.Error())
			continue
		}
		got := strings.Fields(string(b))
		slices.Sort(got)
		if !slices.Equal(got, want) {
			wrong = append(wrong, fmt.Sprintf("%s holds %v, the box is %v", d, got, want))
		}
	}
	return wrong
}
