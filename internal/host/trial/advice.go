package trial

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// AdviceNamespace says what to do about a namespace that could not be made. The
// settings that can forbid it are read; none of them decided whether it works.
func AdviceNamespace(name string, err error, sysctl func(string) string) string {
	limit := map[string]string{
		StepUser: "user", "mount namespace": "mnt", "pid namespace": "pid", "ipc namespace": "ipc",
		"uts namespace": "uts", "cgroup namespace": "cgroup", "network namespace": "net", StepTime: "time",
	}[name]
	var say []string
	if errors.Is(err, syscall.ENOSPC) && limit != "" {
		key := "user.max_" + limit + "_namespaces"
		say = append(say, fmt.Sprintf("raise %s (now %s): sysctl -w %s=15000; in a container, also on the host", key, OrUnknown(sysctl(key)), key))
	}
	if errors.Is(err, fs.ErrPermission) {
		if sysctl("kernel.unprivileged_userns_clone") == "0" {
			say = append(say, "let ordinary users make user namespaces: sysctl -w kernel.unprivileged_userns_clone=1")
		}
		if sysctl("kernel.apparmor_restrict_unprivileged_userns") == "1" {
			say = append(say, adviceAppArmor)
		}
		if len(say) == 0 {
			say = append(say, "in a container, its system-call filter or missing capabilities forbid it: use a profile that allows clone, unshare, mount and setns (docker: --security-opt seccomp=unconfined), or run sunaba as an ordinary user of it")
		}
	}
	if errors.Is(err, syscall.EROFS) {
		say = append(say, "mount /proc so that it can be written to: the mapping of a user namespace is set there")
	}
	if errors.Is(err, syscall.EINVAL) {
		say = append(say, "use a kernel that has this namespace (CONFIG_NAMESPACES, CONFIG_USER_NS); in a container, sunaba as root needs user ids from 1879048192 up in its mapping: run it as an ordinary user there")
	}
	if errors.Is(err, syscall.EUSERS) {
		say = append(say, "user namespaces are nested too deeply here: start sunaba further out")
	}
	return strings.Join(say, "; ")
}

// adviceAppArmor: the kernel lets everybody make a user namespace and then
// takes every right in it away, unless a profile says otherwise.
const adviceAppArmor = "AppArmor takes the rights in user namespaces away (kernel.apparmor_restrict_unprivileged_userns=1): install the profile in docs/doctor.md, or sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"

// OrUnknown is a setting's value for a person.
func OrUnknown(s string) string {
	if s == "" {
		return "not readable"
	}
	return s
}

// AdviceMount says what to do about a mount that was refused in namespaces of
// our own.
func AdviceMount(err error) string {
	if !errors.Is(err, fs.ErrPermission) {
		return ""
	}
	if Sysctl("kernel.apparmor_restrict_unprivileged_userns") == "1" {
		return adviceAppArmor
	}
	return "in a container, parts of /proc are covered up, and then the kernel refuses a fresh one: docker run --security-opt systempaths=unconfined; Kubernetes: procMount: Unmasked"
}

// Sysctl returns a kernel setting, or "" if there is none of that name.
func Sysctl(name string) string {
	b, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
