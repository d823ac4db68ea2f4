package posture

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// The lines that change with one another. What a process inside all namespaces
// tries differs by tier.
var (
	allNamespaces = []string{"mount namespace", "pid namespace", "ipc namespace", "uts namespace", "cgroup namespace", "network namespace"} //house:const a table
	groupLines    = []string{"memory limit", "cpu limit", "pids limit", "process membership", "kill", "counters", "removal"}                //house:const a table
	inside        = map[box.TierName][]string{                                                                                              //house:const a table
		box.TierGvisor: {"fresh /proc", "host folders", "nested user namespace", "process tracing", "system-call filter"},
		box.TierProcess: {"fresh /proc", "host folders", "loopback interface", "bounded watches", "file system in memory", "masked /proc", "devices and terminals",
			"own root", "dropped rights", "session keyring", "Landlock", "system-call filter"},
	}
)

func flips(state box.StepState, names ...string) map[string]box.StepState {
	out := map[string]box.StepState{}
	for _, n := range names {
		out[n] = state
	}
	return out
}

func groups() (out []string) {
	for _, g := range groupLines {
		out = append(out, "control group: "+g)
	}
	return out
}

// taken is one thing that is taken away, and what that means for each tier: one
// that is not named is as on a stage with nothing taken away, and runs.
type taken struct {
	name     string
	stage    stage
	state    string // folder, for cases that need one of their own
	rootOnly bool
	tiers    map[box.TierName]outcome
}

// outcome is what becomes of one tier.
type outcome struct {
	// lines that change from what they are on the same kind of stage with
	// nothing taken away, for root and for an ordinary user.
	root, ordinary map[string]box.StepState
	says           string // in the advice or detail of a line that changes
	// how `sunaba run` ends there: its exit code and a word of its message or
	// hint.
	code     int
	words    string
	runsWeak bool // for an ordinary user it runs, and says what is weak
}

// missing is an outcome in which the same steps, and the whole box, are missing
// for both users.
func missing(says, words string, names ...string) outcome {
	lines := flips(box.Missing, append([]string{"whole box"}, names...)...)
	return outcome{root: lines, ordinary: lines, says: says, code: 242, words: words}
}

// both is for what both tiers need.
func both(o outcome) map[box.TierName]outcome {
	return map[box.TierName]outcome{box.TierGvisor: o, box.TierProcess: o}
}

// only is for what one tier needs.
func only(tier box.TierName, o outcome) map[box.TierName]outcome {
	return map[box.TierName]outcome{tier: o}
}

// rootNeeds adds steps that are missing for root's boxes alone.
func (o outcome) rootNeeds(names ...string) outcome {
	o.root = maps.Clone(o.root)
	maps.Copy(o.root, flips(box.Missing, names...))
	return o
}

func cases(t *testing.T, u harness.User) []taken {
	t.Helper()
	return slices.Concat(namespaceCases(), mountCases(t, u), refusedCases())
}

func namespaceCases() []taken {
	setting := func(file string) stage {
		return stage{User: true, Ops: []op{{Do: "write", From: "0", To: "/proc/sys/user/max_" + file + "_namespaces"}}}
	}
	with := func(says, words string, names ...string) map[box.TierName]outcome {
		out := map[box.TierName]outcome{}
		for tier, more := range inside {
			out[tier] = missing(says, words, slices.Concat(names, more, []string{"all namespaces at once"})...)
		}
		return out
	}
	noUser := with("user.max_user_namespaces", "user namespace", append([]string{"user namespace"}, allNamespaces...)...)
	for tier, o := range noUser {
		if tier == box.TierProcess {
			o = o.rootNeeds("time namespace")
			o.ordinary = maps.Clone(o.ordinary)
			o.ordinary["time namespace"] = box.Missing
		}
		noUser[tier] = o.rootNeeds("mounts with other owners") // made with a user namespace
	}
	out := []taken{
		{name: "user namespaces", stage: setting("user"), tiers: noUser},
		{name: "time namespaces", stage: setting("time"), tiers: only(box.TierProcess, with("user.max_time_namespaces", "time namespace", "time namespace")[box.TierProcess])},
	}
	for _, name := range allNamespaces {
		file, _, _ := strings.Cut(name, " ")
		if short := map[string]string{"mount": "mnt", "network": "net"}[file]; short != "" {
			file = short
		}
		out = append(out, taken{name: name + "s", stage: setting(file), tiers: with("user.max_"+file+"_namespaces", name, name)})
	}
	return out
}

