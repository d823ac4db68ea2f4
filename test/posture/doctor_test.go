package posture

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// diagnosis is the part of the doctor's document that the tests read.
type diagnosis struct {
	Usable bool
	User   string
	Tiers  []health
}

// health is what it says of one tier.
type health struct {
	Tier          box.TierName
	InBuild       bool `json:"in_build"`
	Usable        bool
	Weak, Missing []string
	Steps         []box.Step
}

// built lists the tiers of this build.
func built() []box.TierName { return []box.TierName{box.TierGvisor, box.TierProcess} }

// runOn is the start of a run that takes a tier: an ordinary user's box of tier
// process holds what it writes in memory.
func runOn(tier box.TierName, more ...string) []string {
	args := []string{"run"}
	if tier == box.TierProcess {
		args = []string{"run", "--trust", "trusted", "--disk", "100m"}
	}
	return append(args, more...)
}

func (d diagnosis) of(t *testing.T, tier box.TierName) health {
	t.Helper()
	for _, h := range d.Tiers {
		if h.Tier == tier && h.InBuild {
			return h
		}
	}
	t.Fatalf("the doctor says nothing of tier %s", tier)
	return health{}
}

// lines maps each step to its state.
func (h health) lines() map[string]box.StepState {
	out := map[string]box.StepState{}
	for _, s := range h.Steps {
		out[s.Name] = s.State
	}
	return out
}

func (h health) step(name string) box.Step {
	for _, s := range h.Steps {
		if s.Name == name {
			return s
		}
	}
	return box.Step{}
}

func parse(t *testing.T, r harness.Result) diagnosis {
	t.Helper()
	var d diagnosis
	if err := json.Unmarshal([]byte(r.Stdout), &d); err != nil {
		t.Fatalf("cannot parse diagnosis: %v\nstdout: %s\nstderr: %s", err, r.Stdout, r.Stderr)
	}
	if want := map[bool]int{true: 0, false: 242}[d.Usable]; r.Code != want {
		t.Errorf("exit code %d, want %d for usable = %v", r.Code, want, d.Usable)
	}
	return d
}

func TestDoctorOnThisHost(t *testing.T) {
	harness.NothingLeft(t)
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		harness.Run(t, u, "doctor") // makes the host image, if this is the first
		r := harness.Run(t, u, "doctor", "-o", "json")
		d := parse(t, r)
		if r.Took > 3*time.Second {
			t.Logf("took %v: slow, or a busy machine", r.Took)
		}
		for _, tier := range built() {
			h := d.of(t, tier)
			if !h.Usable || len(h.Missing) > 0 {
				t.Fatalf("%s: not usable: %v", tier, h.Missing)
			}
			for name, state := range h.lines() {
				weakHere := u == harness.Ordinary && strings.HasPrefix(name, "control group: ") && state == box.Weak
				if state != box.Works && !weakHere {
					t.Errorf("%s: %s: %s: %s", tier, name, state, h.step(name).Detail)
				}
			}
			rep := harness.Run(t, u, runOn(tier, "-o", "json", "--", "true")...).JSON(t)
			if rep.Tier != tier || !slices.Equal(rep.Weak, h.Weak) {
				t.Errorf("the doctor predicts weak %q of tier %s, a box of tier %s reports %q", h.Weak, tier, rep.Tier, rep.Weak)
			}
			if u == harness.Root && len(h.Weak) > 0 {
				t.Errorf("root's boxes are weak here: %q", h.Weak)
			}
			if strict := harness.Run(t, u, runOn(tier, "--strict", "--", "true")...); strict.Code != map[bool]int{true: 241, false: 0}[len(h.Weak) > 0] {
				t.Errorf("strict ended with %d where weak is %q: %s", strict.Code, h.Weak, strict.Stderr)
			}
		}
		for _, other := range d.Tiers {
			if want := slices.Contains(built(), other.Tier); other.InBuild != want {
				t.Errorf("tier %s: in this build: %v", other.Tier, other.InBuild)
			}
		}
		if text := harness.Run(t, u, "doctor"); text.Code != 0 || !strings.Contains(text.Stdout, "gvisor: usable") || !strings.Contains(text.Stdout, "process: usable") || !strings.Contains(text.Stdout, "not in this build: container, ") {
			t.Errorf("as text, code %d:\n%s", text.Code, text.Stdout)
		}
	})
}

