package gvisor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"
	"gvisor.dev/gvisor/runsc/flag"
	"gvisor.dev/gvisor/runsc/specutils"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/hostfs"
	"github.com/sunaba-dev/sunaba/internal/tier/frame"
)

// setup builds the box: mounts, then no more rights, then gVisor.
func (r *runner) setup(seq int, body json.RawMessage, files []*os.File) (any, error) {
	if err := json.Unmarshal(body, &r.set); err != nil {
		return nil, err
	}
	in, err := r.takeFiles(files)
	if err != nil {
		return nil, err
	}
	if err := r.KeepWords(r.set.Dir); err != nil {
		return nil, err
	}
	sources, err := r.mounts(in.mounts)
	if err != nil {
		return nil, err
	}
	if config.CgoEnabled {
		return nil, r.dropByExec(seq, in, sources)
	}
	if err := host.DropAll(); err != nil {
		return nil, err
	}
	return r.create(in, sources)
}

// inputs are the descriptors that came with setup.
type inputs struct {
	root, system, store, seeds, stream *os.File
	nic, far                           *os.File                 // the ends of the link, the guest's and the host's
	parts                              [len(fileParts)]*os.File // of a copy, those that there are
	mounts                             []*os.File
}

func (r *runner) takeFiles(files []*os.File) (inputs, error) {
	want := 3
	for _, m := range r.set.Mounts {
		if m.File {
			want++
		}
	}
	if r.set.Seeds {
		want++
	}
	if r.set.Linked {
		want += 2
	}
	parts := len(partsOf(r.set.From))
	stream := r.set.Lasting != nil && r.set.From != box.SnapshotMemory
	if want += parts; stream {
		want++
	}
	if len(files) != want {
		return inputs{}, fmt.Errorf("cannot set up box: %d files came, %d are needed", len(files), want)
	}
	in := inputs{root: files[0], system: files[1], store: files[2], mounts: files[3:]}
	last := func() *os.File {
		n := len(in.mounts) - 1
		f := in.mounts[n]
		in.mounts = in.mounts[:n]
		return f
	}
	for i := parts - 1; i >= 0; i-- {
		in.parts[i] = last()
	}
	if r.set.Linked {
		in.far, in.nic = last(), last()
	}
	if stream {
		in.stream = last()
	}
	if r.set.Seeds {
		in.seeds = last()
	}
	return in, nil
}

// mounts puts every host folder of the box below the run folder, in this
// process's own mount namespace, and returns the paths in the order of the
// setup's mounts.
func (r *runner) mounts(files []*os.File) ([]string, error) {
	if err := host.PrivateMounts(); err != nil {
		return nil, refused(err)
	}
	if err := host.MountProc(); err != nil {
		return nil, refused(err)
	}
	if len(r.set.Mounts) == 0 {
		return nil, nil
	}
	dir := filepath.Join(r.set.Dir, "mnt")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make mount points: %w", err)
	}
	if err := host.MountTmpfs(dir); err != nil {
		return nil, err
	}
	var sources []string
	for i, m := range r.set.Mounts {
		point := filepath.Join(dir, strconv.Itoa(i))
		if err := makePoint(point, m.IsDir); err != nil {
			return nil, err
		}
		tree, err := r.detached(m, &files)
		if err != nil {
			return nil, err
		}
		err = hostfs.MoveMount(tree, point)
		tree.Close()
		if err != nil {
			return nil, err
		}
		sources = append(sources, point)
	}
	return sources, nil
}

// refused marks what this host does not allow: doctor says what to do.
func refused(err error) error { return box.Errorf(box.Unusable, "mount", "%w", err) }

// detached returns the mount to attach for m.
func (r *runner) detached(m frame.Mount, files *[]*os.File) (*os.File, error) {
	if m.File {
		f := (*files)[0]
		*files = (*files)[1:]
		return f, nil
	}
	f, err := frame.OpenSame(m)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return hostfs.CloneMount(f, hostfs.MountAttr{ReadOnly: m.ReadOnly, Recursive: m.IsDir})
}

func makePoint(path string, dir bool) error {
	if dir {
		if err := os.Mkdir(path, 0o700); err != nil {
			return fmt.Errorf("cannot make mount point: %w", err)
		}
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("cannot make mount point: %w", err)
	}
	return f.Close()
}

