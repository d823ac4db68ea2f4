package gvisor

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
)

// adviceNamespace says what to do about a namespace that could not be made. The
// settings that can forbid it are read; none of them decided whether it works.
func adviceNamespace(name string, err error, sysctl func(string) string) string {
	limit := map[string]string{
		stepUser: "user", "mount namespace": "mnt", "pid namespace": "pid", "ipc namespace": "ipc",
		"uts namespace": "uts", "cgroup namespace": "cgroup", "network namespace": "net",
	}[name]
	var say []string
	if errors.Is(err, syscall.ENOSPC) && limit != "" {
		key := "user.max_" + limit + "_namespaces"
		say = append(say, fmt.Sprintf("raise %s (now %s): sysctl -w %s=15000; in a container, also on the host", key, orUnknown(sysctl(key)), key))
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

func orUnknown(s string) string {
	if s == "" {
		return "not readable"
	}
	return s
}

// adviceMount says what to do about a mount that was refused in namespaces of
// our own.
func adviceMount(err error) string {
	if !errors.Is(err, fs.ErrPermission) {
		return ""
	}
	if readSysctl("kernel.apparmor_restrict_unprivileged_userns") == "1" {
		return adviceAppArmor
	}
	return "in a container, parts of /proc are covered up, and then the kernel refuses a fresh one: docker run --security-opt systempaths=unconfined; Kubernetes: procMount: Unmasked"
}

// adviceState says what to do about the state folder.
func adviceState(err error) string {
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return "name a folder that you may write to, on a disk: --state DIR or SUNABA_STATE"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "free some space, or name a folder on another disk: --state DIR or SUNABA_STATE"
	}
	return "name a folder of your own, on a disk, that nobody else may write to: --state DIR or SUNABA_STATE"
}
