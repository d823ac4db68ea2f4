// Package limits holds every limit of a box to what is promised: who enforces
// it, how the end of a run is told, what is weak on this host, and the near
// misses, in which nothing may be told. It runs the real program, as root and
// as an ordinary user, and looks for anything left behind after each test.
package limits

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host/cgroup"
	"github.com/sunaba-dev/sunaba/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// each runs fn for every user on every tier that is about host processes, and
// looks for leftovers after each.
func each(t *testing.T, fn func(t *testing.T, p place)) {
	on(t, []box.TierName{box.TierGvisor, box.TierProcess}, fn)
}

// onGvisor is each for what only a guest kernel has.
func onGvisor(t *testing.T, fn func(t *testing.T, p place)) {
	on(t, []box.TierName{box.TierGvisor}, fn)
}

// onProcess is each for what only a host process has.
func onProcess(t *testing.T, fn func(t *testing.T, p place)) {
	on(t, []box.TierName{box.TierProcess}, fn)
}

func on(t *testing.T, tiers []box.TierName, fn func(t *testing.T, p place)) {
	for _, tier := range tiers {
		t.Run(string(tier), func(t *testing.T) {
			harness.EachUser(t, func(t *testing.T, u harness.User) {
				harness.NothingLeft(t)
				fn(t, place{tier, u})
			})
		})
	}
}

// side runs a subtest beside others. It is for programs that mostly sleep.
func side(t *testing.T, name string, fn func(t *testing.T)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		fn(t)
	})
}

// end is how one run ended.
type end struct {
	box.Report
	place
	kill bool // on_limit: kill was asked for
	code int  // of the process
	took time.Duration
}

// run runs `sunaba run -o json` with more arguments.
func run(t *testing.T, p place, args ...string) end {
	t.Helper()
	return p.ended(t, harness.Run(t, p.user, p.run(append([]string{"-o", "json"}, args...)...)...), args)
}

func (p place) ended(t *testing.T, r harness.Result, args []string) end {
	t.Helper()
	return end{r.JSON(t), p, slices.Contains(args, "kill"), r.Code, r.Took}
}

// python and shell run code; flags come first.
func python(t *testing.T, p place, code string, flags ...string) end {
	t.Helper()
	return run(t, p, append(flags, "--lang", "python", "-e", code)...)
}

func shell(t *testing.T, p place, code string, flags ...string) end {
	t.Helper()
	return run(t, p, append(flags, "--", "sh", "-c", code)...)
}

// ended is a limit that ended the run. The source may be given by its first
// words. See place for those that a tier enforces in its own way.
func ended(limit, source string) box.LimitHit {
	return box.LimitHit{Limit: limit, Source: source, Ended: true}
}

// check compares everything that tells of limits: the cause, the code of the
// process, each limit that was touched and by whose account, and what is weak.
func (e end) check(t *testing.T, cause box.Cause, code int, hits ...box.LimitHit) {
	t.Helper()
	if e.Error != nil {
		t.Errorf("failed: %s: %s", e.Error.Kind, e.Error.Message)
	}
	if e.Cause != cause || e.code != code {
		t.Errorf("ended by %s with code %d, want %s with %d; stdout %.300q, stderr %.300q", e.Cause, e.code, cause, code, e.StdoutClean, e.StderrClean)
	}
	if (e.ExitCode != nil) != (cause == box.Exited) || (e.Signal != nil) != (cause == box.Signaled) {
		t.Errorf("exit_code is %v and signal %v with cause %s", e.ExitCode, e.Signal, cause)
	}
	byName := func(a, b box.LimitHit) int { return cmp.Compare(a.Limit, b.Limit) }
	got := slices.SortedFunc(slices.Values(e.LimitsHit), byName)
	slices.SortFunc(hits, byName)
	if !slices.EqualFunc(got, hits, func(a, b box.LimitHit) bool {
		return a.Limit == b.Limit && a.Ended == b.Ended && strings.HasPrefix(a.Source, b.Source)
	}) {
		t.Errorf("limits_hit is %+v, want %+v", got, hits)
	}
	want := weakFor(t, e.place)
	if e.kill && e.tier == box.TierProcess {
		want = append(want, "on_limit")
		slices.Sort(want)
	}
	if got := e.weak(); !slices.Equal(got, want) {
		t.Errorf("weak is %q, want lines about %q", e.Weak, want)
	}
}

// exited is check for a program that returned zero.
func (e end) exited(t *testing.T, hits ...box.LimitHit) {
	t.Helper()
	e.check(t, box.Exited, 0, hits...)
}

// weak is the first word of each weak line.
func (e end) weak() []string {
	var words []string
	for _, w := range e.Weak {
		word, _, _ := strings.Cut(w, ":")
		words = append(words, word)
	}
	slices.Sort(words)
	return words
}

// weakFor is what this host cannot enforce for p: nothing, where control groups
// can be made. The test process itself finds out whether they can, unless it
// is root and acts as somebody else, to whom no group was given.
func weakFor(t *testing.T, p place) []string {
	t.Helper()
	if p.user == harness.Ordinary {
		if os.Geteuid() == 0 || !groupsUsable(t) {
			return []string{"cpu", "memory"}
		}
	}
	return nil
}

func groupsUsable(t *testing.T) bool {
	m, err := cgroup.Detect(cgroup.Root, cgroup.MountInfo, cgroup.SelfCgroup)
	if err != nil {
		t.Fatal(err)
	}
	g, err := m.Create(string(box.NewID()), cgroup.Limits{Memory: 1 << 30, MilliCPU: 1000, Pids: 100})
	if err != nil {
		return false
	}
	if err := g.Remove(t.Context()); err != nil {
		t.Error(err)
	}
	return true
}

// stdout is what the program wrote.
func (e end) stdout() string {
	if e.Stdout == nil {
		return ""
	}
	return *e.Stdout
}