func mountCases(t *testing.T, u harness.User) []taken {
	t.Helper()
	id := map[harness.User]int{harness.Ordinary: harness.OrdinaryID}[u]
	inMemory, noExec := harness.Dir(t, harness.Root), harness.Dir(t, u)
	noProc := map[box.TierName]outcome{
		box.TierGvisor:  missing("systempaths=unconfined", "/proc of the box's PID namespace", "fresh /proc", "nested user namespace"),
		box.TierProcess: missing("systempaths=unconfined", "fresh /proc", "fresh /proc", "masked /proc"),
	}
	noSys := maps.Clone(noProc)
	bare := noSys[box.TierProcess]
	bare.root, bare.ordinary = maps.Clone(bare.root), maps.Clone(bare.ordinary)
	bare.root["bounded watches"], bare.ordinary["bounded watches"] = box.Weak, box.Weak
	noSys[box.TierProcess] = bare
	noGroups := func(says, words string) map[box.TierName]outcome {
		return both(outcome{
			root:     flips(box.Missing, append(groups(), "whole box")...),
			ordinary: flips(box.Weak, groups()...),
			says:     says, code: 242, words: words, runsWeak: true,
		})
	}
	terminal := outcome{root: flips(box.Missing, "terminal"), ordinary: flips(box.Missing, "terminal"), says: "/dev/ptmx"}
	weakDisk := outcome{root: flips(box.Weak, "state folder"), ordinary: flips(box.Weak, "state folder"), says: "in memory (tmpfs)"}
	return []taken{{
		name:  "a covered part of /proc",
		stage: stage{Ops: []op{{Do: "mount", From: "tmpfs", To: "/proc/fs", Data: "ro"}}},
		tiers: noProc,
	}, {
		name:  "writing to /proc/sys",
		stage: stage{Ops: []op{{Do: "readonly", To: "/proc/sys"}}},
		tiers: noSys,
	}, {
		name:  "other users' processes in /proc: not needed",
		stage: stage{Ops: []op{{Do: "mount", From: "proc", To: "/proc", Data: "hidepid=2"}}},
	}, {
		name:  "writing to control groups",
		stage: stage{Ops: readOnlyGroups(t)},
		tiers: noGroups("read-write", "read-only file system"),
	}, {
		name:  "control groups",
		stage: stage{Ops: []op{{Do: "mount", From: "tmpfs", To: "/sys/fs/cgroup"}}},
		tiers: noGroups("mount the control groups", "cannot limit memory"),
	}, {
		name:  "the disk under the state folder",
		stage: stage{Ops: []op{{Do: "mount", From: "tmpfs", To: inMemory, Data: fmt.Sprintf("mode=755,uid=%d,gid=%d", id, id)}}},
		state: inMemory,
		tiers: map[box.TierName]outcome{
			box.TierGvisor: weakDisk,
			// An ordinary user's boxes write to memory that is theirs.
			box.TierProcess: {root: flips(box.Weak, "disk store"), says: map[harness.User]string{harness.Root: "in memory (tmpfs)"}[u]},
		},
	}, {
		name:  "a file system of its own for /usr",
		stage: stage{Ops: []op{{Do: "mount", From: "tmpfs", To: "/usr/src"}}},
		// Root clones /usr alone, an ordinary user only with what is mounted in it.
		tiers: only(box.TierProcess, outcome{
			ordinary: flips(box.Weak, "whole box"), runsWeak: true,
			says: map[harness.User]string{harness.Ordinary: "other file systems are mounted in it"}[u],
		}),
	}, {
		name:  "executing in the state folder",
		stage: stage{Ops: []op{{Do: "noexec", To: noExec}}},
		state: noExec,
		tiers: map[box.TierName]outcome{
			box.TierGvisor: missing("noexec", "noexec", "unlinked store"),
			// Boxes with the host image run what is in /usr, and root mounts images.
			box.TierProcess: {ordinary: flips(box.Missing, "image base"), says: map[harness.User]string{harness.Ordinary: "noexec"}[u]},
		},
	}, {
		name:  "terminals",
		stage: stage{Ops: []op{{Do: "bind", From: "/dev/null", To: "/dev/ptmx"}}},
		tiers: both(terminal),
	}, {
		name:  "most devices",
		stage: stage{Ops: fewDevices(harness.Dir(t, harness.Root))},
		tiers: map[box.TierName]outcome{
			box.TierGvisor: terminal,
			box.TierProcess: { // root's boxes have device files of their own
				root:     flips(box.Missing, "terminal", "disk store", "whole box"),
				ordinary: flips(box.Missing, "terminal", "devices and terminals", "whole box"),
				says:     map[harness.User]string{harness.Root: "/dev/loop-control", harness.Ordinary: "/dev/tty"}[u], code: 242,
				words: map[harness.User]string{harness.Root: "/dev/loop-control", harness.Ordinary: "/dev/tty"}[u],
			},
		},
	}, {
		name:  "loop devices",
		stage: stage{Ops: fewDevices(harness.Dir(t, harness.Root), "tty", "pts")},
		tiers: only(box.TierProcess, outcome{
			root: flips(box.Missing, "disk store", "whole box"),
			says: map[harness.User]string{harness.Root: "modprobe loop"}[u], code: map[harness.User]int{harness.Root: 242}[u], words: "loop devices",
		}),
	}, {
		name:     "root's right to make devices",
		stage:    stage{Ops: []op{{Do: "drop", Number: 27}}}, // CAP_MKNOD
		rootOnly: true,
		tiers:    only(box.TierProcess, outcome{root: flips(box.Weak, "whole box"), says: "locks on them are shared"}),
	}, {
		name:     "root's right to mount",
		stage:    stage{Ops: []op{{Do: "drop", Number: 21}}}, // CAP_SYS_ADMIN
		rootOnly: true,
		tiers: map[box.TierName]outcome{
			box.TierGvisor:  missing("CAP_SYS_ADMIN", "CAP_SYS_ADMIN", "host folders", "mounts with other owners"),
			box.TierProcess: missing("CAP_SYS_ADMIN", "CAP_SYS_ADMIN", "host folders", "image mount", "disk store", "mounts with other owners"),
		},
	}}
}

