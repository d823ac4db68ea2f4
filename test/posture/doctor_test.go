package posture

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// diagnosis is the part of the doctor's document that the tests read.
type diagnosis struct {
	Usable bool
	User   string
	Tiers  []struct {
		Tier          box.TierName
		InBuild       bool `json:"in_build"`
		Usable        bool
		Weak, Missing []string
		Steps         []box.Step
	}
}

// lines maps each step of tier gvisor to its state.
func (d diagnosis) lines() map[string]box.StepState {
	out := map[string]box.StepState{}
	for _, s := range d.Tiers[d.gvisor()].Steps {
		out[s.Name] = s.State
	}
	return out
}

func (d diagnosis) gvisor() int {
	for i, t := range d.Tiers {
		if t.Tier == box.TierGvisor {
			return i
		}
	}
	return -1
}

func (d diagnosis) step(name string) box.Step {
	for _, s := range d.Tiers[d.gvisor()].Steps {
		if s.Name == name {
			return s
		}
	}
	return box.Step{}
}

func parse(t *testing.T, r harness.Result) diagnosis {
	t.Helper()
	var d diagnosis
	if err := json.Unmarshal([]byte(r.Stdout), &d); err != nil || d.gvisor() < 0 {
		t.Fatalf("cannot parse diagnosis: %v\nstdout: %s\nstderr: %s", err, r.Stdout, r.Stderr)
	}
	if want := map[bool]int{true: 0, false: 242}[d.Usable]; r.Code != want {
		t.Errorf("exit code %d, want %d for usable = %v", r.Code, want, d.Usable)
	}
	return d
}

// The lines that change with one another.
var (
	allNamespaces = []string{"mount namespace", "pid namespace", "ipc namespace", "uts namespace", "cgroup namespace", "network namespace"} //house:const a table
	inside        = []string{"fresh /proc", "host folders", "nested user namespace", "process tracing", "system-call filter"}               //house:const a table
	groupLines    = []string{"memory limit", "cpu limit", "pids limit", "process membership", "kill", "counters", "removal"}                //house:const a table
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

func TestDoctorOnThisHost(t *testing.T) {
	harness.NothingLeft(t)
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		harness.Run(t, u, "doctor") // makes the host image, if this is the first
		r := harness.Run(t, u, "doctor", "-o", "json")
		d := parse(t, r)
		g := d.Tiers[d.gvisor()]
		if !g.Usable || len(g.Missing) > 0 {
			t.Fatalf("not usable: %v", g.Missing)
		}
		for name, state := range d.lines() {
			weakHere := u == harness.Ordinary && strings.HasPrefix(name, "control group: ") && state == box.Weak
			if state != box.Works && !weakHere {
				t.Errorf("%s: %s: %s", name, state, d.step(name).Detail)
			}
		}
		if r.Took > 3*time.Second {
			t.Logf("took %v: slow, or a busy machine", r.Took)
		}
		rep := harness.Report(t, u, "--", "true")
		if !slices.Equal(rep.Weak, g.Weak) {
			t.Errorf("the doctor predicts weak %q, a box reports %q", g.Weak, rep.Weak)
		}
		if u == harness.Root && len(g.Weak) > 0 {
			t.Errorf("root's boxes are weak here: %q", g.Weak)
		}
		if strict := harness.Run(t, u, "run", "--strict", "--", "true"); strict.Code != map[bool]int{true: 241, false: 0}[len(g.Weak) > 0] {
			t.Errorf("strict ended with %d where weak is %q: %s", strict.Code, g.Weak, strict.Stderr)
		}
		for _, other := range d.Tiers {
			if built := other.Tier == box.TierGvisor || other.Tier == box.TierProcess; other.InBuild != built {
				t.Errorf("tier %s: in this build: %v", other.Tier, other.InBuild)
			}
		}
		if text := harness.Run(t, u, "doctor"); text.Code != 0 || !strings.Contains(text.Stdout, "gvisor: usable") || !strings.Contains(text.Stdout, "process: usable") || !strings.Contains(text.Stdout, "not in this build: container, ") {
			t.Errorf("as text, code %d:\n%s", text.Code, text.Stdout)
		}
	})
}

