package gvisor

import (
	"fmt"
	"os"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-dev/sunaba/internal/host"
)

// nobody is who the guest's init is: it holds no file and no right, and does
// not count against the ordinary user's process limit.
const nobody = 65534

// systemDir is where the system image is mounted in every guest.
const systemDir = "/.sunaba"

// ociSpec says what the guest consists of: an EROFS root with a writable layer
// on top, the system image, host folders, and gVisor's own proc and dev.
func (r *runner) ociSpec(in inputs, sources []string, empty string) *specs.Spec {
	s := &specs.Spec{
		Version:  "1.0.0",
		Hostname: r.set.Hostname,
		Root:     &specs.Root{Path: empty},
		Process: &specs.Process{
			User:            specs.User{UID: nobody, GID: nobody},
			Args:            []string{systemDir + "/init"},
			Cwd:             "/",
			NoNewPrivileges: true,
		},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs"},
			// POSIX shared memory must work for the ordinary user; gVisor's
			// own /dev/shm belongs to root. Charged to the box's memory.
			{Destination: "/dev/shm", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "mode=1777", fmt.Sprintf("size=%d", r.set.ShmBytes)}},
			// A mount of a type that gVisor skips. Its name alone keeps gVisor
			// from putting a tmpfs on an empty /tmp, so that /tmp is on the
			// disk-backed layer and under its limits like all other places.
			{Destination: "/tmp", Type: "sunaba-none", Source: "none"},
			{Destination: systemDir, Type: "erofs", Source: fdPath(in.system), Options: []string{"ro", "nosuid", "nodev"}},
		},
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.UTSNamespace},
				{Type: specs.IPCNamespace}, {Type: specs.UserNamespace},
			},
			// For the gofer: the one host user of this box is the guest's
			// ordinary user, so files that it owns are the guest user's own.
			UIDMappings: []specs.LinuxIDMapping{{ContainerID: host.BoxUser, HostID: host.BoxUser, Size: 1}},
			GIDMappings: []specs.LinuxIDMapping{{ContainerID: host.BoxUser, HostID: host.BoxUser, Size: 1}},
		},
		Annotations: map[string]string{
			"dev.gvisor.spec.rootfs.source": fdPath(in.root),
			"dev.gvisor.spec.rootfs.type":   "erofs",
			// bootCommand.secondPass puts it on our own file.
			"dev.gvisor.spec.rootfs.overlay": "memory",
		},
	}
	if l := r.set.Lasting; l != nil {
		r.agentInit(s, l)
	}
	for _, name := range []string{"RLIMIT_NPROC", "RLIMIT_NOFILE", "RLIMIT_AS", "RLIMIT_CORE"} {
		if v, ok := r.set.Rlimits[name]; ok {
			s.Process.Rlimits = append(s.Process.Rlimits, specs.POSIXRlimit{Type: name, Hard: v, Soft: v})
		}
	}
	if in.seeds != nil {
		s.Annotations["dev.gvisor.tar.rootfs.upper"] = fdPath(in.seeds)
	}
	for i, m := range r.set.Mounts {
		opts := []string{"rbind", "nosuid", "nodev"} // with what is mounted in it: the kernel does not take it apart for us
		if m.ReadOnly {
			opts = append(opts, "ro")
		}
		s.Mounts = append(s.Mounts, specs.Mount{Destination: m.Target, Type: "bind", Source: sources[i], Options: opts})
	}
	return s
}

func fdPath(f *os.File) string { return host.FDPath(f.Fd()) }
