package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

const (
	idPrefix       = "sha256:"
	manifestSuffix = ".json"

	maxManifest = 1 << 20 // bytes
	maxParts    = 256
)

// manifest is what a snapshot is. Its bytes are those that encode gives, so that
// there is one form of it; box and time make it one snapshot's alone.
type manifest struct {
	Version int               `json:"version"`
	Kind    box.SnapshotKind  `json:"kind"`
	Tier    box.TierName      `json:"tier"`
	Needs   map[string]string `json:"needs"`
	Own     json.RawMessage   `json:"own"`
	Box     box.ID            `json:"box"`
	Created time.Time         `json:"created"`
	Parts   []part            `json:"parts"` // in the order of their names
}

// part is one file of it, which has the digest as its name.
type part struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

const version = 1

func (m manifest) encode() ([]byte, error) {
	b, err := json.Marshal(m)
	if err == nil && len(b) > maxManifest {
		err = fmt.Errorf("its manifest has %d bytes, at most %d", len(b), maxManifest)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot keep snapshot: %w", err)
	}
	return b, nil
}

// decode reads a manifest that has the digest that it should have; what is wrong
// with it then, whoever wrote it did.
func decode(b []byte) (m manifest, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return m, fmt.Errorf("its manifest is no JSON of that form: %w", err)
	}
	again, err := m.encode()
	switch {
	case err != nil:
		return m, err
	case !bytes.Equal(again, b):
		return m, errors.New("its manifest is not in the form that is written here")
	case m.Version != version:
		return m, fmt.Errorf("its manifest is of version %d, and this build knows %d", m.Version, version)
	case len(m.Parts) > maxParts:
		return m, fmt.Errorf("it has %d parts, at most %d", len(m.Parts), maxParts)
	}
	last := ""
	for _, p := range m.Parts {
		if !isPartName(p.Name) || p.Name <= last || p.Bytes < 0 || !isHex(p.SHA256) {
			return m, fmt.Errorf("its manifest names a part %.80q that cannot be", p.Name)
		}
		last = p.Name
	}
	return m, nil
}

func isPartName(s string) bool { return regexp.MustCompile(`^[a-z0-9.-]{1,64}$`).MatchString(s) }

func hexOf(id string) (string, bool) {
	h, ok := strings.CutPrefix(id, idPrefix)
	return h, ok && isHex(h)
}

func (m manifest) head() box.SnapshotHead {
	return box.SnapshotHead{Kind: m.Kind, Tier: m.Tier, Needs: m.Needs, Own: m.Own}
}

// manifest reads that of a snapshot. Errors are Unusable and name it. The lock is
// held.
func (s *Store) manifest(id string) (manifest, error) {
	m, err := s.readManifest(id)
	if err != nil {
		return manifest{}, unusable(id, err)
	}
	return m, nil
}

func (s *Store) readManifest(id string) (manifest, error) {
	h, ok := hexOf(id)
	if !ok {
		return manifest{}, errors.New("that is no snapshot's ID")
	}
	f, _, err := s.openFile(h + manifestSuffix)
	if err != nil {
		return manifest{}, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	switch {
	case err != nil:
		return manifest{}, err
	case len(b) > maxManifest:
		return manifest{}, errors.New("its manifest is too large")
	}
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != h {
		return manifest{}, errors.New("its manifest was changed: it has another digest")
	}
	return decode(b)
}

// openFile opens a file of the store's, and refuses what is none.
func (s *Store) openFile(name string) (*os.File, os.FileInfo, error) {
	// Not to wait for a pipe that somebody put there.
	f, err := os.OpenFile(s.path(name), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, fmt.Errorf("a file of it is missing: %w", err)
	case errors.Is(err, syscall.ELOOP):
		return nil, nil, fmt.Errorf("a link stands in the place of a file of it: %w", err)
	case err != nil:
		return nil, nil, err
	}
	st, err := f.Stat()
	if err == nil {
		own := st.Sys().(*syscall.Stat_t)
		switch {
		case !st.Mode().IsRegular():
			err = fmt.Errorf("%s is not a regular file (%s)", name, st.Mode().Type())
		case own.Uid != uint32(os.Geteuid()) || st.Mode().Perm()&0o022 != 0:
			err = fmt.Errorf("%s can be written by others", name)
		case own.Nlink > 1:
			err = fmt.Errorf("%s has a second name", name)
		}
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, st, nil
}

func unusable(id string, err error) error {
	return box.Errorf(box.Unusable, "use snapshot", "cannot use snapshot %s: %w", id, err).
		WithHint("put its files back from a copy; or delete the snapshot, and make a new one")
}
