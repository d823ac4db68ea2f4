package tiertest

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/snapshot"
)

// parts are the bytes of a copy's parts.
func parts(t *testing.T, s *box.Snapshot) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for name, f := range s.Parts {
		b, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<40))
		if err != nil {
			t.Fatal(err)
		}
		all[name] = b
	}
	return all
}

// changes are the ways in which a copy is damaged. Each gets the parts of two boxes'
// copies and changes the first, and returns the name of the part that is damaged.
func changes(names map[string]*os.File) map[string]func(one, two map[string][]byte) string {
	all := map[string]func(one, two map[string][]byte) string{}
	for name := range names {
		all["a byte of "+name] = func(one, _ map[string][]byte) string { one[name][len(one[name])/2] ^= 1; return name }
		all["half of "+name] = func(one, _ map[string][]byte) string { one[name] = one[name][:len(one[name])/2]; return name }
		all["a byte more of "+name] = func(one, _ map[string][]byte) string { one[name] = append(one[name], 0); return name }
		all["nothing of "+name] = func(one, _ map[string][]byte) string { one[name] = nil; return name }
		all["another's "+name] = func(one, two map[string][]byte) string { one[name] = two[name]; return name }
		all["no "+name] = func(one, _ map[string][]byte) string { delete(one, name); return name }
	}
	return all
}

// Whatever was done to the parts of a copy, no box comes of it.
func TestOfADamagedCopyComesNoBox(t *testing.T) {
	t.Run("files", func(t *testing.T) { damaged(t, (*place).copyFiles) })
	t.Run("memory", func(t *testing.T) { damaged(t, (*place).copyMemory) })
}

func damaged(t *testing.T, copied func(*place, *testing.T, box.Lasting) *box.Snapshot) {
	p := newPlace(t, box.TierGvisor)
	made := memorySpec()
	dir := filepath.Join(p.state, "snapshots")
	store, err := snapshot.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var copies [2]*box.Snapshot
	var ids [2]string
	for i := range copies {
		made.ID = box.NewID()
		b := p.create(t, made)
		g := use(t, b)
		run(t, g, "head -c 1000000 /dev/urandom > /workspace/file")
		leave(t, g)
		copies[i] = copied(p, t, b)
		p.destroy(t, b)
		d := store.Begin(1 << 30)
		for name, f := range copies[i].Parts {
			if err := d.Put(name, io.NewSectionReader(f, 0, 1<<40)); err != nil {
				t.Fatal(err)
			}
		}
		if ids[i], _, err = d.Keep(copies[i].SnapshotHead, b.ID(), time.Now()); err != nil {
			t.Fatal(err)
		}
		d.Drop()
	}
	boxes, refused := 0, 0
	for what, change := range changes(copies[0].Parts) {
		one, two := parts(t, copies[0]), parts(t, copies[1])
		part := change(one, two)
		if whole := parts(t, copies[0])[part]; one[part] != nil && bytes.Equal(one[part], whole) {
			continue // the other box's is the same
		}
		file := filepath.Join(dir, digests(t, store, ids[0])[part])
		if err := os.Rename(file, file+"~"); err != nil {
			t.Fatal(err)
		}
		if b, ok := one[part]; ok {
			if err := os.WriteFile(file, b, 0o400); err != nil {
				t.Fatal(err)
			}
		}
		if h, err := store.Open(t.Context(), ids[0]); box.KindOf(err) != box.Unusable || !strings.Contains(err.Error(), ids[0]) || !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, %v", what, h, err)
		}
		if err := os.Rename(file+"~", file); err != nil {
			t.Fatal(err)
		}
		// The tier, which is handed what was compared, is not to trust it either: it may
		// see nothing, as of a byte of a page, but what it refuses it refuses whole.
		s := *copies[0]
		s.Parts = map[string]*os.File{}
		for name, b := range one {
			s.Parts[name] = unnamed(t, p, b)
		}
		wanted := made
		wanted.ID = box.NewID()
		b, err := p.standing.(box.Restorer).Restore(t.Context(), somebodys(wanted), &s)
		if err == nil {
			t.Logf("%s: a box, if nobody compares", what)
			boxes++
			p.destroy(t, b.(box.Lasting))
			continue
		}
		refused++
		t.Logf("%s: %v", what, err)
		late := strings.Contains(err.Error(), "it was not up within") // a kernel may wait for ever for what its list names wrongly
		if kind := box.KindOf(err); !late && kind != box.Unusable && kind != box.Conflict || len(err.Error()) > 500 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %s: %v", what, kind, err)
		}
		p.empty(t)
	}
	if boxes == 0 || refused == 0 {
		t.Errorf("of damaged copies came %d boxes, and %d were refused: this judges nothing", boxes, refused)
	}
	// Put back, it is good.
	h, err := store.Open(t.Context(), ids[0])
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	c := p.restore(t, made, &h.Snapshot)
	run(t, use(t, c), "test $(stat -c %s /workspace/file) = 1000000")
	p.destroy(t, c)
	p.empty(t)
}

// digests are the file names of a snapshot's parts.
func digests(t *testing.T, s *snapshot.Store, id string) map[string]string {
	t.Helper()
	h, err := s.Open(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	all := map[string]string{}
	for name, f := range h.Parts {
		at, err := os.Readlink(host.FDPath(f.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		all[name] = filepath.Base(at)
	}
	return all
}

func unnamed(t *testing.T, p *place, b []byte) *os.File {
	t.Helper()
	f, err := host.OpenUnlinked(p.state)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := io.Copy(f, bytes.NewReader(b)); err != nil {
		t.Fatal(err)
	}
	return f
}
