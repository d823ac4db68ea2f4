package gvisor

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"gvisor.dev/gvisor/runsc/config"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/wire"
	"github.com/sunaba-dev/sunaba/internal/fault"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/cgroup"
	"github.com/sunaba-dev/sunaba/internal/host/nic"
	"github.com/sunaba-dev/sunaba/internal/image"
	"github.com/sunaba-dev/sunaba/internal/tier/frame"
)

// What the runtime itself needs in a box's group beyond the guest's limits:
// sentry, gofer, runner and their page tables. Measured: see docs/adr.
const (
	memoryOverhead = 64 << 20
	pidsOverhead   = 1024
	pidsPerTask    = 4       // host threads that one guest task may cost
	maxPids        = 1 << 22 // PID_MAX_LIMIT on 64 bits: proc(5); pids.max takes no more
)

// gbox implements box.Box.
type gbox struct {
	frame.Box
	path   string                   // the image's PATH
	stream atomic.Pointer[net.Conn] // to the agent, of the start; nil when it was taken

	from     *copied  // what it is made from; nil = it starts anew
	versions versions // of a box that lasts
}

// Create implements box.Tier. The order matters: whatever a box could use up
// is bounded before its first process exists, and the runner waits for its
// first message, which is sent when it stands in its group.
func (t *Tier) Create(ctx context.Context, spec box.Spec) (box.Box, error) {
	return t.create(ctx, spec, nil)
}

func (t *Tier) create(ctx context.Context, spec box.Spec, from *copied) (_ box.Box, err error) {
	b := &gbox{from: from}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Destroy(context.WithoutCancel(ctx)))
		}
	}()
	l := spec.Limits
	var set setup
	var passed []*os.File
	defer func() { frame.CloseAll(passed) }()
	var limited bool
	bounded := make(chan struct{})
	// The runner starts, and waits for its first message, while that is
	// prepared.
	err = frame.Together(func() error {
		img, name, err := t.cfg.Images.Open(ctx, spec)
		if err != nil {
			return err
		}
		defer img.Close()
		b.Image, b.path = name, img.Path
		if spec.Lasting {
			if b.versions, err = t.versions(); err != nil {
				return err
			}
			if err := from.fits(b); err != nil {
				return err
			}
		}
		if b.Store, err = host.OpenUnlinked(t.StoreDir()); err != nil {
			return err
		}
		fault.Here("gvisor.store-made")
		if err = t.canMap(b.Store); err != nil {
			return err
		}
		if _, err = t.systemFor(spec); err != nil {
			return err
		}
		<-bounded
		set, passed, err = t.setupOf(spec, img, b)
		return err
	}, func() error {
		err := t.Begin(&b.Box, spec, adapter{b})
		if err == nil {
			limited, err = b.Limit(cgroup.Limits{Memory: l.Memory + overhead(spec), Pids: min(l.Processes*pidsPerTask+pidsOverhead, maxPids)})
		}
		close(bounded)
		if err != nil {
			return err
		}
		return b.Spawn(host.Spawn{Args: []string{argvRunner}})
	})
	if err != nil {
		return nil, err
	}
	b.Weaker = append(b.Weaker, t.weakStore()...)
	if !limited {
		b.Weaker = append(b.Weaker, weakMemory, weakCPU)
	}
	if config.CgoEnabled && len(set.Mounts) > 0 {
		b.Weaker = append(b.Weaker, weakCgo)
	}
	if slices.ContainsFunc(spec.Mounts, func(m box.Mount) bool { return !m.ReadOnly }) {
		b.Weaker = append(b.Weaker, weakMount)
	}
	var r ready
	if err := b.Setup(ctx, set, &r, passed...); err != nil {
		return nil, kernelEnded(err)
	}
	if b.seedBytes() > seedsInline {
		if err := b.place(ctx); err != nil {
			return nil, b.Explain("create box", err)
		}
	}
	cpu, err := b.LimitCPU()
	if err != nil {
		return nil, err
	}
	if limited && !cpu {
		b.Weaker = append(b.Weaker, weakCPU) // a group that was delegated without it
	}
	if !spec.Lasting {
		return b, nil
	}
	b.from = nil
	return t.keep(b)
}

