package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/wire"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/blockfs"
	"github.com/sunaba-dev/sunaba/internal/tier/frame"
)

// storePart is the one part of a snapshot: what a store holds, as blockfs writes
// it out.
const storePart = "store"

// The versions that a snapshot is tied to.
const (
	needsImage = "image"
	needsStore = "store"
)

// own is what this tier says of a snapshot.
type own struct {
	Made  json.RawMessage // see frame.Made
	Fresh wire.Space      // of the store, when nothing was in it
	Disk  uint32          // who owns the box's files on the store
}

// Snappable implements box.Snapshotter.
func (b lastingBox) Snappable(kind box.SnapshotKind) error {
	const op = "snapshot box"
	switch {
	case kind != box.SnapshotFiles:
		return box.Errorf(box.Unsupported, op, "cannot copy what runs in box %s: the processes of tier process are the host kernel's, which gives none away", b.Spec.ID).
			WithHint("take a snapshot of the files, or use tier gvisor, whose kernel can be copied with all that runs")
	case b.dev == 0:
		return box.Errorf(box.Unsupported, op, "cannot copy the files of box %s: for an ordinary user they are in memory, and only the box itself reaches them all", b.Spec.ID).
			WithHint("run sunaba as root, or use tier gvisor, whose files are in a file")
	}
	return b.Pausable()
}

// Snapshot implements box.Snapshotter. What is in the store is handed out as it
// lies there, while the group holds whoever could change it.
func (b lastingBox) Snapshot(ctx context.Context, kind box.SnapshotKind, put func(string, io.Reader) error) (_ box.SnapshotHead, err error) {
	b.turn.Lock()
	defer b.turn.Unlock()
	if err := b.Snappable(kind); err != nil {
		return box.SnapshotHead{}, err
	}
	if !b.Frozen() {
		b.flush(ctx) // most of it now, so that the box stands for a short time
		b.held.Store(true)
		defer func() { err = errors.Join(err, b.goOn(context.WithoutCancel(ctx))) }()
		if err := b.Freeze(ctx); err != nil {
			return box.SnapshotHead{}, err
		}
	}
	store, err := b.openStore()
	if err != nil {
		return box.SnapshotHead{}, err
	}
	defer store.Close()
	if err := b.dump(ctx, store, put); err != nil {
		return box.SnapshotHead{}, b.notCopied(err)
	}
	head := box.SnapshotHead{Kind: kind, Tier: box.TierProcess, Needs: map[string]string{needsImage: b.Image, needsStore: blockfs.Format}}
	made, err := frame.Made(b.Spec)
	if err == nil {
		head.Own, err = json.Marshal(own{Made: made, Fresh: b.cell.Fresh, Disk: b.disk})
	}
	return head, err
}

// dump hands out the store, unless the box ends or what was written in it is not
// there.
func (b *pbox) dump(ctx context.Context, store *os.File, put func(string, io.Reader) error) error {
	r, w := io.Pipe()
	stop := context.AfterFunc(ctx, func() { w.CloseWithError(context.Cause(ctx)) })
	defer stop()
	done := make(chan error, 1)
	go func() {
		err := blockfs.Dump(store, alive{w, b.Child.Done()})
		if err == nil {
			err = blockfs.Damage(store)
		}
		w.CloseWithError(err) // nil is the end
		done <- err
	}()
	err := put(storePart, r)
	r.CloseWithError(errors.New("nobody takes it any more"))
	werr := <-done // it reads the store, which is closed after that
	if err == nil {
		err = werr
	}
	return err
}

// alive is a writer that fails once a box has ended.
type alive struct {
	io.Writer
	ended <-chan struct{}
}

func (a alive) Write(b []byte) (int, error) {
	select {
	case <-a.ended:
		return 0, errors.New("it has ended")
	default:
		return a.Writer.Write(b)
	}
}

func (b *pbox) notCopied(err error) error {
	if be, ok := errors.AsType[*box.Error](err); ok {
		return be
	}
	return fmt.Errorf("cannot copy the files of box %s: %w", b.Spec.ID, err)
}

// goOn lets a box run again that was held to be copied.
func (b lastingBox) goOn(ctx context.Context) error {
	if b.Frozen() {
		if err := b.Group.Thaw(ctx); err != nil {
			return err
		}
	}
	return b.awake(ctx)
}

// openStore opens the store anew. Of a box that was taken up as it stood still
// only the device is known: the store is looked for at a place where it is mounted
// in the box, below folders that nothing in the box can change.
func (b *pbox) openStore() (*os.File, error) {
	b.own.Lock()
	defer b.own.Unlock()
	switch {
	case b.closed:
		return nil, box.Errorf(box.NotFound, "snapshot box", "cannot copy the files of box %s: it was given up", b.Spec.ID)
	case b.fs != nil:
		return host.Dup(b.fs)
	}
	root, err := os.OpenRoot(fmt.Sprintf("/proc/%d/root", b.Child.Pid()))
	if err != nil {
		return nil, fmt.Errorf("cannot find the store of box %s: %w", b.Spec.ID, err)
	}
	defer root.Close()
	f, err := root.OpenFile("var/tmp", syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot find the store of box %s: %w", b.Spec.ID, err)
	}
	if got, err := device(f); err != nil || got != b.dev {
		f.Close()
		return nil, errors.Join(fmt.Errorf("cannot find the store of box %s: another file system is in its place", b.Spec.ID), err)
	}
	return f, nil
}
