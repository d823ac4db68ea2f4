package limits

import (
	"slices"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// The other tests compare weak with what this host can enforce after every run;
// this is what follows from it.
func TestStrictRefusesWhatIsWeakAndOnlyThat(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		e := run(t, p, "--strict", "--", "echo", "ran")
		weak := weakFor(t, p)
		if len(weak) == 0 {
			e.exited(t)
			return
		}
		if e.Error == nil || e.Error.Kind != box.Denied || e.code != 241 || e.stdout() != "" {
			t.Fatalf("weak %q: error %v, code %d, output %q", weak, e.Error, e.code, e.stdout())
		}
		for _, w := range weak {
			if !strings.Contains(e.Error.Message, w+":") {
				t.Errorf("the refusal does not name %s: %s", w, e.Error.Message)
			}
		}
	})
}

func TestPolicyInForceIsWhatWasAskedFor(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		e := shell(t, p, "id -u", "--cpu", "0.5", "--memory", "100m", "--timeout", "90", "--idle", "80", "--max-processes", "9",
			"--max-open-files", "50", "--disk", "30m", "--max-files", "300", "--max-output", "1000", "--on-limit", "kill")
		e.exited(t)
		want := box.LimitsJSON{
			CPU: 0.5, MemoryBytes: 100 << 20, TimeoutSec: 90, IdleSec: 80, Processes: 9,
			OpenFiles: 50, DiskBytes: 30 << 20, Files: 300, OutputBytes: 1000, OnLimit: box.LimitKill,
		}
		if e.Policy.Limits != want {
			t.Errorf("policy is %+v, want %+v", e.Policy.Limits, want)
		}
	})
}

// A folder of the host that the program may write to is under no limit of the
// box, whoever runs it; a read-only one changes nothing.
func TestWritableMountIsNamedAsWeak(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		dir := harness.Dir(t, p.user)
		shell(t, p, "ls /data", "--mount", dir+":/data").exited(t)
		e := shell(t, p, "echo x > /data/x", "--mount", dir+":/data:rw")
		if e.Cause != box.Exited || e.code != 0 {
			t.Errorf("ended by %s with %d: %s", e.Cause, e.code, e.StderrClean)
		}
		if want := append([]string{"disk"}, weakFor(t, p)...); !slices.Equal(slices.Sorted(slices.Values(want)), e.weak()) {
			t.Errorf("weak is %q, want lines about %q", e.Weak, want)
		}
	})
}