// taken is one thing that is taken away.
type taken struct {
	name  string
	stage stage
	state string // folder, for cases that need one of their own
	// lines that change from what they are on the same kind of stage with
	// nothing taken away, for root and for an ordinary user.
	root, ordinary map[string]box.StepState
	says           string // in the advice or detail of the first line that changes
	// how `sunaba run` ends there: its exit code and a word of its message.
	code     int
	words    string
	runsWeak bool // for an ordinary user it runs, and says what is weak
}

func cases(t *testing.T, u harness.User) []taken {
	t.Helper()
	id := map[harness.User]int{harness.Ordinary: harness.OrdinaryID}[u]
	noUser := flips(box.Missing, slices.Concat([]string{"user namespace", "all namespaces at once", "whole box"}, allNamespaces, inside)...)
	inMemory := harness.Dir(t, harness.Root)
	out := []taken{{
		name:     "user namespaces",
		stage:    stage{User: true, Ops: []op{{Do: "write", From: "0", To: "/proc/sys/user/max_user_namespaces"}}},
		root:     noUser,
		ordinary: noUser,
		says:     "user.max_user_namespaces", code: 242, words: "user namespace",
	}, {
		name:     "a covered part of /proc",
		stage:    stage{Ops: []op{{Do: "mount", From: "tmpfs", To: "/proc/fs", Data: "ro"}}},
		root:     flips(box.Missing, "fresh /proc", "nested user namespace", "whole box"),
		ordinary: flips(box.Missing, "fresh /proc", "nested user namespace", "whole box"),
		says:     "systempaths=unconfined", code: 242, words: "/proc of the box's PID namespace",
	}, {
		name:     "writing to /proc/sys",
		stage:    stage{Ops: []op{{Do: "readonly", To: "/proc/sys"}}},
		root:     flips(box.Missing, "fresh /proc", "nested user namespace", "whole box"),
		ordinary: flips(box.Missing, "fresh /proc", "nested user namespace", "whole box"),
		says:     "systempaths=unconfined", code: 242, words: "/proc of the box's PID namespace",
	}, {
		name:  "other users' processes in /proc: not needed",
		stage: stage{Ops: []op{{Do: "mount", From: "proc", To: "/proc", Data: "hidepid=2"}}},
	}, {
		name:     "writing to control groups",
		stage:    stage{Ops: readOnlyGroups(t)},
		root:     flips(box.Missing, append(groups(), "whole box")...),
		ordinary: flips(box.Weak, groups()...),
		says:     "read-write", code: 242, words: "read-only file system", runsWeak: true,
	}, {
		name:     "control groups",
		stage:    stage{Ops: []op{{Do: "mount", From: "tmpfs", To: "/sys/fs/cgroup"}}},
		root:     flips(box.Missing, append(groups(), "whole box")...),
		ordinary: flips(box.Weak, groups()...),
		says:     "mount the control groups", code: 242, words: "cannot limit memory", runsWeak: true,
	}, {
		name:  "the disk under the state folder",
		stage: stage{Ops: []op{{Do: "mount", From: "tmpfs", To: inMemory, Data: fmt.Sprintf("mode=755,uid=%d,gid=%d", id, id)}}},
		state: inMemory,
		root:  flips(box.Weak, "state folder"), ordinary: flips(box.Weak, "state folder"),
		says: "in memory (tmpfs)",
	}, {
		name:  "terminals",
		stage: stage{Ops: fewDevices(harness.Dir(t, harness.Root))},
		root:  flips(box.Missing, "terminal"), ordinary: flips(box.Missing, "terminal"),
		says: "/dev/ptmx",
	}}
	for _, name := range allNamespaces {
		line, _, _ := strings.Cut(name, " ")
		file := map[string]string{"mount": "mnt", "network": "net"}[line]
		if file == "" {
			file = line
		}
		missing := flips(box.Missing, slices.Concat([]string{line + " namespace", "all namespaces at once", "whole box"}, inside)...)
		out = append(out, taken{
			name:  line + " namespaces",
			stage: stage{User: true, Ops: []op{{Do: "write", From: "0", To: "/proc/sys/user/max_" + file + "_namespaces"}}},
			root:  missing, ordinary: missing,
			says: "user.max_" + file + "_namespaces", code: 242, words: line + " namespace",
		})
	}
	return out
}