func TestEveryStepIsExplained(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(harness.ModuleRoot(), "docs/doctor.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range harness.Users() {
		d := parse(t, harness.Run(t, u, "doctor", "-o", "json"))
		for _, tier := range built() {
			for _, s := range d.of(t, tier).Steps {
				name := s.Name
				if strings.HasPrefix(name, "control group: ") {
					name = "control group: ..."
				} else if slices.Contains(allNamespaces[:len(allNamespaces)-1], name) {
					name, _, _ = strings.Cut(name, " ") // `mount`, `pid`, ... `network namespace`
				}
				if !strings.Contains(string(text), "`"+name+"`") {
					t.Errorf("tier %s: docs/doctor.md does not explain step %q", tier, name)
				}
			}
		}
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
		for _, tier := range built() {
			h := d.of(t, tier)
			if s := h.step("state folder"); d.Usable || s.State != box.Missing || !strings.Contains(s.Detail, c.says) {
				t.Errorf("%s: %s: usable %v, %+v", tier, c.dir, d.Usable, s)
			}
			if s := h.step("system-call filter"); s.State != box.Works {
				t.Errorf("%s: %s: what needs no state folder was not tried: %+v", tier, c.dir, s)
			}
			r := harness.Run(t, harness.Ordinary, runOn(tier, "--state", c.dir, "--", "true")...)
			if r.Code != 240 || !strings.Contains(r.Stderr, c.says) {
				t.Errorf("%s: %s: run: code %d, want 240 and %q: %s", tier, c.dir, r.Code, c.says, r.Stderr)
			}
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
	if st := d.of(t, box.TierGvisor).step("own program"); st.State != box.Missing || !strings.Contains(st.Advice, "chmod") {
		t.Errorf("own program: %+v", st)
	}
	if r := on(t, s, "", "run", "--", "true"); r.Code != 242 || !strings.Contains(r.Stderr, "own program") {
		t.Errorf("run: code %d: %s", r.Code, r.Stderr)
	}
	// A box of tier process is made from the agent's copy in memory.
	if h := d.of(t, box.TierProcess); !h.Usable || h.step("own program").State != box.Works {
		t.Errorf("process: usable %v: %+v", h.Usable, h.step("own program"))
	}
	if r := on(t, s, "", runOn(box.TierProcess, "--", "true")...); r.Code != 0 {
		t.Errorf("process: run: code %d: %s", r.Code, r.Stderr)
	}
}

// vm.memfd_noexec is a setting of each PID namespace: 1 wants a program in memory
// to be asked for, 2 forbids it.
func TestProgramsInMemoryAreAskedFor(t *testing.T) {
	setting := "/proc/sys/vm/memfd_noexec"
	if _, err := os.Stat(setting); err != nil {
		t.Skip("needs Linux 6.3: ", err)
	}
	for _, u := range harness.Users() {
		for value, code := range map[string]int{"1": 0, "2": 242} {
			s := stage{PID: true, As: u, Ops: []op{{Do: "write", From: value, To: setting}}}
			d := parse(t, on(t, s, "", "doctor", "-o", "json"))
			for _, tier := range built() {
				h := d.of(t, tier)
				if h.Usable != (code == 0) || code != 0 && !strings.Contains(h.step("program in memory").Advice, "vm.memfd_noexec=1") {
					t.Errorf("%s, %s, memfd_noexec=%s: usable %v, missing %q", u, tier, value, h.Usable, h.Missing)
				}
				r := on(t, s, "", runOn(tier, "--", "true")...)
				if r.Code != code || code != 0 && !strings.Contains(r.Stderr, "vm.memfd_noexec=1") {
					t.Errorf("%s, %s, memfd_noexec=%s: run ended with %d: %s", u, tier, value, r.Code, r.Stderr)
				}
			}
		}
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

// The other direction: an ordinary user who was given groups is not weak, and one
// who was given some is weak in what is lacking.
func TestOrdinaryUserWithDelegatedGroupsIsNotWeak(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: somebody must give the groups")
	}
	given := map[string]op{}
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
			// The kernel may still be taking down those who were in a group below.
			err := os.Remove(dir)
			for deadline := time.Now().Add(time.Minute); errors.Is(err, syscall.EBUSY) && time.Now().Before(deadline); err = os.Remove(dir) {
				time.Sleep(20 * time.Millisecond)
			}
			if err != nil {
				t.Error(err)
			}
		})
		if err := os.Lchown(dir, harness.OrdinaryID, harness.OrdinaryID); err != nil {
			t.Fatal(err)
		}
		given[controller] = op{Do: "bind", From: dir, To: mount}
	}
	for lacking, weak := range map[string]int{"": 0, "cpu": 1, "memory": 2, "pids": 2} {
		t.Run("without "+lacking, func(t *testing.T) {
			s := stage{As: harness.Ordinary}
			for controller, o := range given {
				if controller != lacking {
					s.Ops = append(s.Ops, o)
				}
			}
			d := parse(t, on(t, s, "", "doctor", "-o", "json"))
			for _, tier := range built() {
				h := d.of(t, tier)
				for name, state := range h.lines() {
					if state != box.Works && lacking == "" {
						t.Errorf("%s: %s: %s: %s", tier, name, state, h.step(name).Detail)
					}
				}
				rep := on(t, s, "", runOn(tier, "-o", "json", "--", "true")...).JSON(t)
				if rep.Error != nil || rep.Tier != tier || !slices.Equal(rep.Weak, h.Weak) || len(h.Weak) != weak {
					t.Errorf("%s: predicted weak %q; run on %s: error %v, weak %q", tier, h.Weak, rep.Tier, rep.Error, rep.Weak)
				}
			}
		})
	}
}
