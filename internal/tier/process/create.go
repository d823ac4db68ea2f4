package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/cell"
	"github.com/sunaba-dev/sunaba/internal/fault"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/blockfs"
	"github.com/sunaba-dev/sunaba/internal/host/cgroup"
	"github.com/sunaba-dev/sunaba/internal/host/confine"
	"github.com/sunaba-dev/sunaba/internal/host/jail"
	"github.com/sunaba-dev/sunaba/internal/image"
	"github.com/sunaba-dev/sunaba/internal/tier/frame"
)

// What the cell itself needs in a box's group beyond the program's limits:
// memory, and, until it says how many threads it has, tasks.
const (
	memoryOverhead = 16 << 20
	startTasks     = 64
	maxPids        = 1 << 22 // PID_MAX_LIMIT on 64 bits: proc(5); pids.max takes no more
)

// signals is how many queued signals and POSIX timers a box may have together
// (RLIMIT_SIGPENDING of getrlimit(2)). The kernel counts them also against the
// user that made the box's user namespace, so that without a bound of its own
// one box would take those of all others of that user, and the user's own:
// inc_rlimit_get_ucounts in Linux kernel/ucount.c.
const (
	signals          = 1024
	rlimitSigpending = 11 // asm-generic/resource.h
)

// Capabilities that the cell needs over its own namespaces, beside
// CAP_SYS_ADMIN, until its jail stands: capability numbers of linux/capability.h.
const (
	capSetpcap  = 8  // to empty the bounding set
	capNetAdmin = 12 // to make network interfaces, and raise them
	capNetRaw   = 13 // to read the other end of one
	capResource = 24 // to bound what it may watch
)

func cellCaps(spec box.Spec) []uintptr {
	caps := []uintptr{capSetpcap, capNetAdmin, capResource}
	if spec.Net.Mode == box.NetAllowlist {
		caps = append(caps, capNetRaw)
	}
	return caps
}

// What a host may be unable to enforce, in the words that a box reports.
const (
	weakMemory = "memory: no control group is usable here; each process's address space is bounded and the box is sampled and ended when it is over the limit"
	weakCPU    = "cpu: no control group is usable here; the box may use more time than its quota"
	weakMount  = "disk: what a program writes into a folder of the host is bounded by that folder's file system alone"
)

// pbox implements box.Box.
type pbox struct {
	frame.Box
	path string   // the image's PATH
	from *copied  // what the store is made of; nil for an empty one
	disk uint32   // who owns the box's files on the store
	dev  uint64   // that the store is, of a box that lasts; 0 if it is the box's own tmpfs
	tree *os.File // extracted image, held while the box lives; nil if it is mounted
	fs   *os.File // store, detached; nil if it is a tmpfs of the box's own
	cell cell.Ready
	dog  *watchdog // nil before the box stands
	// Tasks that the group has refused, and those that belong to runs that are over.
	refused, told atomic.Int64

	// Of a box that stands still, or did.
	turn   sync.Mutex  // held by Pause and Resume
	asleep *kept       // what is to be asked of a cell that was taken up as it stood still; nil without
	held   atomic.Bool // nobody in the box answers, and nothing changes
	own    sync.Mutex  // for fs and dog, which Resume may bring
	closed bool
}

// Create implements box.Tier.
func (t *Tier) Create(ctx context.Context, spec box.Spec) (box.Box, error) {
	return t.create(ctx, spec, nil)
}

func (t *Tier) create(ctx context.Context, spec box.Spec, from *copied) (_ box.Box, err error) {
	b := &pbox{from: from}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Destroy(context.WithoutCancel(ctx)))
		}
	}()
	l := spec.Limits
	var set cell.Setup
	var passed []*os.File
	defer func() { frame.CloseAll(passed) }()
	var limited bool
	bounded := make(chan struct{})
	// The first process starts, and waits for its first message, while that is
	// prepared.
	err = frame.Together(func() error {
		img, name, err := t.cfg.Images.Open(ctx, spec)
		if err != nil {
			return err
		}
		defer img.Close()
		b.Image, b.path = name, img.Path
		if err := from.fits(name); err != nil {
			return err
		}
		<-bounded
		set, passed, err = t.setupOf(ctx, spec, img, b)
		return err
	}, func() error {
		err := t.Begin(&b.Box, spec, adapter{b})
		if err == nil {
			limited, err = b.Limit(cgroup.Limits{
				Memory: l.Memory + overhead(spec), Pids: min(l.Processes+startTasks, maxPids), KillOne: spec.Lasting,
			})
		}
		close(bounded)
		if err != nil {
			return err
		}
		return b.Spawn(t.cell(spec))
	})
	if err != nil {
		return nil, err
	}
	if !limited {
		b.Weaker = append(b.Weaker, weakMemory, weakCPU)
	}
	if l.OnLimit == box.LimitKill {
		b.Weaker = append(b.Weaker, sampled(limited))
	}
	if slices.ContainsFunc(spec.Mounts, func(m box.Mount) bool { return !m.ReadOnly }) {
		b.Weaker = append(b.Weaker, weakMount)
	}
	var ready cell.Ready
	if err := b.Setup(ctx, set, &ready, passed...); err != nil {
		return nil, err
	}
	b.Weaker = append(b.Weaker, ready.Applied.Weak...)
	b.cell = ready
	if from != nil {
		b.cell.Fresh = from.own.Fresh
		b.from = nil // its files are the caller's
	}
	if err := b.allow(0); err != nil {
		return nil, err
	}
	cpu, err := b.LimitCPU()
	if err != nil {
		return nil, err
	}
	if limited && !cpu {
		b.Weaker = append(b.Weaker, weakCPU)
	}
	if b.dog, err = b.watch(); err != nil {
		return nil, err
	}
	if !spec.Lasting {
		return b, nil
	}
	return t.keep(b)
}

