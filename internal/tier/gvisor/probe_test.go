package gvisor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
)

func TestAdviceNamesTheSettingThatForbidsANamespace(t *testing.T) {
	sysctls := func(pairs ...string) func(string) string {
		return func(name string) string {
			if i := slices.Index(pairs, name); i >= 0 {
				return pairs[i+1]
			}
			return ""
		}
	}
	for _, c := range []struct {
		step   string
		err    error
		sysctl func(string) string
		says   string
	}{
		{stepUser, syscall.ENOSPC, sysctls("user.max_user_namespaces", "0"), "raise user.max_user_namespaces (now 0)"},
		{"network namespace", syscall.ENOSPC, sysctls(), "raise user.max_net_namespaces (now not readable)"},
		{stepUser, syscall.EPERM, sysctls("kernel.unprivileged_userns_clone", "0"), "kernel.unprivileged_userns_clone=1"},
		{stepUser, syscall.EACCES, sysctls("kernel.apparmor_restrict_unprivileged_userns", "1"), "install the profile in docs/doctor.md"},
		{stepUser, syscall.EPERM, sysctls("kernel.unprivileged_userns_clone", "1"), "--security-opt seccomp=unconfined"},
		{stepUser, syscall.EINVAL, sysctls(), "CONFIG_USER_NS"},
		{stepUser, syscall.EUSERS, sysctls(), "nested too deeply"},
		{stepUser, syscall.EROFS, sysctls(), "mount /proc"},
	} {
		err := fmt.Errorf("cannot start: %w", c.err)
		if got := adviceNamespace(c.step, err, c.sysctl); !strings.Contains(got, c.says) {
			t.Errorf("%s, %v: advice %q does not say %q", c.step, c.err, got, c.says)
		}
	}
}

func TestCapsFollowFromTheSteps(t *testing.T) {
	yes := step{needed: true, Step: works("a", "")}
	feature := step{Step: missing("b", errors.New("gone"), "")}
	weak := step{needed: true, Step: box.Step{Name: "c", State: box.Weak}, weak: []string{"w1", "w2"}}
	again := step{needed: true, Step: box.Step{Name: "d", State: box.Weak}, weak: []string{"w2"}}
	no := step{needed: true, Step: missing("e", errors.New("broken"), "")}

	c := (&prober{steps: []step{yes, feature, weak, again}}).caps()
	if !c.Usable || len(c.Missing) > 0 || !slices.Equal(c.Weak, []string{"w1", "w2"}) || len(c.Steps) != 4 {
		t.Errorf("without a needed step missing: %+v", c)
	}
	c = (&prober{steps: []step{yes, no, notTried("f", "e")}}).caps()
	if c.Usable || !slices.Equal(c.Missing, []string{"e: broken"}) {
		t.Errorf("with one: %+v", c)
	}
}
