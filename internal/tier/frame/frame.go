// Package frame is what every tier whose boxes are processes of this host has
// around its walls: the box's name and run folder, its host user, control
// group and mounts, its first process and the link to it, the streams of a
// program and how a run ends, the janitor, and the removal of it all.
//
// A tier makes a [Box] with [Site.Begin], bounds it, spawns its first process,
// which waits for a message, and sends it a setup of its own making. From then
// on the frame speaks to it (package wire). What differs is in the tier's
// [Adapter].
package frame

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/wire"
	"github.com/sunaba-dev/sunaba/internal/fault"
	"github.com/sunaba-dev/sunaba/internal/files"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/cgroup"
	"github.com/sunaba-dev/sunaba/internal/tier/frame/janitor"
)

// Times that bound each step of a box's start, each short call, and a box's
// removal from the host.
const (
	StartTimeout   = 30 * time.Second
	callTimeout    = 10 * time.Second
	destroyTimeout = 10 * time.Second
)

// Site is where the boxes of a tier stand.
type Site struct {
	State  string          // folder for run folders and stores; the caller's own
	Groups *cgroup.Manager // nil where no group can be made
	// Janitor starts a helper beside each box that clears its group and run
	// folder if this process dies without doing so.
	Janitor bool
	// Program is the small program, sealed, that janitors are started from; this
	// program if nil.
	Program *os.File
}

// Root reports whether this process may choose host users and make groups.
func (s *Site) Root() bool { return host.IsRoot() }

// RunDir holds one folder for each box, StoreDir the files behind them, which
// have no names.
func (s *Site) RunDir() string { return janitor.RunDir(s.State) }

// StoreDir is on the disk that boxes write to.
func (s *Site) StoreDir() string { return s.State + "/store" }

// Prepare makes the site's folders.
func (s *Site) Prepare() error {
	for _, d := range []string{s.RunDir(), s.StoreDir()} {
		if err := os.Mkdir(d, 0o711); err != nil && !os.IsExist(err) {
			return fmt.Errorf("cannot make state folder: %w", err)
		}
	}
	return nil
}

// HostUser chooses who a box is on the host. Root's boxes get one user each,
// from a range that no distribution assigns (0x70000000 and up; see
// systemd's UIDS-GIDS document for those it does); an ordinary user's boxes
// are that user.
func (s *Site) HostUser(id box.ID) (uid, gid int) {
	if !s.Root() {
		return os.Getuid(), os.Getgid()
	}
	h := fnv.New32a()
	h.Write([]byte(id))
	n := 0x70000000 + int(h.Sum32()&0xffffff)
	return n, n
}

// Free reports whether nobody else's box on this host has the user that a box of
// this name would have, whatever program made it: there are 2^24 users. Root's
// boxes have groups, and those have their names. An ordinary user's boxes are all
// that user.
func (s *Site) Free(id box.ID) (bool, error) {
	if !s.Root() || s.Groups == nil {
		return true, nil
	}
	names, err := s.Groups.List()
	if err != nil {
		return false, err
	}
	uid, _ := s.HostUser(id)
	for _, n := range names {
		other := box.ID(n)
		if theirs, _ := s.HostUser(other); other != id && other.Valid() && theirs == uid {
			return false, nil
		}
	}
	return true, nil
}

// Adapter is what a tier's boxes differ in.
type Adapter interface {
	// Exec turns a command into the request that starts it, or says what is
	// wrong with it.
	Exec(box.Command) (wire.Exec, error)
	// NotStarted says why a program was not started, in words for the caller.
	NotStarted(cmd box.Command, err error) error
	// Full reports whether the writable places hold all that they may, and
	// Written how many bytes they hold.
	Full() bool
	Written() int64
	// Touched lists the limits that the program has run into, for a tier whose
	// first process does not tell of them as they happen. It is asked now and
	// then while a program runs whose limits end it, and once at its end. It is
	// given the account of the box's group, which has no source where there is none.
	Touched(cgroup.Stats) []box.LimitHit
}

// Terminals is what an Adapter implements if a box has terminals of its own
// rather than the host's.
type Terminals interface {
	Terminal(size box.WindowSize) (master, replica *os.File, err error)
}

// Box is the frame of one box. It implements box.Box but for what the tier
// adds.
type Box struct {
	Spec  box.Spec
	Dir   string   // run folder
	Store *os.File // what is written; nil if the tier counts otherwise
	Image string   // name of the root file system, with its digest if that is fixed
	Child *host.Child
	Conn  *wire.Conn
	Group *cgroup.Group // nil without one

	Seeded []files.SeedRecord // what the seeds became
	Weaker []string           // see box.Box.Weak

	// Kills for want of memory that were seen, and those that belong to runs that
	// are over.
	kills, told atomic.Int64

	ending atomic.Bool // Destroy was called; see Freeze

	shelves struct { // volumes that the box may write to
		sync.Mutex
		all []shelf
	}

	site  *Site
	adapt Adapter
	lock  *os.File // held while this process owns the box
	guard *guard   // nil without one

	// Of a box that lasts.
	home    string // its folder, in which Dir is
	first   host.Identity
	created time.Time
	bound   sync.Mutex // for state, and for Weaker after the start; see Bind
	state   []byte
	book    book
}

// ID implements box.Box.
func (b *Box) ID() box.ID { return b.Spec.ID }

// Weak implements box.Box.
func (b *Box) Weak() []string {
	b.bound.Lock()
	defer b.bound.Unlock()
	return b.Weaker
}