// refusedCases are system calls that a filter around sunaba refuses, as that of
// a container does.
func refusedCases() []taken {
	// Numbers of asm-generic/unistd.h, which amd64 shares from 424 on.
	const landlockCreate = 444
	seccompCall := map[string]uint32{"amd64": 317, "arm64": 277}[runtime.GOARCH]
	refuse := func(number uint32, errno syscall.Errno) stage {
		return stage{Ops: []op{{Do: "refuse", Number: number, Errno: uint32(errno)}}}
	}
	weak := flips(box.Weak, "Landlock")
	return []taken{{
		name:  "Landlock, as in an old kernel",
		stage: refuse(landlockCreate, syscall.ENOSYS),
		tiers: only(box.TierProcess, outcome{root: weak, ordinary: weak, says: "Landlock is not in this kernel", runsWeak: true}),
	}, {
		name:  "Landlock, by a filter",
		stage: refuse(landlockCreate, syscall.EPERM),
		tiers: only(box.TierProcess, missing("landlock_create_ruleset", "Landlock", "Landlock")),
	}, {
		name:  "keyrings",
		stage: refuse(syscall.SYS_KEYCTL, syscall.ENOSYS),
		tiers: only(box.TierProcess, missing("CONFIG_KEYS", "session keyring", "session keyring")),
	}, {
		name:  "tracing",
		stage: refuse(syscall.SYS_PTRACE, syscall.EPERM),
		tiers: only(box.TierGvisor, missing("ptrace_scope", "process tracing", "process tracing")),
	}, {
		name:  "system-call filters",
		stage: refuse(seccompCall, syscall.EPERM),
		tiers: both(missing("CONFIG_SECCOMP_FILTER", "system-call filter", "system-call filter")),
	}}
}

// fewDevices covers /dev with a folder that has five harmless devices, and more
// as named.
func fewDevices(dir string, more ...string) []op {
	ops := []op{{Do: "mount", From: "tmpfs", To: dir, Data: "mode=755"}}
	for _, name := range append([]string{"null", "zero", "full", "random", "urandom"}, more...) {
		to := filepath.Join(dir, name)
		if name == "pts" {
			ops = append(ops, op{Do: "folder", To: to}, op{Do: "mount", From: "devpts", To: to, Data: "ptmxmode=666"}, op{Do: "link", From: "pts/ptmx", To: filepath.Join(dir, "ptmx")})
			continue
		}
		ops = append(ops, op{Do: "file", To: to}, op{Do: "bind", From: "/dev/" + name, To: to})
	}
	// A recursive bind: the devices are mounts of their own.
	return append(ops, op{Do: "rbind", From: dir, To: "/dev"})
}