// fewDevices covers /dev with a folder that has no terminals.
func fewDevices(dir string) []op {
	ops := []op{{Do: "mount", From: "tmpfs", To: dir, Data: "mode=755"}}
	for _, name := range []string{"null", "zero", "full", "random", "urandom"} {
		to := filepath.Join(dir, name)
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
		whole := map[bool]map[string]box.StepState{}
		for _, user := range []bool{false, true} {
			whole[user] = parse(t, on(t, stage{User: user, As: u}, "", "doctor", "-o", "json")).lines()
			if whole[user]["whole box"] != box.Works {
				t.Fatalf("%s: no box on a stage with nothing taken away", u)
			}
		}
		for _, c := range cases(t, u) {
			t.Run(string(u)+"/"+c.name, func(t *testing.T) { c.check(t, u, whole[c.stage.User]) })
		}
	}
}

func (c taken) check(t *testing.T, u harness.User, whole map[string]box.StepState) {
	c.stage.As = u
	want := maps.Clone(whole)
	change := c.root
	if u == harness.Ordinary {
		change = c.ordinary
	}
	if _, ok := whole["mounts with other owners"]; ok && change["user namespace"] == box.Missing {
		want["mounts with other owners"] = box.Missing // made with a user namespace
	}
	maps.Copy(want, change)
	d := parse(t, on(t, c.stage, c.state, "doctor", "-o", "json"))
	got := d.lines()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			s := d.step(name)
			t.Errorf("%s: %q (%s), want %q", name, got[name], s.Detail, want[name])
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("line %s is new", name)
		}
	}
	if c.says != "" {
		var said bool
		for _, s := range d.Tiers[d.gvisor()].Steps {
			_, changed := change[s.Name]
			said = said || changed && strings.Contains(s.Detail+s.Advice, c.says)
		}
		if !said {
			t.Errorf("no changed line names %s", c.says)
		}
	}
	if c.runsWeak && u == harness.Ordinary {
		c.code = 0
	}
	c.checkRun(t, d.Tiers[d.gvisor()].Weak)
}

// checkRun starts a real run on the same stage: it fails and says why, or runs
// in a box of the same tier and reports as weak what the doctor said.
func (c taken) checkRun(t *testing.T, weak []string) {
	r := on(t, c.stage, c.state, "run", "-o", "json", "--", "true")
	rep := r.JSON(t)
	if r.Code != c.code {
		t.Errorf("run ended with %d, want %d: %s", r.Code, c.code, r.Stderr)
	}
	if rep.Tier != box.TierGvisor {
		t.Errorf("run was on tier %q", rep.Tier)
	}
	switch {
	case c.code == 0 && rep.Error != nil:
		t.Errorf("run failed: %s", rep.Error.Message)
	case c.code == 0 && !slices.Equal(rep.Weak, weak):
		t.Errorf("the doctor predicts weak %q, the run reports %q", weak, rep.Weak)
	case c.code != 0 && rep.Error == nil:
		t.Error("run gave no error")
	case c.code != 0 && !strings.Contains(rep.Error.Message, c.words):
		t.Errorf("run said %q, which does not name %q", rep.Error.Message, c.words)
	}
}

