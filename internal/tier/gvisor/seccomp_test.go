package gvisor

import (
	"os"
	"runtime"
	"slices"
	"testing"

	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/pkg/sentry/platform/systrap"
	filterconfig "gvisor.dev/gvisor/runsc/boot/filter/config"

	"github.com/sunaba-dev/sunaba/internal/tier/gvisor/filter"
)

// sentryOptions are the filter options that our sentry's flags lead to.
func sentryOptions() filterconfig.Options {
	return filterconfig.Options{Platform: (&systrap.Systrap{}).SeccompInfo(), ControllerFD: 7}
}

func TestPrecompiledFiltersAreThoseOfThisGvisor(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("filters are compiled ahead of time for amd64 only")
	}
	set, err := loadFilters()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := set.Gvisor, filter.GvisorVersion(); got != want && want != "" {
		t.Errorf("filters were compiled from gVisor %s, this program has %s: run go generate ./internal/tier/gvisor", got, want)
	}
	opt := sentryOptions()
	i := slices.IndexFunc(set.Programs, func(p filter.Program) bool { return p.Key == opt.ConfigKey() })
	if i < 0 {
		t.Fatalf("no filter for the sentry's options %s: run go generate ./internal/tier/gvisor", opt.ConfigKey())
	}
	ready, err := wireProgram(set.Programs[i]).RenderInstructions(opt.Vars())
	if err != nil {
		t.Fatal(err)
	}
	rules, deny := filterconfig.Rules(opt)
	fresh, _, err := (&seccomp.Program{
		RuleSets: []seccomp.RuleSet{{Rules: deny}, {Rules: rules, Action: seccomp.Allow}},
		Options:  filterconfig.SeccompOptions(opt),
	}).Build()
	if err != nil {
		t.Fatal(err)
	}
	if len(ready) != len(fresh) {
		t.Fatalf("the precompiled filter has %d instructions, gVisor now compiles %d: run go generate ./internal/tier/gvisor", len(ready), len(fresh))
	}
	// A rule of systrap's has the compiling process's number in it. The sentry
	// is PID 1 of its namespace and so was the generator; this test is not.
	for i := range fresh {
		if fresh[i] != ready[i] && fresh[i].K == uint32(os.Getpid()) && ready[i].K == 1 {
			fresh[i].K = 1
		}
	}
	if !slices.Equal(ready, fresh) {
		t.Errorf("the precompiled filter (%d instructions) is not what gVisor compiles now (%d): run go generate ./internal/tier/gvisor", len(ready), len(fresh))
	}
	// The comparison is not between two empty programs.
	if len(fresh) < 100 {
		t.Errorf("the filter has only %d instructions", len(fresh))
	}
}