// readOnlyGroups makes every hierarchy read-only.
func readOnlyGroups(t *testing.T) (ops []op) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); strings.HasPrefix(f[4], "/sys/fs/cgroup") && strings.Contains(line, " - cgroup") {
			ops = append(ops, op{Do: "remount", To: f[4]})
		}
	}
	return ops
}

func TestDoctorSeesWhatIsTakenAway(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a stage is made of mounts and of a user namespace that holds every id")
	}
	harness.NothingLeft(t)
	for _, u := range harness.Users() {
		// What the doctor says on each kind of stage with nothing taken away.
		whole := map[bool]diagnosis{}
		for _, user := range []bool{false, true} {
			whole[user] = parse(t, on(t, stage{User: user, As: u}, "", "doctor", "-o", "json"))
			for _, tier := range built() {
				h := whole[user].of(t, tier)
				// Root of a user namespace is not one who may mount block devices.
				want := !user || u == harness.Ordinary || tier == box.TierGvisor
				if h.Usable != want {
					t.Fatalf("%s, tier %s, user namespace %v: usable is %v with nothing taken away: %q", u, tier, user, h.Usable, h.Missing)
				}
				if !want {
					taken{stage: stage{User: true, As: u}}.checkRun(t, tier, outcome{code: 242, words: "as an ordinary user"}, nil)
				}
			}
		}
		for _, c := range cases(t, u) {
			if !c.rootOnly || u == harness.Root {
				t.Run(string(u)+"/"+c.name, func(t *testing.T) { c.check(t, u, whole[c.stage.User]) })
			}
		}
	}
}

func (c taken) check(t *testing.T, u harness.User, whole diagnosis) {
	c.stage.As = u
	d := parse(t, on(t, c.stage, c.state, "doctor", "-o", "json"))
	for _, tier := range built() {
		o, concerned := c.tiers[tier]
		before, after := whole.of(t, tier), d.of(t, tier)
		o.checkLines(t, u, before, after)
		if u == harness.Ordinary && (o.runsWeak || o.ordinary == nil) {
			o.code = 0
		}
		if !before.Usable {
			continue // a tier that never runs there says why, one thing at a time
		}
		if concerned || len(c.tiers) == 0 { // else doctor made a whole box, as before
			c.checkRun(t, tier, o, after.Weak)
		}
	}
}

func (o outcome) checkLines(t *testing.T, u harness.User, before, after health) {
	t.Helper()
	change := o.root
	if u == harness.Ordinary {
		change = o.ordinary
	}
	want := before.lines()
	maps.Copy(want, change)
	got := after.lines()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			s := after.step(name)
			t.Errorf("%s: %s: %q (%s), want %q", after.Tier, name, got[name], s.Detail, want[name])
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: line %s is new", after.Tier, name)
		}
	}
	said := o.says == ""
	for name := range change {
		s := after.step(name)
		said = said || strings.Contains(s.Detail+s.Advice, o.says)
	}
	if !said {
		t.Errorf("%s: no changed line names %s", after.Tier, o.says)
	}
}

// checkRun starts a real run on the same stage: it fails and says why and what
// to do, or runs in a box of the same tier and reports as weak what the doctor
// said.
func (c taken) checkRun(t *testing.T, tier box.TierName, o outcome, weak []string) {
	t.Helper()
	r := on(t, c.stage, c.state, runOn(tier, "-o", "json", "--", "true")...)
	rep := r.JSON(t)
	if r.Code != o.code {
		t.Errorf("%s: run ended with %d, want %d: %s", tier, r.Code, o.code, r.Stderr)
	}
	if rep.Tier != tier {
		t.Errorf("%s: run was on tier %q", tier, rep.Tier)
	}
	switch {
	case o.code == 0 && rep.Error != nil:
		t.Errorf("%s: run failed: %s", tier, rep.Error.Message)
	case o.code == 0 && !slices.Equal(rep.Weak, weak):
		t.Errorf("%s: the doctor predicts weak %q, the run reports %q", tier, weak, rep.Weak)
	case o.code != 0 && rep.Error == nil:
		t.Errorf("%s: run gave no error", tier)
	case o.code != 0 && !strings.Contains(rep.Error.Message+rep.Error.Hint, o.words):
		t.Errorf("%s: run said %q (%q), which does not name %q", tier, rep.Error.Message, rep.Error.Hint, o.words)
	case o.code != 0 && rep.Error.Hint == "":
		t.Errorf("%s: run named no way out of %q", tier, rep.Error.Message)
	}
}
