package frame

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/wire"
	"github.com/sunaba-dev/sunaba/internal/fault"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/cgroup"
	"github.com/sunaba-dev/sunaba/internal/host/hostfs"
	"github.com/sunaba-dev/sunaba/internal/stream"
)

// Take takes up a box that lasts from what its State said, and fills in own.
// Next is the tier's part.
//
// An error of kind NotFound says that the box was lost, and that nothing of it is
// left. One of kind Unavailable says that it is there, and that nothing was done
// to it: the caller gave up, this host was short of something, or the first
// process lives and did not answer in time. It can be tried again.
func (s *Site) Take(ctx context.Context, b *Box, tier box.TierName, id box.ID, raw []byte, adapt Adapter, own any, next func(context.Context) error) error {
	err := s.take(b, tier, id, raw, adapt, own)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		err = next(ctx)
		cancel()
	}
	if err == nil {
		return nil
	}
	passes := Passes(err) && !b.hasEnded()
	b.Detach()
	if ctx.Err() != nil || passes {
		return box.Errorf(box.Unavailable, "recover box", "cannot recover box %s: %w", id, errors.Join(ctx.Err(), err))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), destroyTimeout)
	defer cancel()
	if id.Valid() {
		if said := s.leftWords(id); said != "" {
			err = fmt.Errorf("%w; it ended before: %s", err, said)
		}
		if derr := s.drop(ctx, id); derr != nil { // what is left keeps its row, too
			return box.Errorf(box.Unavailable, "recover box", "cannot recover box %s: %w", id, errors.Join(err, derr))
		}
	}
	return box.Errorf(box.NotFound, "recover box", "cannot recover box %s: %w", id, err)
}

// wordsBytes is how much of them is told: a panic begins with what it was, and where.
const wordsBytes = 1024

// leftWords is what a first process said that ended while no front was there. The
// folder is the box's user's: nothing else is read by this name.
func (s *Site) leftWords(id box.ID) string {
	f, info, err := hostfs.OpenInput(filepath.Join(s.homeOf(id), runName, wire.EndingFile))
	if err != nil {
		return ""
	}
	defer f.Close()
	uid, _ := s.HostUser(id)
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != uint32(uid) || st.Nlink != 1 {
		return ""
	}
	said := make([]byte, wordsBytes)
	n, _ := f.Read(said)
	return stream.Clean(said[:n])
}

// Passes reports whether an error in talking to a first process says nothing of
// the box: it may be over another time.
func Passes(err error) bool {
	return host.IsShortage(err) || errors.Is(err, context.DeadlineExceeded)
}

// hasEnded reports whether the first process is known to have ended.
func (b *Box) hasEnded() bool {
	if b.Child == nil {
		return false
	}
	select {
	case <-b.Child.Done():
		return true
	default:
		return false
	}
}

func (s *Site) take(b *Box, tier box.TierName, id box.ID, raw []byte, adapt Adapter, own any) error {
	var st state
	if err := json.Unmarshal(raw, &st); err != nil {
		return fmt.Errorf("cannot read its state: %w", err)
	}
	if st.Spec.ID != id || !id.Valid() || st.Tier != tier || !st.Spec.Lasting {
		return fmt.Errorf("its state is of another box, %q of tier %q", st.Spec.ID, st.Tier)
	}
	if err := json.Unmarshal(st.Own, own); err != nil {
		return fmt.Errorf("cannot read its state: %w", err)
	}
	b.Spec, b.site, b.adapt, b.home, b.state = st.Spec.spec(), s, adapt, s.homeOf(id), raw
	b.Dir, b.Image, b.Weaker, b.created, b.first = filepath.Join(b.home, runName), st.Image, st.Weak, st.Created, st.First
	uid, _ := s.HostUser(id)
	var err error
	if b.Child, err = host.Adopt(st.First, uid); err != nil {
		return err
	}
	link, err := host.DialAt(b.home, linkName)
	if err != nil {
		return err
	}
	b.Conn = wire.NewConn(link)
	b.Conn.OnLimit(b.noteLimit)
	if s.Groups != nil {
		b.Group, err = s.Groups.Open(string(id))
		if err != nil && (s.Root() || box.KindOf(err) != box.NotFound) {
			return err
		}
	}
	return nil
}

// drop ends a box that lasts of which only the name is known, and removes what
// is left of it.
func (s *Site) drop(ctx context.Context, id box.ID) error {
	fault.Here("frame.drop-begun")
	home := s.homeOf(id)
	var errs []error
	var first host.Identity
	g, err := s.groupOf(id)
	if err != nil {
		return err
	}
	raw, err := os.ReadFile(filepath.Join(home, firstName))
	if err == nil && json.Unmarshal(raw, &first) == nil {
		uid, _ := s.HostUser(id)
		var c *host.Child
		if c, err = host.Adopt(first, uid); err == nil {
			errs = append(errs, endFirst(ctx, id, c, g))
			c.Release()
		}
	}
	if host.IsShortage(err) { // else there is no such process
		return fmt.Errorf("cannot destroy box %s: %w", id, err)
	}
	if g != nil {
		s.Groups.Tidy()
		errs = append(errs, g.Kill(ctx), g.Remove(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return err // the folder stays, and with it the name
	}
	fault.Here("frame.drop-ended")
	err = removeDir(ctx, home)
	fault.Here("frame.dropped")
	return err
}

// groupOf opens a box's control group; nil if there is none.
func (s *Site) groupOf(id box.ID) (*cgroup.Group, error) {
	if s.Groups == nil {
		return nil, nil
	}
	g, err := s.Groups.Open(string(id))
	if box.KindOf(err) == box.NotFound {
		return nil, nil
	}
	return g, err
}
