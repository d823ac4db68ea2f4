package trial

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
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
		{StepUser, syscall.ENOSPC, sysctls("user.max_user_namespaces", "0"), "raise user.max_user_namespaces (now 0)"},
		{"network namespace", syscall.ENOSPC, sysctls(), "raise user.max_net_namespaces (now not readable)"},
		{StepUser, syscall.EPERM, sysctls("kernel.unprivileged_userns_clone", "0"), "kernel.unprivileged_userns_clone=1"},
		{StepUser, syscall.EACCES, sysctls("kernel.apparmor_restrict_unprivileged_userns", "1"), "install the profile in docs/doctor.md"},
		{StepUser, syscall.EPERM, sysctls("kernel.unprivileged_userns_clone", "1"), "--security-opt seccomp=unconfined"},
		{StepUser, syscall.EINVAL, sysctls(), "CONFIG_USER_NS"},
		{StepUser, syscall.EUSERS, sysctls(), "nested too deeply"},
		{StepUser, syscall.EROFS, sysctls(), "mount /proc"},
	} {
		err := fmt.Errorf("cannot start: %w", c.err)
		if got := AdviceNamespace(c.step, err, c.sysctl); !strings.Contains(got, c.says) {
			t.Errorf("%s, %v: advice %q does not say %q", c.step, c.err, got, c.says)
		}
	}
}
