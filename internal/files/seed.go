package files

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host/hostfs"
)

// SeedRecord is what was really placed for one [box.Seed].
type SeedRecord struct {
	Path   string // absolute, in the box
	Size   int64
	SHA256 string // hex
}

// BuildSeedTar writes a tar stream with dirs, the parents of all seeds, and the
// seeds, everything owned by uid and gid. Names
// begin with "./", which stands for the box's root.
// The order is fixed and all times are 1970, so equal files give equal bytes.
//
// Seed paths and dirs are absolute and clean. A seed that turns out longer or
// shorter than its Size, because the file changed while it was copied, is an
// error; the stream is then incomplete and must be thrown away.
func BuildSeedTar(w io.Writer, seeds []box.Seed, uid, gid int, dirs []string) ([]SeedRecord, error) {
	seeds = slices.Clone(seeds)
	slices.SortFunc(seeds, func(a, b box.Seed) int { return strings.Compare(a.Path, b.Path) })
	folders := map[string]bool{}
	for _, d := range dirs {
		if err := checkSeedPath(d); err != nil {
			return nil, err
		}
		addParents(folders, d)
		folders[d] = true
	}
	for i, s := range seeds {
		if err := checkSeedPath(s.Path); err != nil {
			return nil, err
		}
		if i > 0 && seeds[i-1].Path == s.Path {
			return nil, fmt.Errorf("cannot place %q: it is asked for twice", s.Path)
		}
		addParents(folders, s.Path)
	}
	t := tar.NewWriter(w)
	// The guest kernel's reader wants a header for the root too.
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755, ModTime: time.Unix(0, 0).UTC()}); err != nil {
		return nil, fmt.Errorf("cannot place files: %w", err)
	}
	for _, d := range sortedKeys(folders) {
		h := header(d, uid, gid)
		h.Typeflag, h.Mode, h.Name = tar.TypeDir, 0o755, h.Name+"/"
		if err := t.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("cannot place folder %q: %w", d, err)
		}
	}
	var records []SeedRecord
	for _, s := range seeds {
		if folders[s.Path] {
			return nil, fmt.Errorf("cannot place %q: it is a folder too", s.Path)
		}
		r, err := writeSeed(t, s, uid, gid)
		if err != nil {
			return nil, fmt.Errorf("cannot place %q: %w", s.Path, err)
		}
		records = append(records, r)
	}
	if err := t.Close(); err != nil {
		return nil, fmt.Errorf("cannot place files: %w", err)
	}
	return records, nil
}

func writeSeed(t *tar.Writer, s box.Seed, uid, gid int) (SeedRecord, error) {
	h := header(s.Path, uid, gid)
	h.Typeflag, h.Mode, h.Size = tar.TypeReg, int64(s.Mode.Perm()), s.Size
	if err := t.WriteHeader(h); err != nil {
		return SeedRecord{}, err
	}
	r, err := s.Open()
	if err != nil {
		return SeedRecord{}, err
	}
	defer r.Close()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(t, sum), io.LimitReader(r, s.Size))
	if err != nil {
		return SeedRecord{}, err
	}
	if n < s.Size {
		return SeedRecord{}, box.Errorf(box.Invalid, "copy", "the file shrank while it was copied: %d of %d bytes", n, s.Size)
	}
	if n, err := io.ReadFull(r, make([]byte, 1)); n > 0 {
		return SeedRecord{}, box.Errorf(box.Invalid, "copy", "the file grew while it was copied: more than the %d bytes that it had", s.Size)
	} else if err != io.EOF {
		return SeedRecord{}, err
	}
	return SeedRecord{Path: s.Path, Size: s.Size, SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}

func header(p string, uid, gid int) *tar.Header {
	return &tar.Header{Name: "." + p, Uid: uid, Gid: gid, ModTime: time.Unix(0, 0).UTC()}
}

func checkSeedPath(p string) error {
	rel, ok := strings.CutPrefix(p, "/")
	if !ok {
		return fmt.Errorf("cannot place %q: %w", p, errors.New("not an absolute path"))
	}
	if err := hostfs.CheckName(rel); err != nil {
		return fmt.Errorf("cannot place %q: %w", p, err)
	}
	return nil
}

func addParents(folders map[string]bool, p string) {
	for d := path.Dir(p); d != "/"; d = path.Dir(d) {
		folders[d] = true
	}
}

func sortedKeys(m map[string]bool) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