// create writes the bundle and starts the sandbox, paused before its first
// process runs; then lets init run.
func (r *runner) create(in inputs, sources []string) (any, error) {
	bundle := filepath.Join(r.set.Dir, "bundle")
	if err := os.Mkdir(bundle, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make bundle: %w", err)
	}
	if err := os.Mkdir(filepath.Join(bundle, "empty"), 0o700); err != nil {
		return nil, fmt.Errorf("cannot make bundle: %w", err)
	}
	spec := r.ociSpec(in, sources, filepath.Join(bundle, "empty"))
	if err := writeJSON(filepath.Join(bundle, "config.json"), spec); err != nil {
		return nil, err
	}
	if err := writeJSON(filepath.Join(bundle, bootNumbersFile), r.set.Numbers); err != nil {
		return nil, err
	}
	conf, err := r.config()
	if err != nil {
		return nil, err
	}
	spec, err = specutils.ReadSpec(bundle, conf)
	if err != nil {
		return nil, fmt.Errorf("cannot read back bundle: %w", err)
	}
	if err := specutils.FixConfig(conf, spec); err != nil {
		return nil, fmt.Errorf("cannot apply bundle: %w", err)
	}
	limits, err := r.limits.start(r.told)
	if err != nil {
		return nil, err
	}
	defer limits.Close()
	pass := map[int]*os.File{guestStoreFD: in.store, guestLimitFD: limits}
	// What the sentry has is its own from then on. The agent's stream, for one,
	// has to end when the agent closes it.
	ours := []*os.File{in.root, in.system, in.seeds, in.stream, in.nic}
	r.far = in.far
	if in.stream != nil {
		pass[agentFD] = in.stream
		if err := r.handed.add(in.stream, agentStream); err != nil {
			return nil, err
		}
	}
	if r.set.Lasting != nil {
		r.store = in.store
	} else {
		ours = append(ours, in.store)
	}
	if r.set.From == box.SnapshotFiles {
		for i, f := range in.parts {
			pass[guestPartFD+i] = f
		}
	}
	ours = append(ours, in.parts[:]...)
	defer frame.CloseAll(ours)
	c, err := container.New(conf, container.Args{ID: r.set.ID, Spec: spec, BundleDir: bundle, PassFiles: pass})
	if err != nil {
		return nil, r.notUp("cannot create sandbox", err)
	}
	if r.set.From == box.SnapshotMemory {
		if err := r.restore(c, in.parts[:len(memoryParts)], in.nic); err != nil {
			return nil, box.Errorf(box.Unusable, opRestore, "cannot go on with the copy: %w", err)
		}
	} else if err := r.start(c, conf, in.nic); err != nil && r.set.From == box.SnapshotFiles {
		return nil, box.Errorf(box.Unusable, opRestore, "cannot begin with the copied files: %w", oneLine(err))
	} else if err != nil {
		return nil, r.notUp("cannot start sandbox", err)
	}
	if r.set.From == box.SnapshotFiles {
		if err := r.filesRestored(c); err != nil {
			return nil, box.Errorf(box.Unusable, opRestore, "cannot put the copied files into the box: %w", err)
		}
	}
	r.lossy.Store(r.set.Lossy)
	r.c, r.conf = c, conf
	if r.set.Lasting != nil {
		settle()
	}
	if err := r.guard(); err != nil {
		return nil, err
	}
	gofer := int(c.GoferPid.Load())
	if gofer != 0 {
		if err := r.endWith(gofer); err != nil {
			return nil, err
		}
	}
	return ready{SandboxPid: c.SandboxPid(), GoferPid: gofer}, nil
}

// notUp says of a sandbox that did not come up what its kernel said at its end, rather
// than that it was waited for.
func (r *runner) notUp(what string, err error) error {
	if words := r.limits.lastWords(); words != "" {
		return fmt.Errorf("%s: %s%s", what, diedStarting, words)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// endWith ends this process, and with it the box, when a child of it ends.
// Without its gofer a guest would go on, and every file of the host's would
// give it an error.
func (r *runner) endWith(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return fmt.Errorf("cannot watch process %d of the box: %w", pid, err)
	}
	go func() {
		st, err := p.Wait()
		if err != nil {
			r.EndBecause("its file server cannot be waited for: " + err.Error())
			return
		}
		// It ends with the guest's kernel, too, and before that is seen to: then in order.
		late := kernelEndSeen
		if st.Success() {
			late = kernelEndLate
		}
		select {
		case <-r.guestEnd():
		case <-time.After(late):
			r.EndBecause("its file server ended: " + st.String())
		}
	}()
	return nil
}

// guestEnd is closed when the guest's kernel has ended and that has been told.
func (r *runner) guestEnd() <-chan struct{} {
	if r.guestEnded != nil {
		return r.guestEnded
	}
	told := make(chan struct{})
	go func() {
		if ws, err := r.c.Sandbox.Wait(r.c.ID); err == nil {
			r.EndBecause(r.kernelsEnd(syscall.WaitStatus(ws)))
			close(told)
		}
	}()
	return told
}

// How long the end of a file server waits for that of its guest's kernel, while files
// give errors: one that was ended, and one that ended in order, which it does when that
// kernel has closed the connection. A host that has no time ends that kernel late.
const (
	kernelEndSeen = 200 * time.Millisecond
	kernelEndLate = 10 * time.Second
)

func (r *runner) config() (*config.Config, error) {
	fs := flag.NewFlagSet("runner", flag.ContinueOnError)
	config.RegisterFlags(fs)
	args := []string{
		"--root=" + filepath.Join(r.set.Dir, "state"),
		"--platform=systrap",
		"--network=none",
		"--host-settings=ignore",
		"--ignore-cgroups", // the front has put this process into the box's group
		"--directfs=false", // the sentry has no host file system of its own
		"--overlay2=none",  // the writable layer is declared on the root alone
		"--allow-rootfs-tar-annotation",
	}
	if r.set.Debug != "" {
		args = append(args, "--debug", "--debug-log="+r.set.Debug+"/")
	}
	if err := fs.Parse(args); err != nil {
		return nil, fmt.Errorf("cannot configure gVisor: %w", err)
	}
	conf, err := config.NewFromFlags(fs)
	if err != nil {
		return nil, fmt.Errorf("cannot configure gVisor: %w", err)
	}
	if r.set.From == box.SnapshotMemory {
		likeCopied(conf)
	}
	return conf, nil
}

func writeJSON(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("cannot encode %s: %w", filepath.Base(path), err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		return fmt.Errorf("cannot write %s: %w", filepath.Base(path), err)
	}
	return nil
}