// setupOf turns the spec into the runner's first message and its files.
func (t *Tier) setupOf(spec box.Spec, img *image.Image, b *gbox) (setup, []*os.File, error) {
	l := spec.Limits
	s := setup{
		ID: string(spec.ID), Dir: b.Dir, Hostname: spec.Hostname, Workdir: spec.Workdir, Debug: t.cfg.Debug,
		Numbers:  bootNumbers{Memory: uint64(l.Memory), CPUs: int(l.Processors()), Files: uint64(l.Files), Bytes: uint64(l.Disk)},
		Rlimits:  map[string]uint64{"RLIMIT_NPROC": uint64(l.Processes), "RLIMIT_NOFILE": uint64(l.OpenFiles), "RLIMIT_CORE": 0},
		ShmBytes: min(l.Memory/4, 64<<20),
	}
	if b.Group == nil {
		s.Rlimits["RLIMIT_AS"] = uint64(l.Memory) + addressSlack
		s.Watchdog = l.Memory
	}
	if spec.Lasting {
		s.limit(l.Processes, l.Memory)
		s.Lasting = &lasting{Env: []string{"PATH=" + b.path}, Memory: l.Memory, Alone: b.Group == nil}
	}
	// The system image and the store stay ours; the runner gets duplicates.
	var passed []*os.File
	system, err := t.systemFor(spec)
	if err != nil {
		return s, passed, err
	}
	for _, f := range []*os.File{img.File, system, b.Store} {
		d, err := host.Dup(f)
		if err != nil {
			return s, passed, err
		}
		passed = append(passed, d)
	}
	uid, _ := t.HostUser(spec.ID)
	mounts, trees, err := t.Mounts(spec, img, uid)
	passed = append(passed, trees...)
	if err != nil {
		return s, passed, err
	}
	volumes, trees, weak, err := t.Volumes(spec, img)
	passed, b.Weaker = append(passed, trees...), append(b.Weaker, weak...)
	if err == nil {
		err = b.KeepVolumes(spec.Volumes, trees)
	}
	if err != nil {
		return s, passed, err
	}
	s.Mounts = append(mounts, volumes...)
	var dirs []string
	if spec.Image == box.ImageBase && spec.Workdir != image.DefaultWorkdir {
		dirs = append(dirs, spec.Workdir) // the image is the same for everybody
	}
	if b.from != nil {
		dirs = nil // they are in the copy
	}
	if len(spec.Seeds) > 0 && b.seedBytes() <= seedsInline || len(spec.Seeds) == 0 && len(dirs) > 0 {
		sealed, err := b.SeedArchive(dirs...)
		if err != nil {
			return s, passed, err
		}
		passed, s.Seeds = append(passed, sealed), true
	}
	if spec.Lasting && !b.from.memory() { // a copied agent knows nothing of it
		theirs, err := b.openStream()
		if err != nil {
			return s, passed, err
		}
		passed = append(passed, theirs)
	}
	if spec.Net.Mode == box.NetAllowlist {
		ours, theirs, err := nic.Pair()
		if err != nil {
			return s, passed, err
		}
		passed, s.Linked = append(passed, theirs, ours), true
		fault.Here("gvisor.link-made")
	}
	if b.from != nil {
		parts, err := b.from.pass()
		if err != nil {
			return s, passed, err
		}
		passed, s.From = append(passed, parts...), b.from.head.Kind
		s.Lossy = b.from.lossy
	}
	return s, passed, nil
}

// addressSlack is what a process may map beyond the memory limit where only
// RLIMIT_AS bounds it: interpreters reserve address space that they never use,
// V8 10 GiB for every memory of a WebAssembly module. What is really used is
// the watchdog's business.
const addressSlack = 128 << 30

// adapter implements frame.Adapter.
type adapter struct{ b *gbox }

// rootCaps is what guest root may do in the guest. None of it reaches the host.
var rootCaps = [...]string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID", "CAP_SETUID", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT"} //house:const capability names

func (a adapter) Exec(cmd box.Command) (wire.Exec, error) {
	if err := checkText(cmd); err != nil {
		return wire.Exec{}, err
	}
	e := wire.Exec{Argv: cmd.Argv, Env: cmd.Env, Dir: cmd.Dir, TTY: cmd.TTY != nil}
	if !slices.ContainsFunc(e.Env, func(v string) bool { return strings.HasPrefix(v, "PATH=") }) {
		e.Env = append(slices.Clone(e.Env), "PATH="+a.b.path)
	}
	if cmd.User == box.UserRoot {
		e.Root, e.Caps = true, rootCaps[:]
	}
	return e, nil
}

func (a adapter) NotStarted(cmd box.Command, err error) error { return cannotRun(cmd.Argv[0], err) }

func (a adapter) Written() int64 { return host.Allocated(a.b.Store) }

// Full is true to within one allocation of the guest kernel's.
func (a adapter) Full() bool { return a.Written()+64<<10 > a.b.Spec.Limits.Disk }

// Touched is empty: the guest's kernel tells of each limit as it is touched.
func (a adapter) Touched(cgroup.Stats) []box.LimitHit { return nil }