func TestDoctorNamesAStateFolderThatCannotBeUsed(t *testing.T) {
	open := harness.Dir(t, harness.Ordinary)
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ dir, says string }{
		{open, "others may write to it"},
		{"/proc/nothing", "no such file"},
		{"/etc/passwd", "not a folder"},
	} {
		d := parse(t, harness.Run(t, harness.Ordinary, "doctor", "-o", "json", "--state", c.dir))
		if s := d.step("state folder"); d.Usable || s.State != box.Missing || !strings.Contains(s.Detail, c.says) {
			t.Errorf("%s: usable %v, %+v", c.dir, d.Usable, s)
		}
		if s := d.step("system-call filter"); s.State != box.Works {
			t.Errorf("%s: what needs no state folder was not tried: %+v", c.dir, s)
		}
		r := harness.Run(t, harness.Ordinary, "run", "--state", c.dir, "--", "true")
		if r.Code != 240 || !strings.Contains(r.Stderr, c.says) {
			t.Errorf("%s: run: code %d, want 240 and %q: %s", c.dir, r.Code, c.says, r.Stderr)
		}
	}
}

func TestInteractiveRunWithoutTerminalsSaysSo(t *testing.T) {
	r := on(t, stage{Ops: fewDevices(harness.Dir(t, harness.Root)), As: harness.Root}, "", "run", "-t", "--", "true")
	if r.Code < 240 || !strings.Contains(r.Stderr, "/dev/ptmx") {
		t.Errorf("code %d: %s", r.Code, r.Stderr)
	}
}

func TestProgramThatABoxMayNotExecuteIsNamed(t *testing.T) {
	dir := harness.Dir(t, harness.Root)
	file := filepath.Join(dir, "sunaba")
	data, err := os.ReadFile(harness.Binary(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o700); err != nil {
		t.Fatal(err)
	}
	s := stage{As: harness.Root, Args: []string{file}}
	d := parse(t, on(t, s, "", "doctor", "-o", "json"))
	if st := d.step("own program"); st.State != box.Missing || !strings.Contains(st.Advice, "chmod") {
		t.Errorf("own program: %+v", st)
	}
	if r := on(t, s, "", "run", "--", "true"); r.Code != 242 || !strings.Contains(r.Stderr, "own program") {
		t.Errorf("run: code %d: %s", r.Code, r.Stderr)
	}
}

// gVisor panics over it before any main function.
func TestProcWithoutItsSystemPartIsNamed(t *testing.T) {
	s := stage{As: harness.Root, Ops: []op{{Do: "mount", From: "proc", To: "/proc", Data: "subset=pid"}}}
	for _, args := range [][]string{{"doctor"}, {"run", "--", "true"}} {
		r := on(t, s, "", args...)
		if r.Code != 242 || !strings.Contains(r.Stderr, "subset=pid") || strings.Contains(r.Stderr, "goroutine") {
			t.Errorf("%v: code %d: %s", args, r.Code, r.Stderr)
		}
	}
}

// The other direction: an ordinary user who was given groups is not weak.
func TestOrdinaryUserWithDelegatedGroupsIsNotWeak(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: somebody must give the groups")
	}
	var ops []op
	for _, controller := range []string{"memory", "cpu", "cpuacct", "pids", "freezer"} {
		mount := "/sys/fs/cgroup/" + controller
		if _, err := os.Stat(mount + "/cgroup.procs"); err != nil {
			t.Skip("needs control groups of version 1 at " + mount + ": in version 2 a service manager delegates")
		}
		dir := fmt.Sprintf("%s/sunaba-posture-test-%d", mount, os.Getpid())
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		})
		if err := os.Lchown(dir, harness.OrdinaryID, harness.OrdinaryID); err != nil {
			t.Fatal(err)
		}
		ops = append(ops, op{Do: "bind", From: dir, To: mount})
	}
	s := stage{As: harness.Ordinary, Ops: ops}
	d := parse(t, on(t, s, "", "doctor", "-o", "json"))
	for name, state := range d.lines() {
		if state != box.Works {
			t.Errorf("%s: %s: %s", name, state, d.step(name).Detail)
		}
	}
	if weak := d.Tiers[d.gvisor()].Weak; len(weak) > 0 {
		t.Errorf("the doctor says weak: %q", weak)
	}
	if rep := on(t, s, "", "run", "-o", "json", "--", "true").JSON(t); rep.Error != nil || len(rep.Weak) > 0 {
		t.Errorf("run: error %v, weak %q", rep.Error, rep.Weak)
	}
}
