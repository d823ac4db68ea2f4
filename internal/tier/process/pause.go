package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/tier/frame"
)

// Bounds of a pause: of writing out, which goes on by itself after that, and of
// what a thawed cell is asked.
const (
	flushTime = 5 * time.Second
	awakeTime = 10 * time.Second
)

// Pause implements box.Pauser. The group holds everything of the box, the cell
// and the agent, too.
func (b lastingBox) Pause(ctx context.Context) error {
	b.turn.Lock()
	defer b.turn.Unlock()
	if err := b.Pausable(); err != nil {
		return err
	}
	if !b.Frozen() {
		b.flush(ctx)
	}
	b.held.Store(true)
	if err := b.Freeze(ctx); err != nil {
		return errors.Join(err, b.awake(ctx))
	}
	return nil
}

// flush has the store written out, as far as that is done in time. What is
// missing is in the host's memory, which keeps it.
func (b *pbox) flush(ctx context.Context) {
	b.own.Lock()
	var fs *os.File
	if b.fs != nil && !b.closed {
		fs, _ = host.Dup(b.fs) // without a descriptor left, the host's kernel writes later
	}
	b.own.Unlock()
	if fs == nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer fs.Close()
		_ = host.SyncFS(fs) // a store that lost something is told of by damage
	}()
	patience := time.NewTimer(flushTime)
	defer patience.Stop()
	select {
	case <-done:
	case <-patience.C:
	case <-ctx.Done():
	}
}

// Resume implements box.Pauser.
func (b lastingBox) Resume(ctx context.Context) error {
	b.turn.Lock()
	defer b.turn.Unlock()
	if b.Frozen() {
		if err := b.Group.Thaw(ctx); err != nil {
			return err
		}
	}
	return b.awake(ctx)
}

// awake is for a box that runs again. One that this front took up as it stood
// still is asked now what its cell could not say then; if it does not answer as it
// should, it is ended, since nobody watches it; if it does not answer in time, it
// is held again.
func (b lastingBox) awake(ctx context.Context) error {
	if b.asleep != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), awakeTime)
		defer cancel()
		err := b.takeUp(ctx, *b.asleep)
		if err != nil && frame.Passes(err) { // it is as it was
			return box.Errorf(box.Unavailable, "resume box", "cannot resume box %s: %w", b.Spec.ID, errors.Join(err, b.Freeze(context.WithoutCancel(ctx))))
		}
		if err != nil {
			b.Child.Kill()
			return box.Errorf(box.NotFound, "resume box", "cannot resume box %s: %w", b.Spec.ID, err)
		}
		b.asleep = nil
	}
	b.held.Store(false)
	return nil
}

// takeUp gets from the cell what a front needs, and begins to watch.
func (b *pbox) takeUp(ctx context.Context, k kept) error {
	var fs *os.File
	var err error
	if k.Dev != 0 {
		fs, err = b.storeOf(ctx, k.Dev)
	} else {
		err = b.Conn.Call(ctx, "space", struct{}{}, nil) // it answers
	}
	if err != nil {
		return err
	}
	b.own.Lock()
	defer b.own.Unlock()
	if b.closed {
		if fs != nil {
			fs.Close()
		}
		return errors.New("it was given up meanwhile")
	}
	b.fs = fs
	b.dog, err = b.watch()
	return err
}

// storeOf gets the store from the cell and makes sure that it is the box's.
func (b *pbox) storeOf(ctx context.Context, dev uint64) (*os.File, error) {
	ends, err := b.Conn.CallForFiles(ctx, 1, "store", struct{}{}, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot get its store: %w", err)
	}
	got, err := device(ends[0])
	if err == nil && got != dev {
		err = fmt.Errorf("cannot use its store: what came is on another device")
	}
	if err != nil {
		ends[0].Close()
		return nil, err
	}
	return ends[0], nil
}

// shut ends the watch, and returns it with the store: nothing is added to them
// any more.
func (b *pbox) shut() (*watchdog, *os.File) {
	b.own.Lock()
	defer b.own.Unlock()
	b.closed = true
	b.dog.stop()
	return b.dog, b.fs
}
