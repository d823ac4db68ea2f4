package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func fresh1(t *testing.T) *Store {
	t.Helper()
	return open(t, filepath.Join(t.TempDir(), "snapshots"))
}

func head() box.SnapshotHead {
	return box.SnapshotHead{Kind: box.SnapshotMemory, Tier: box.TierGvisor, Needs: map[string]string{"image": "x", "agent": "y"}, Own: json.RawMessage(`{"a":"<1>"}`)}
}

// put keeps a snapshot of these parts.
func put(t *testing.T, s *Store, parts map[string]string) string {
	t.Helper()
	d := s.Begin(1 << 20)
	defer d.Drop()
	for name, text := range parts {
		if err := d.Put(name, strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	id, _, err := d.Keep(head(), box.NewID(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// texts reads all parts of what is held.
func texts(t *testing.T, h *Held) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name, f := range h.Parts {
		b, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<20))
		if err != nil {
			t.Fatal(err)
		}
		out[name] = string(b)
	}
	return out
}

// good fails unless a snapshot opens and has these parts.
func good(t *testing.T, s *Store, id string, parts map[string]string) {
	t.Helper()
	h, err := s.Open(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	want := head()
	if h.Kind != want.Kind || h.Tier != want.Tier || !maps.Equal(h.Needs, want.Needs) || !jsonEqual(h.Own, want.Own) {
		t.Errorf("head %+v", h.SnapshotHead)
	}
	if got := texts(t, h); !maps.Equal(got, parts) {
		t.Errorf("parts %q, want %q", got, parts)
	}
	if err := errors.Join(h.Firm(), s.Glance(id)); err != nil {
		t.Error(err)
	}
}

func jsonEqual(a, b []byte) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	p, _ := json.Marshal(x)
	q, _ := json.Marshal(y)
	return string(p) == string(q)
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func entries(t *testing.T, s *Store) []string {
	t.Helper()
	names, err := s.names()
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func descriptors(t *testing.T) int {
	t.Helper()
	e, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(e)
}

func TestWhatIsKeptComesBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "snapshots")
	s := open(t, dir)
	parts := map[string]string{"memory": "all of it", "pages.1": "", "disk-2": "files"}
	id := put(t, s, parts)
	good(t, s, id, parts)
	for _, name := range entries(t, s) {
		st, err := os.Lstat(s.path(name))
		if err != nil || st.Mode() != 0o400 {
			t.Errorf("%s has mode %v, %v", name, st.Mode(), err)
		}
	}
	if _, err := Open(dir); err == nil {
		t.Error("two have one folder")
	}
	s.Close()
	s = open(t, dir)
	if removed, err := s.Sweep(func(i string) bool { return i == id }); err != nil || len(removed) != 0 {
		t.Errorf("%v, %v", removed, err)
	}
	good(t, s, id, parts)
}

func TestAPartIsKeptOnceAndAsLongAsItIsNeeded(t *testing.T) {
	s := fresh1(t)
	one, two := map[string]string{"a": "same", "b": "one"}, map[string]string{"c": "same", "b": "two"}
	first, second := put(t, s, one), put(t, s, two)
	if n := len(entries(t, s)); n != 5 {
		t.Errorf("%d files: %v", n, entries(t, s))
	}
	if err := s.Delete(first); err != nil {
		t.Fatal(err)
	}
	good(t, s, second, two)
	if _, err := s.Open(t.Context(), first); box.KindOf(err) != box.Unusable || !strings.Contains(err.Error(), first) {
		t.Errorf("what was deleted opens: %v", err)
	}
	for _, id := range []string{second, second, "sha256:" + digest("x"), "x"} {
		if err := s.Delete(id); err != nil {
			t.Error(err)
		}
	}
	if left := entries(t, s); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestADamagedPartThatComesAgainIsWhole(t *testing.T) {
	s := fresh1(t)
	parts := map[string]string{"a": "text"}
	first := put(t, s, parts)
	overwrite(t, s.path(digest("text")), "texT")
	if _, err := s.Open(t.Context(), first); box.KindOf(err) != box.Unusable {
		t.Fatal(err)
	}
	put(t, s, parts)
	good(t, s, first, parts)
}

func TestWhatIsTooMuchOrBrokenIsNotKept(t *testing.T) {
	s := fresh1(t)
	broken := errors.New("the box has ended")
	for name, c := range map[string]struct {
		put  func(*Draft) error
		kind box.Kind
	}{
		"too large": {func(d *Draft) error {
			return errors.Join(d.Put("a", strings.NewReader("123456")), d.Put("b", strings.NewReader("12345")))
		}, box.Exhausted},
		"a reader that fails": {func(d *Draft) error {
			err := d.Put("a", io.MultiReader(strings.NewReader("x"), failing{broken}))
			if !errors.Is(err, broken) {
				t.Errorf("the reason is lost: %v", err)
			}
			return err
		}, box.Fault},
		"a name twice": {func(d *Draft) error {
			return errors.Join(d.Put("a", strings.NewReader("")), d.Put("a", strings.NewReader("")))
		}, box.Fault},
		"a name outside": {func(d *Draft) error { return d.Put("../a", strings.NewReader("")) }, box.Fault},
		"an empty name":  {func(d *Draft) error { return d.Put("", strings.NewReader("")) }, box.Fault},
	} {
		t.Run(name, func(t *testing.T) {
			for _, d := range []*Draft{s.Begin(10), s.Pass(10)} {
				if err := c.put(d); err == nil || box.KindOf(err) != c.kind {
					t.Errorf("%s: %v", box.KindOf(err), err)
				}
				if _, _, err := d.Keep(head(), box.NewID(), time.Now()); err == nil {
					t.Error("kept all the same")
				}
				if _, err := d.Held(head()); err == nil {
					t.Error("held all the same")
				}
				d.Drop()
				if left := entries(t, s); len(left) != 0 {
					t.Errorf("left: %v", left)
				}
			}
		})
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestAPassingOneHasNoName(t *testing.T) {
	s, before := fresh1(t), descriptors(t)
	d := s.Pass(1 << 20)
	if err := d.Put("a", strings.NewReader("text")); err != nil {
		t.Fatal(err)
	}
	if left := entries(t, s); len(left) != 0 {
		t.Errorf("it has a name: %v", left)
	}
	h, err := d.Held(head())
	if err != nil {
		t.Fatal(err)
	}
	d.Drop()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			c, err := h.Copy()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			// Each is at its own position.
			b, err := io.ReadAll(c.Parts["a"])
			if string(b) != "text" || err != nil || c.Firm() != nil {
				t.Errorf("%q, %v, %v", b, err, c.Firm())
			}
			if _, err := c.Parts["a"].WriteAt([]byte("x"), 0); err == nil {
				t.Error("it can be written")
			}
		})
	}
	all.Wait()
	h.Close()
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

func TestManyAtOnceDoNotSpoilEachOther(t *testing.T) {
	s := fresh1(t)
	stay := put(t, s, map[string]string{"a": "same"})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 10 {
				id := put(t, s, map[string]string{"a": "same"})
				good(t, s, id, map[string]string{"a": "same"})
				if err := s.Delete(id); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	good(t, s, stay, map[string]string{"a": "same"})
	if n := entries(t, s); len(n) != 2 {
		t.Errorf("left: %v", n)
	}
}

func TestAStartRemovesWhatNobodyKnows(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "snapshots")
	s := open(t, dir)
	parts := map[string]string{"a": "known", "b": "shared"}
	known, unknown := put(t, s, parts), put(t, s, map[string]string{"a": "unknown", "b": "shared"})
	half := s.Begin(100)
	if err := half.Put("a", strings.NewReader("half")); err != nil {
		t.Fatal(err)
	}
	stray := digest("a part without a manifest")
	overwrite(t, s.path(stray), "x")
	overwrite(t, s.path("README"), "the operator's")
	s.Close()

	s = open(t, dir)
	removed, err := s.Sweep(func(id string) bool { return id == known })
	if want := sorted(unknown[7:]+".json", digest("unknown"), stray); err != nil || !slices.Equal(sorted(removed...), want) {
		t.Errorf("removed %v, want %v, %v", removed, want, err)
	}
	good(t, s, known, parts)
	if left, want := entries(t, s), sorted(known[7:]+".json", digest("known"), digest("shared"), "README"); !slices.Equal(left, want) {
		t.Errorf("left %v, want %v", left, want)
	}
}

// Which parts a manifest that cannot be read needs is not known, and whoever puts it
// back wants them.
func TestADamagedManifestLosesNoParts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "snapshots")
	s := open(t, dir)
	parts := map[string]string{"a": "text"}
	id := put(t, s, parts)
	manifest := s.path(id[7:] + ".json")
	was, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	overwrite(t, manifest, "{}")
	s.Close()
	s = open(t, dir)
	if removed, err := s.Sweep(func(string) bool { return true }); len(removed) != 0 || box.KindOf(err) != box.Unusable || !strings.Contains(err.Error(), id) {
		t.Errorf("removed %v, %v", removed, err)
	}
	other := put(t, s, parts)
	if err := s.Delete(other); err != nil {
		t.Fatal(err)
	}
	overwrite(t, manifest, string(was))
	good(t, s, id, parts)
}

func TestAFolderThatOthersCanUseIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{dir, link} {
		if _, err := Open(at); box.KindOf(err) != box.Unusable {
			t.Errorf("%s: %v", at, err)
		}
	}
}

func sorted(s ...string) []string {
	s = slices.Clone(s)
	slices.Sort(s)
	return s
}

// overwrite changes what a file holds, in place.
func overwrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.Chmod(path, 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
}

func TestACallerThatLeavesIsNotToldOfDamage(t *testing.T) {
	s := fresh1(t)
	id := put(t, s, map[string]string{"a": "text"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Open(ctx, id); !errors.Is(err, context.Canceled) || errors.Is(err, syscall.EIO) || box.KindOf(err) == box.Unusable {
		t.Error(err)
	}
}