// cell describes the box's first process.
func (t *Tier) cell(spec box.Spec) host.Spawn {
	s := host.Spawn{Args: []string{cell.ArgvCell}, Exe: t.agent, Caps: cellCaps(spec)}
	if t.first != nil {
		s.Files, s.Exe = []*os.File{t.agent}, t.first
	}
	return s
}

// allow makes the group take exactly as many tasks as the limit says, and some
// more, beside the threads of the cell.
func (b *pbox) allow(more int64) error {
	if b.Group == nil {
		return nil // each program's own limit says so; see cell.Setup
	}
	if b.Spec.Lasting {
		more += cell.AgentTasks // the agent's own
	}
	return b.Group.SetPids(min(b.cell.Tasks+b.Spec.Limits.Processes+more, maxPids))
}

// Destroy implements box.Box.
func (b *pbox) Destroy(ctx context.Context) error {
	dog, fs := b.shut()
	err := frame.Together(func() error { return b.Box.Destroy(ctx) }, func() error {
		if fs != nil {
			_ = blockfs.Discard(fs) // nobody will read what was not written yet
			fs.Close()
		}
		return nil
	})
	dog.wait() // what it asks the cell ends with the cell
	if b.tree != nil {
		b.tree.Close()
	}
	return err
}

// setupOf turns the spec into the cell's first message and its files.
func (t *Tier) setupOf(ctx context.Context, spec box.Spec, img *image.Image, b *pbox) (cell.Setup, []*os.File, error) {
	l := spec.Limits
	uid, gid := t.HostUser(spec.ID)
	s := cell.Setup{
		Dir: b.Dir, Hostname: spec.Hostname, StoreBytes: l.Disk, StoreFiles: l.Files, ShmBytes: min(l.Memory/4, 64<<20),
		Writable: writable(spec.Workdir), HasStore: t.Root(), Kept: b.from != nil, HasSeeds: len(spec.Seeds) > 0,
		Linked:     spec.Net.Mode == box.NetAllowlist,
		Domain:     confine.Domain{ReadOnly: []string{"/"}, Devices: []string{"/dev"}},
		CellLimits: map[int]uint64{syscall.RLIMIT_NOFILE: uint64(l.OpenFiles), syscall.RLIMIT_CORE: 0, rlimitSigpending: signals},
	}
	for _, w := range s.Writable {
		s.Domain.Writable = append(s.Domain.Writable, w.Path)
	}
	s.Domain.Writable = append(s.Domain.Writable, "/dev/shm")
	if err := hidesNone(spec, s.Writable); err != nil {
		return s, nil, err
	}
	mounts, passed, err := t.Mounts(spec, img, uid)
	if err != nil {
		return s, passed, err
	}
	s.Apart = len(img.Binds)
	volumes, trees, weak, err := t.Volumes(spec, img)
	passed, b.Weaker = append(passed, trees...), append(b.Weaker, weak...)
	if err == nil {
		err = b.KeepVolumes(spec.Volumes, trees)
	}
	if err != nil {
		return s, passed, err
	}
	mounts = append(mounts, volumes...)
	for _, m := range mounts {
		s.Binds = append(s.Binds, m.Target)
		if !m.ReadOnly {
			s.Domain.Writable = append(s.Domain.Writable, m.Target)
			s.Domain.NoSetid = true
		}
	}
	if t.Root() {
		passed, err = t.asRoot(ctx, l, img, b, &s, uid, gid, passed)
	} else {
		err = t.asUser(ctx, l, img, b, &s, mounts)
	}
	if err != nil {
		return s, passed, err
	}
	if spec.Lasting && !t.Root() {
		roomToPass(&s)
	}
	if s.HasSeeds {
		sealed, err := b.SeedArchive()
		if err != nil {
			return s, passed, err
		}
		passed = append(passed, sealed)
	}
	if spec.Lasting {
		program, err := t.agentOf(&s, b)
		if err != nil {
			return s, passed, err
		}
		passed = append(passed, program...)
	}
	return s, passed, nil
}