// RootImage names the root file system, with its digest if that is fixed.
func (b *Box) RootImage() string { return b.Image }

// Placed is what was put into the box before its start.
func (b *Box) Placed() []files.SeedRecord { return b.Seeded }

// State implements box.Box. One that does not last lives as long as the process
// that made it.
func (b *Box) State() []byte {
	b.bound.Lock()
	defer b.bound.Unlock()
	if b.state == nil {
		return []byte(`{}`)
	}
	return b.state
}

// Begin names a box on the host: its janitor and its run folder. Whatever
// follows, Destroy undoes it.
func (s *Site) Begin(b *Box, spec box.Spec, adapt Adapter) error {
	b.Spec, b.site, b.adapt = spec, s, adapt
	if spec.Lasting {
		return b.beginLasting()
	}
	b.Dir = filepath.Join(s.RunDir(), string(spec.ID))
	var err error
	if s.Janitor { // before the first thing with a name
		if b.guard, err = startJanitor(s.Program, s.State, spec.ID); err != nil {
			return err
		}
	}
	uid, gid := s.HostUser(spec.ID)
	b.lock, err = makeRunDir(b.Dir, uid, gid)
	return err
}

// Limit makes the box's group. It returns false where this host lets an
// ordinary user have none; for root that is an error.
func (b *Box) Limit(l cgroup.Limits) (bool, error) {
	if b.site.Groups == nil {
		return false, nil
	}
	g, err := b.site.Groups.Create(string(b.Spec.ID), l)
	if err == nil {
		b.Group = g
		fault.Here("frame.limited")
		// Now that the group is there for others to see: of two that are made at
		// this moment, one sees the other.
		if free, err := b.site.Free(b.Spec.ID); !free {
			return true, errors.Join(box.Errorf(box.Unavailable, "create box", "cannot make box %s: another box has its host user", b.Spec.ID), err)
		}
		return true, nil
	}
	if b.site.Root() || box.KindOf(err) != box.Unusable {
		return false, err
	}
	return false, nil
}

// LimitCPU sets the group's quota. It comes last: it is the program's, not the
// start's. False means that the group was delegated without it.
func (b *Box) LimitCPU() (bool, error) { return b.limitCPU(b.Spec.Limits.MilliCPU) }

func (b *Box) limitCPU(milli int64) (bool, error) {
	if b.Group == nil {
		return false, nil
	}
	err := b.Group.SetCPU(milli)
	if err != nil && (b.site.Root() || box.KindOf(err) != box.Unusable) {
		return false, err
	}
	return err == nil, nil
}

// Spawn starts the box's first process and puts it into the group before it may
// do anything.
func (b *Box) Spawn(s host.Spawn) error {
	link, theirs, err := b.linkPair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	s.Lasting = b.Spec.Lasting
	s.HostUID, s.HostGID = b.site.HostUser(b.Spec.ID)
	s.Files = append([]*os.File{theirs}, s.Files...)
	if b.Child, err = s.Start(); err != nil {
		link.Close()
		return box.Errorf(box.Unusable, "create box", "%w", err).WithHint("run `sunaba doctor`: it says which step this host refuses, and what to do about it")
	}
	fault.Here("frame.spawned")
	b.Conn = wire.NewConn(link)
	if b.Group != nil {
		err := b.Group.Add(b.Child.Pid())
		if errors.Is(err, syscall.ESRCH) {
			theirs.Close() // so that the link ends
			return b.Explain("start sandbox", b.goneBecause(context.Background(), wire.ErrGone))
		}
		if err != nil {
			return err
		}
	}
	fault.Here("frame.grouped")
	if b.Spec.Lasting {
		return b.rememberFirst()
	}
	return nil
}

// Setup sends the first request and waits for its answer, for StartTimeout at most.
func (b *Box) Setup(asked context.Context, in, out any, passed ...*os.File) error {
	ctx, cancel := context.WithTimeout(asked, StartTimeout)
	defer cancel()
	if err := b.Conn.Call(ctx, "setup", in, out, passed...); err != nil {
		err = tooLate(asked, err)
		if errors.Is(err, wire.ErrGone) {
			err = b.goneBecause(ctx, err)
		}
		return b.Explain("start sandbox", err)
	}
	fault.Here("frame.set-up")
	return nil
}

// tooLate tells StartTimeout from the end of who asked. The next try may go well; of a
// copy that is damaged, though, a kernel may wait for ever for what is not there.
func tooLate(asked context.Context, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) || asked.Err() != nil {
		return err
	}
	return box.Errorf(box.Unavailable, "start sandbox", "it was not up within %v, this host may have too much to do: %w", StartTimeout, err)
}

// Explain says more about a failed start than the first process could.
func (b *Box) Explain(op string, err error) error {
	if b.Group != nil {
		if s, serr := b.Group.Stats(); serr == nil && s.OutOfMemory() {
			return box.Errorf(box.Fault, op, "cannot %s: out of memory during the start (limit %d MiB)", op, b.Spec.Limits.Memory>>20)
		}
	}
	return box.Errorf(box.KindOf(err), op, "cannot %s: %w", op, err)
}

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
			if errors.Is(err, syscall.EINVAL) { // chown(2): the id is not mapped
				return nil, box.Errorf(box.Unusable, "create box", "cannot give a box a user of its own: root here is root of a user namespace that does not have user %d", uid).
					WithHint("run sunaba as an ordinary user of this container")
			}
			return nil, fmt.Errorf("cannot give run folder to the box's user: %w", err)
		}
	}
	return lock, nil
}

// CloseAll closes files, nil ones aside.
func CloseAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}
