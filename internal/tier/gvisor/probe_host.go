package gvisor

import (
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/hostfs"
)

// host tries what a box needs of the kernel. dir is a folder of ours, over
// which the tried processes mount in namespaces of their own.
func (p *prober) host(ctx context.Context, dir string) {
	p.add(probeDevices())
	if p.works(stepDevices) {
		p.add(probeProgram(ctx, p.uid, p.gid))
	} else {
		p.add(notTried(stepProgram, stepDevices))
	}
	if !p.works(stepProgram) {
		p.add(notTried(stepUser, stepProgram))
	} else {
		p.add(p.try(ctx, stepUser, host.NamespaceNone))
	}
	for _, n := range []struct {
		name string
		ns   host.Namespace
	}{
		{"mount namespace", host.NamespaceMount},
		{"pid namespace", host.NamespacePID},
		{"ipc namespace", host.NamespaceIPC},
		{"uts namespace", host.NamespaceUTS},
		{"cgroup namespace", host.NamespaceCgroup},
		{"network namespace", host.NamespaceNet},
		{stepAll, host.NamespaceBox},
	} {
		if !p.works(stepUser) {
			p.add(notTried(n.name, stepUser))
			continue
		}
		p.add(p.try(ctx, n.name, n.ns))
	}
	p.add(p.inside(ctx, dir)...)
}

// probeProgram executes this program as the box's host user.
func probeProgram(ctx context.Context, uid, gid int) step {
	s := step{needed: true}
	_, err := host.Spawn{Args: []string{argvProbe, probeNothing}, HostUID: uid, HostGID: gid}.Try(ctx, host.NamespaceNone)
	if err != nil {
		s.Step = missing(stepProgram, fmt.Errorf("cannot execute %s as user %d: %w", host.SelfExe, uid, err),
			"make the file of sunaba executable by everybody (chmod a+rx), on a file system that is not mounted noexec")
		return s
	}
	if dynamic() {
		s.Step = missing(stepProgram, errors.New("it needs a dynamic loader, which a box's empty root does not have: it was built with cgo"),
			"build with make, or with CGO_ENABLED=0 go build ./cmd/sunaba")
		return s
	}
	s.Step = works(stepProgram, fmt.Sprintf("executed as user %d", uid))
	return s
}

// dynamic reports whether this program names a loader; see elf(5).
func dynamic() bool {
	f, err := elf.Open(host.SelfExe)
	if err != nil {
		return false
	}
	defer f.Close()
	return slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// probeDevices looks for the few things that gVisor opens by name.
func probeDevices() step {
	s := step{needed: true, Step: works(stepDevices, "/dev/null is the null device, /tmp is a folder")}
	st, err := os.Stat(os.DevNull)
	if err == nil {
		sys, ok := st.Sys().(*syscall.Stat_t)
		if !ok || st.Mode().Type() != os.ModeDevice|os.ModeCharDevice || sys.Rdev != 1<<8|3 {
			err = fmt.Errorf("%s is not the null device", os.DevNull)
		}
	}
	if err != nil {
		s.Step = missing(stepDevices, err, "make /dev/null (mknod -m 666 /dev/null c 1 3)")
		return s
	}
	if st, err := os.Stat("/tmp"); err != nil || !st.IsDir() {
		s.Step = missing(stepDevices, errors.New("/tmp is not a folder"), "make the folder /tmp; a box's processes mount their empty root there, in a namespace of their own")
	}
	return s
}

// try runs a child in a user namespace like a box's and in further ones.
func (p *prober) try(ctx context.Context, name string, ns host.Namespace) step {
	s := step{needed: true}
	_, err := host.Spawn{Args: []string{argvProbe, probeNothing}, HostUID: p.uid, HostGID: p.gid}.Try(ctx, ns|host.NamespaceUser)
	if err != nil {
		s.Step = missing(name, fmt.Errorf("cannot start a process in it: %w", err), adviceNamespace(name, err, readSysctl))
		return s
	}
	detail := "made"
	if ns == host.NamespaceNone {
		detail = fmt.Sprintf("made; user %d outside is user %d inside", p.uid, host.BoxUser)
	}
	s.Step = works(name, detail)
	return s
}

// inside runs the steps that only a process in all of a box's namespaces can
// try; see probeMain.
func (p *prober) inside(ctx context.Context, dir string) []step {
	var out []step
	if !p.works(stepAll) {
		for _, name := range insideSteps() {
			out = append(out, notTried(name, stepAll))
		}
		return out
	}
	spawn := host.Spawn{Args: []string{argvProbe, probeInside, dir, usrOwn}, HostUID: p.uid, HostGID: p.gid}
	if host.IsRoot() {
		// Root's boxes get their host folders as mounts that root has made.
		if tree, err := cloneUsr(); err == nil {
			defer tree.Close()
			spawn.Files = []*os.File{tree}
			spawn.Args[3] = usrPassed
		} else {
			spawn.Args[3] = err.Error()
		}
	}
	said, err := spawn.Try(ctx, host.NamespaceBox)
	var steps []box.Step
	if jerr := json.Unmarshal(said, &steps); err == nil {
		err = jerr
	}
	for i, name := range insideSteps() {
		if i < len(steps) && steps[i].Name == name {
			if name == stepNested && steps[0].State == box.Missing {
				out = append(out, notTried(name, steps[0].Name)) // it is set up through /proc
				continue
			}
			out = append(out, step{needed: true, Step: steps[i]})
			continue
		}
		if err == nil {
			err = errors.New("no answer")
		}
		out = append(out, step{needed: true, Step: missing(name, fmt.Errorf("cannot try: %w", err), "")})
	}
	return out
}

// cloneUsr makes the mount that every box with the host image has.
func cloneUsr() (*os.File, error) {
	f, _, err := hostfs.OpenMountSource("/usr", nil)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return hostfs.CloneMount(f, hostfs.MountAttr{ReadOnly: true, Recursive: !host.IsRoot()})
}

// readSysctl returns a kernel setting, or "" if there is none of that name.
func readSysctl(name string) string {
	b, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
