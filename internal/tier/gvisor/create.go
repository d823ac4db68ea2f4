package gvisor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gvisor.dev/gvisor/runsc/config"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/files"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/cgroup"
	"github.com/sunaba-dev/sunaba/internal/image"
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
	t     *Tier
	id    box.ID
	spec  box.Spec
	image string // name, with the digest where it has one
	dir   string
	lock  *os.File // held while this process owns the box
	store *os.File
	child *host.Child
	conn  *conn
	group *cgroup.Group // nil without one
	guard *janitor      // nil without one
	weak  []string

	placed []files.SeedRecord // what the seeds became
	path   string             // the image's PATH
}

// ID implements box.Box.
func (b *gbox) ID() box.ID { return b.id }

// Weak implements box.Box.
func (b *gbox) Weak() []string { return b.weak }

// Image names the root file system, with its digest if that is fixed.
func (b *gbox) Image() string { return b.image }

// Placed is what was put into the box before its start.
func (b *gbox) Placed() []files.SeedRecord { return b.placed }

// State implements box.Box.
func (b *gbox) State() []byte { return []byte(`{}`) }

// Create implements box.Tier. The order matters: whatever a box could use up
// is bounded before its first process exists, and the runner waits for its
// first message, which is sent when it stands in its group.
func (t *Tier) Create(ctx context.Context, spec box.Spec) (_ box.Box, err error) {
	b := &gbox{t: t, id: spec.ID, spec: spec, dir: filepath.Join(t.runDir(), string(spec.ID))}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Destroy(context.WithoutCancel(ctx)))
		}
	}()
	img, err := t.openImage(ctx, spec)
	if err != nil {
		return nil, err
	}
	defer img.File.Close()
	b.image, b.path = imageName(img), img.Path
	uid, gid := t.hostUser(spec.ID)
	if t.cfg.Janitor { // before the first thing with a name
		if b.guard, err = startJanitor(t.cfg.State, spec.ID); err != nil {
			return nil, err
		}
	}
	if b.lock, err = makeRunDir(b.dir, uid, gid); err != nil {
		return nil, err
	}
	if b.store, err = host.OpenUnlinked(t.storeDir()); err != nil {
		return nil, err
	}
	b.weak = t.weakStore()
	set, passed, err := t.setupOf(spec, img, b, uid, gid)
	defer closeAll(passed)
	if err != nil {
		return nil, err
	}
	if err := b.limit(); err != nil {
		return nil, err
	}
	if config.CgoEnabled && len(set.Mounts) > 0 {
		b.weak = append(b.weak, weakCgo)
	}
	if slices.ContainsFunc(spec.Mounts, func(m box.Mount) bool { return !m.ReadOnly }) {
		b.weak = append(b.weak, weakMount)
	}
	if err := b.start(uid, gid); err != nil {
		return nil, err
	}
	sctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var r ready
	if err := b.conn.call(sctx, "setup", set, &r, passed...); err != nil {
		return nil, b.explain("start sandbox", err)
	}
	if b.seedBytes() > seedsInline {
		if err := b.place(ctx); err != nil {
			return nil, b.explain("create box", err)
		}
	}
	// The quota comes last: it is the program's, not the start's.
	if b.group != nil {
		err := b.group.SetCPU(spec.Limits.MilliCPU)
		if err != nil && (t.root || box.KindOf(err) != box.Unusable) {
			return nil, err
		}
		if err != nil {
			b.weak = append(b.weak, weakCPU) // a group that was delegated without it
		}
	}
	return b, nil
}

func (t *Tier) openImage(ctx context.Context, spec box.Spec) (*image.Image, error) {
	if spec.Image == box.ImageBase {
		return t.cfg.Images.Base(ctx, image.BaseOptions{}, t.cfg.Progress)
	}
	opts := image.HostOptions{Workdir: spec.Workdir, Hostname: spec.Hostname, ExtraPrefixes: t.cfg.Prefixes}
	opts.Mounts = spec.Mounts
	return t.cfg.Images.Host(ctx, opts)
}

// imageName gives the name, with the digest for an image that has a fixed one.
func imageName(img *image.Image) string {
	if img.Name == box.ImageBase {
		return string(img.Name) + "@" + img.Digest
	}
	return string(img.Name)
}

// limit makes the box's group.
func (b *gbox) limit() error {
	l := b.spec.Limits
	if b.t.cfg.Groups != nil {
		g, err := b.t.cfg.Groups.Create(string(b.id), cgroup.Limits{
			Memory: l.Memory + memoryOverhead,
			Pids:   min(l.Processes*pidsPerTask+pidsOverhead, maxPids),
		})
		if err == nil {
			b.group = g
			return nil
		}
		if b.t.root || box.KindOf(err) != box.Unusable {
			return err
		}
	}
	b.weak = append(b.weak, weakMemory, weakCPU)
	return nil
}

