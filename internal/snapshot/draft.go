package snapshot

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/fault"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// Draft is a snapshot that is being written. Its methods may be called
// concurrently. Whoever begins one calls Drop at the end, whatever became of it.
type Draft struct {
	s       *Store
	passing bool

	mu    sync.Mutex
	left  int64 // bytes
	most  int64
	err   error // the first one
	parts []part
	files []*os.File // of a passing one, or nil
	temps []string   // names of files that have no other yet
}

// Begin begins a snapshot of at most some bytes.
func (s *Store) Begin(most int64) *Draft { return &Draft{s: s, left: most, most: most} }

// Pass begins one that is used at once and never gets a name: see [Draft.Held].
func (s *Store) Pass(most int64) *Draft { return &Draft{s: s, passing: true, left: most, most: most} }

// Put writes a part from r, to its end: it is what [box.Snapshotter] takes. Errors
// are Exhausted if the disk is full or the snapshot too large; see also Err.
func (d *Draft) Put(name string, r io.Reader) error {
	err := d.put(name, r)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.err = err
	}
	return err
}

// Err is the first error of Put: what a tier makes of it says less.
func (d *Draft) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

func (d *Draft) put(name string, r io.Reader) error {
	if !isPartName(name) {
		return fmt.Errorf("cannot keep snapshot: %q is no name of a part", name)
	}
	temp := fresh + strings.ToLower(rand.Text())
	d.mu.Lock()
	refused := len(d.parts) >= maxParts || slices.ContainsFunc(d.parts, func(p part) bool { return p.Name == name })
	if !refused {
		d.parts, d.temps, d.files = append(d.parts, part{Name: name}), append(d.temps, temp), append(d.files, nil)
	}
	at := len(d.parts) - 1
	d.mu.Unlock()
	if refused {
		return fmt.Errorf("cannot keep snapshot: part %q comes twice, or there are more than %d", name, maxParts)
	}
	f, err := os.OpenFile(d.s.path(temp), os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o400)
	if err != nil {
		return full(err)
	}
	if d.passing {
		err = os.Remove(d.s.path(temp))
	}
	sum := sha256.New()
	to := io.MultiWriter(plain{f}, sum)
	if d.passing {
		to = plain{f} // nobody asks what it was
	}
	var n int64
	if err == nil {
		// Nothing but a plain copy: a reader that writes by itself would not be bounded.
		n, err = io.CopyBuffer(to, budgeted{d, r}, make([]byte, 1<<20))
	}
	if err == nil && !d.passing {
		err = f.Sync()
		fault.Here("snapshot.part-written")
	}
	var again *os.File
	if err == nil && d.passing {
		again, err = os.Open(host.FDPath(f.Fd())) // for reading only, so that nobody can write it
	}
	err = errors.Join(err, f.Close())
	d.mu.Lock()
	defer d.mu.Unlock()
	d.parts[at].Bytes, d.parts[at].SHA256, d.files[at] = n, hex.EncodeToString(sum.Sum(nil)), again
	if err == nil || box.KindOf(err) != box.Fault {
		return err
	}
	return full(err)
}

// plain hides what else a file can do.
type plain struct{ io.Writer }

// budgeted is a reader within what is left of a draft's bytes.
type budgeted struct {
	d *Draft
	r io.Reader
}

func (b budgeted) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	b.d.mu.Lock()
	defer b.d.mu.Unlock()
	if b.d.left -= int64(n); b.d.left < 0 {
		return 0, box.Errorf(box.Exhausted, "keep snapshot", "cannot keep snapshot: it is larger than %d bytes", b.d.most).
			WithHint("remove files that are not needed; the operator can allow more (`sunaba serve --max-snapshot`, `--max-snapshot-bytes`)")
	}
	return n, err
}

// Keep makes the snapshot one that is there, after a crash, too, and returns its
// ID and the size of its parts in bytes. It may be called once.
func (d *Draft) Keep(head box.SnapshotHead, of box.ID, at time.Time) (id string, size int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil || d.passing {
		return "", 0, errors.Join(errors.New("cannot keep snapshot: it was not written to stay"), d.err)
	}
	m := manifest{Version: version, Kind: head.Kind, Tier: head.Tier, Needs: head.Needs, Own: head.Own, Box: of, Created: at.UTC(), Parts: slices.Clone(d.parts)}
	if m.Needs == nil {
		m.Needs = map[string]string{}
	}
	if len(m.Own) == 0 {
		m.Own = []byte("{}")
	}
	slices.SortFunc(m.Parts, func(a, b part) int { return strings.Compare(a.Name, b.Name) })
	b, err := m.encode()
	if err != nil {
		return "", 0, err
	}
	if m, err = decode(b); err != nil { // what cannot be read again is not kept
		return "", 0, fmt.Errorf("cannot keep snapshot: %w", err)
	}
	for _, p := range m.Parts {
		size += p.Bytes
	}
	sum := sha256.Sum256(b)
	h := hex.EncodeToString(sum[:])
	if err := d.s.keep(d, m, h, b); err != nil {
		return "", 0, err
	}
	return idPrefix + h, size, nil
}

// keep gives the files their names: the parts first, then the manifest.
func (s *Store) keep(d *Draft, m manifest, h string, b []byte) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() {
		if err == nil {
			s.count(m, 1)
			return
		}
		err = full(err)
		_ = os.Remove(s.path(h + manifestSuffix)) // it may not be there yet
		for _, p := range m.Parts {
			if s.uses[p.SHA256] == 0 {
				_ = os.Remove(s.path(p.SHA256))
			}
		}
	}()
	for i, p := range d.parts {
		// A part that is there already is replaced by the same; if it was damaged, it
		// is whole again.
		if err := os.Rename(s.path(d.temps[i]), s.path(p.SHA256)); err != nil {
			return err
		}
		d.temps[i] = ""
	}
	fault.Here("snapshot.parts-named")
	if err := s.sync(); err != nil {
		return err
	}
	temp := fresh + strings.ToLower(rand.Text())
	d.temps = append(d.temps, temp)
	f, err := os.OpenFile(s.path(temp), os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o400)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(s.path(temp), s.path(h+manifestSuffix)); err != nil {
		return err
	}
	d.temps[len(d.temps)-1] = ""
	fault.Here("snapshot.named")
	return s.sync()
}

// Held opens a passing draft. What it was written to has no name, so nothing can
// have changed it; the draft has nothing any more.
func (d *Draft) Held(head box.SnapshotHead) (*Held, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil || !d.passing {
		return nil, errors.Join(errors.New("cannot use snapshot: it was not written"), d.err)
	}
	h := &Held{Snapshot: box.Snapshot{SnapshotHead: head, Parts: map[string]*os.File{}}}
	for i, p := range d.parts {
		h.Parts[p.Name], d.files[i] = d.files[i], nil
	}
	return h, nil
}

// Drop removes what has no name yet.
func (d *Draft) Drop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.files {
		if f != nil {
			f.Close()
		}
	}
	d.files = nil
	for _, name := range d.temps {
		if name != "" {
			_ = os.Remove(d.s.path(name)) // else the next start does
		}
	}
	d.temps = nil
}
