package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/stream"
)

// Held is a snapshot that was compared with its ID and is open.
type Held struct {
	box.Snapshot
	id     string
	leased []*os.File // those that have a name, and so can be opened by others
}

// Open opens a snapshot and compares all of it with its ID. Errors are Unusable
// and name it. It takes as long as reading it: see Held.Copy.
func (s *Store) Open(ctx context.Context, id string) (*Held, error) {
	h, err := s.open(ctx, id)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return h, err
}

func (s *Store) open(ctx context.Context, id string) (_ *Held, err error) {
	h := &Held{id: id, Snapshot: box.Snapshot{Parts: map[string]*os.File{}}}
	defer func() {
		if err != nil {
			h.Close()
		}
	}()
	m, err := s.openParts(h)
	if err != nil {
		return nil, err
	}
	h.SnapshotHead = m.head()
	for _, p := range m.Parts {
		if err := s.checked(ctx, h, p); err != nil {
			return nil, unusable(id, fmt.Errorf("part %s: %w", p.Name, err))
		}
	}
	return h, h.Firm()
}

// openParts opens all files of a snapshot while no name comes or goes.
func (s *Store) openParts(h *Held) (manifest, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	m, err := s.manifest(h.id)
	if err != nil {
		return m, err
	}
	for _, p := range m.Parts {
		f, st, err := s.openFile(p.SHA256)
		if err == nil && st.Size() != p.Bytes {
			err = fmt.Errorf("it has %d bytes instead of %d", st.Size(), p.Bytes)
			f.Close()
		}
		if err != nil {
			return m, unusable(h.id, fmt.Errorf("part %s: %w", p.Name, err))
		}
		h.Parts[p.Name] = f
	}
	return m, nil
}

// checked compares a part on the descriptor that is then used.
func (s *Store) checked(ctx context.Context, h *Held, p part) error {
	f := h.Parts[p.Name]
	err := s.lease(f)
	if err == nil {
		h.leased = append(h.leased, f)
		return compare(ctx, f, p, io.Discard)
	}
	if errors.Is(err, host.ErrWritten) {
		return err
	}
	// There are no leases on this file system.
	c, err := s.unnamed()
	if err != nil {
		return full(err)
	}
	defer c.Close()
	if err := compare(ctx, f, p, plain{c}); err != nil {
		return err
	}
	again, err := os.Open(host.FDPath(c.Fd())) // for reading only
	if err != nil {
		return err
	}
	h.Parts[p.Name] = again
	return f.Close()
}

func compare(ctx context.Context, f *os.File, p part, to io.Writer) error {
	sum := sha256.New()
	n, err := io.CopyBuffer(io.MultiWriter(sum, to), stream.While(ctx, io.NewSectionReader(f, 0, p.Bytes+1)), make([]byte, 1<<20))
	switch {
	case err != nil:
		return err
	case n != p.Bytes:
		return fmt.Errorf("it has not the %d bytes that it had", p.Bytes)
	case hex.EncodeToString(sum.Sum(nil)) != p.SHA256:
		return errors.New("it was changed: it has another digest")
	}
	return nil
}

// unnamed makes a file that nobody else can open.
func (s *Store) unnamed() (*os.File, error) {
	f, err := os.CreateTemp(s.dir, fresh)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Firm is nil if nobody has opened a part for writing since it was compared. Whoever
// has used the snapshot asks, before the box is anybody's.
func (h *Held) Firm() error {
	for _, f := range h.leased {
		if !host.Leased(f) {
			return unusable(h.id, errors.New("somebody opened a part for writing while it was used"))
		}
	}
	return nil
}

// Copy returns the snapshot on descriptions of their own, for a use beside others;
// they are to be closed before h is.
func (h *Held) Copy() (*Held, error) {
	c := &Held{id: h.id, Snapshot: box.Snapshot{SnapshotHead: h.SnapshotHead, Parts: map[string]*os.File{}}}
	for name, f := range h.Parts {
		again, err := os.Open(host.FDPath(f.Fd()))
		if err != nil {
			c.Close()
			return nil, unusable(h.id, err)
		}
		c.Parts[name] = again
	}
	return c, nil
}

// Close lets go of the parts.
func (h *Held) Close() {
	for _, f := range h.Parts {
		if f != nil {
			f.Close()
		}
	}
}

// Glance is nil if the files of a snapshot are there and of the right size; else it
// is Unusable and names it. It does not compare what is in them.
func (s *Store) Glance(id string) error {
	h := &Held{id: id, Snapshot: box.Snapshot{Parts: map[string]*os.File{}}}
	defer h.Close()
	_, err := s.openParts(h)
	return err
}