// start spawns the runner and puts it into the group before it may do anything.
func (b *gbox) start(uid, gid int) error {
	link, theirs, err := host.LinkPair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	b.child, err = host.Spawn{Args: []string{argvRunner}, Files: []*os.File{theirs}, HostUID: uid, HostGID: gid}.Start()
	if err != nil {
		link.Close()
		return box.Errorf(box.Unusable, "create box", "%w", err).WithHint("run `sunaba doctor` to see which namespace this host refuses")
	}
	if b.group != nil {
		if err := b.group.Add(b.child.Pid()); err != nil {
			link.Close()
			return err
		}
	}
	b.conn = newConn(link)
	return nil
}

// explain says more about a failed start than the runner could.
func (b *gbox) explain(op string, err error) error {
	if b.group != nil {
		if s, serr := b.group.Stats(); serr == nil && s.OOMKills.N > 0 {
			return box.Errorf(box.Fault, op, "cannot %s: out of memory during the start (limit %d MiB)", op, b.spec.Limits.Memory>>20)
		}
	}
	// gVisor's words for a sentry that came to its end before it was up.
	if strings.Contains(err.Error(), "waiting for sandbox to start") {
		return box.Errorf(box.Fault, op, "cannot %s: its kernel ended while it started", op).
			WithHint("`sunaba doctor` tries each step; with SUNABA_DEBUG=FOLDER (writable for all) gVisor writes there what it did")
	}
	return box.Errorf(box.KindOf(err), op, "cannot %s: %w", op, err)
}

// setupOf turns the spec into the runner's first message and its files.
func (t *Tier) setupOf(spec box.Spec, img *image.Image, b *gbox, uid, gid int) (setup, []*os.File, error) {
	l := spec.Limits
	s := setup{
		ID: string(spec.ID), Dir: b.dir, Hostname: spec.Hostname, Workdir: spec.Workdir, Debug: t.cfg.Debug,
		Numbers:  bootNumbers{Memory: uint64(l.Memory), CPUs: cpus(l.MilliCPU), Files: uint64(l.Files), Bytes: uint64(l.Disk)},
		Rlimits:  map[string]uint64{"RLIMIT_NPROC": uint64(l.Processes), "RLIMIT_NOFILE": uint64(l.OpenFiles), "RLIMIT_CORE": 0},
		ShmBytes: min(l.Memory/4, 64<<20),
	}
	if t.cfg.Groups == nil || !t.root {
		s.Rlimits["RLIMIT_AS"] = uint64(l.Memory) + addressSlack
		s.Watchdog = l.Memory
	}
	// The system image and the store stay ours; the runner gets duplicates.
	var passed []*os.File
	for _, f := range []*os.File{img.File, t.system, b.store} {
		d, err := host.Dup(f)
		if err != nil {
			return s, passed, err
		}
		passed = append(passed, d)
	}
	mounts, trees, err := t.prepareMounts(spec, img, uid)
	passed = append(passed, trees...)
	if err != nil {
		return s, passed, err
	}
	s.Mounts = mounts
	if len(spec.Seeds) > 0 && b.seedBytes() <= seedsInline {
		f, err := host.OpenUnlinked(t.storeDir())
		if err != nil {
			return s, passed, err
		}
		defer f.Close()
		if b.placed, err = files.BuildSeedTar(f, spec.Seeds, host.BoxUser, host.BoxUser, nil); err != nil {
			return s, passed, err
		}
		sealed, err := host.Seal(f)
		if err != nil {
			return s, passed, err
		}
		passed, s.Seeds = append(passed, sealed), true
	}
	return s, passed, nil
}

// addressSlack is what a process may map beyond the memory limit where only
// RLIMIT_AS bounds it: interpreters reserve address space that they never use,
// V8 10 GiB for every memory of a WebAssembly module. What is really used is
// the watchdog's business.
const addressSlack = 128 << 30

// cpus is the number of processors the guest sees: the quota, rounded up.
func cpus(milli int64) int { return int(math.Ceil(float64(milli) / 1000)) }

// makeRunDir makes the folder that only the box's host user can enter. It
// holds the box's name; the lock that comes back says that its front is alive.
func makeRunDir(dir string, uid, gid int) (*os.File, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make run folder: %w", err)
	}
	lock, err := host.Lock(dir)
	if err != nil {
		return nil, err
	}
	if uid != os.Getuid() {
		if err := lock.Chown(uid, gid); err != nil {
			lock.Close()
			return nil, fmt.Errorf("cannot give run folder to the box's user: %w", err)
		}
	}
	return lock, nil
}

// destroyTimeout bounds the removal of one box from the host.
const destroyTimeout = 10 * time.Second