// roomToPass lets the cell of a box that lasts keep its caller's limit of open
// files; its programs get their own from the agent. The kernel lets nobody pass a
// descriptor while more than that limit are in flight, by whomever of the same
// user (ETOOMANYREFS of unix(7)): with the programs' limit, as many descriptors
// in one box's sockets would keep all boxes of this user from their agents.
func roomToPass(s *cell.Setup) {
	n := s.CellLimits[syscall.RLIMIT_NOFILE]
	delete(s.CellLimits, syscall.RLIMIT_NOFILE)
	if s.Limits == nil {
		s.Limits = make(map[int]uint64)
	}
	s.Limits[syscall.RLIMIT_NOFILE] = n
}

// asRoot mounts the image and a store of a fixed size, and returns the files in
// the cell's order: root, store, devices, binds.
func (t *Tier) asRoot(ctx context.Context, l box.Limits, img *image.Image, b *pbox, s *cell.Setup, uid, gid int, binds []*os.File) ([]*os.File, error) {
	root, err := blockfs.MountImage(img.File)
	if err != nil {
		return binds, err
	}
	if err := t.makeStore(ctx, l, b, uid, gid); err != nil {
		root.Close()
		return binds, err
	}
	fault.Here("process.store-made")
	store, err := host.Dup(b.fs)
	if err != nil {
		root.Close()
		return binds, err
	}
	first := []*os.File{root, store}
	var more []string
	if s.Linked {
		more = []string{"tun"}
	}
	if devices, err := jail.Devices(more...); err == nil {
		s.HasDevices, first = true, append(first, devices)
	} else {
		b.Weaker = append(b.Weaker, fmt.Sprintf("devices: locks on them are shared with the host and other boxes: %v", err))
	}
	return append(first, binds...), nil
}

// asUser names an extracted image and bounds what only a process can bound.
func (t *Tier) asUser(ctx context.Context, l box.Limits, img *image.Image, b *pbox, s *cell.Setup, mounts []frame.Mount) error {
	if l.Disk > l.Memory {
		return box.Errorf(box.Unusable, "create box", "cannot bound the disk of a process box for an ordinary user: what it writes is in memory, and disk %d MiB is more than memory %d MiB", l.Disk>>20, l.Memory>>20).
			WithHint("set disk to at most the memory limit, or use tier gvisor, whose disk is on disk")
	}
	if len(img.Binds) == 0 { // its programs are in the state folder, not on the host
		if err := t.canExecute(); err != nil {
			return err
		}
	}
	var err error
	if b.tree, err = t.cfg.Images.Store.Tree(ctx, img, t.cfg.Images.Progress); err != nil {
		return err
	}
	st, err := b.tree.Stat()
	if err != nil {
		return fmt.Errorf("cannot look at extracted image: %w", err)
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("cannot look at extracted image: no inode")
	}
	s.Sources = []cell.Source{{Path: b.tree.Name(), Dev: uint64(sys.Dev), Ino: sys.Ino, ReadOnly: true}}
	for _, m := range mounts {
		s.Sources = append(s.Sources, cell.Source{Path: m.Source, Dev: m.Dev, Ino: m.Ino, ReadOnly: m.ReadOnly})
	}
	if b.Group != nil {
		return nil
	}
	const rlimitNproc = 6 // asm-generic/resource.h
	s.Limits = map[int]uint64{
		rlimitNproc:       uint64(l.Processes),
		syscall.RLIMIT_AS: uint64(l.Memory) + addressSlack,
	}
	return nil
}

// addressSlack is what a process may map beyond the memory limit where there is
// no control group: interpreters reserve address space that they never use, V8
// 10 GiB for every memory of a WebAssembly module. What is really used is the
// watchdog's business.
const addressSlack = 128 << 30

// hidesNone refuses a mount or volume at a folder above a place that a program of this
// tier can write to: the place would be gone.
func hidesNone(spec box.Spec, places []jail.Writable) error {
	hidden := func(target string) error {
		for _, w := range places {
			if strings.HasPrefix(w.Path, target+"/") {
				return box.Errorf(box.Invalid, "mount", "cannot mount anything at %s: in tier process it would hide the writable folder %s", target, w.Path).
					WithHint("choose a place where nothing is, such as /data")
			}
		}
		return nil
	}
	for _, m := range spec.Mounts {
		if err := hidden(m.Target); err != nil {
			return err
		}
	}
	for _, v := range spec.Volumes {
		if err := hidden(v.Target); err != nil {
			return box.Errorf(box.Invalid, "mount", "cannot use volume %q: %w", v.Name, err).WithHint("choose a place where nothing is, such as /data")
		}
	}
	return nil
}

// writable are the places that a program can write to; all share one store.
func writable(workdir string) []jail.Writable {
	w := []jail.Writable{{Path: workdir, Mode: 0o755}, {Path: "/tmp", Mode: 0o1777}, {Path: "/var/tmp", Mode: 0o1777}, {Path: "/home/user", Mode: 0o755}}
	return slices.DeleteFunc(w, func(x jail.Writable) bool { return x.Path != workdir && path.Clean(workdir) == x.Path })
}
