package store

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
)

// testdata/version1.db was made by the code of version 1.
func TestAnOlderDatabaseIsBroughtForwardInACopy(t *testing.T) {
	old, err := os.ReadFile("testdata/version1.db")
	if err != nil {
		t.Fatal(err)
	}
	for name, before := range map[string]func(t *testing.T, path string){
		"as it was left":             func(*testing.T, string) {},
		"beside half of an old copy": func(t *testing.T, path string) { put(t, path+copySuffix, []byte("half")) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, fileName)
			put(t, path, old)
			before(t, path)
			s := open(t, dir)
			r, err := s.Box(t.Context(), "a", "bxnvfzlhlxohrum7yotw3w")
			if err != nil || r.Phase != box.PhaseRunning || string(r.State) != "s" || string(r.Spec) != `{"a":1}` || r.Metadata["k"] != "v" || r.Ends.Sub(r.Created).Hours() != 1 {
				t.Errorf("%v, %+v", err, r)
			}
			if k, err := s.FindKey(t.Context(), "e2b_0123456789abcdef0123456789abcdef01234567"); err != nil || k.Tenant != "a" {
				t.Errorf("its key: %v, %+v", err, k)
			}
			var version int
			var journal string
			if err := s.db.QueryRow("PRAGMA user_version").Scan(&version); err != nil || version != len(steps()) {
				t.Errorf("version %d, %v", version, err)
			}
			if err := s.db.QueryRow("PRAGMA journal_mode").Scan(&journal); err != nil || journal != "wal" {
				t.Errorf("journal %s, %v", journal, err)
			}
			add(t, s, record("a"))
			if _, err := os.Stat(path + copySuffix); err == nil {
				t.Error("the copy is left")
			}
			s.Close()
			if all, err := open(t, dir).Alive(t.Context()); err != nil || len(all) != 2 {
				t.Errorf("opened again: %d, %v", len(all), err)
			}
		})
	}
}

func TestAnOlderDatabaseThatCannotBeCopiedIsLeftAsItWas(t *testing.T) {
	old, err := os.ReadFile("testdata/version1.db")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, fileName)
	put(t, path, old)
	if err := os.MkdirAll(path+copySuffix+"/x", 0o700); err != nil { // in the copy's place
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), dir); box.KindOf(err) != box.Unusable {
		t.Errorf("%v", err)
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now[100:], old[100:]) {
		t.Errorf("it was changed (%v)", err)
	}
	if err := os.RemoveAll(path + copySuffix); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
}

// good returns the file of a database with many rows.
func good(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	s := open(t, dir)
	for range 100 {
		add(t, s, record("a"))
	}
	if _, err := s.db.Exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		t.Fatal(err)
	}
	s.Close()
	b, err := os.ReadFile(filepath.Join(dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestADamagedDatabaseIsRefusedUntilItIsMovedAsideByWish(t *testing.T) {
	whole := good(t)
	flip := func(from, to int) []byte {
		b := bytes.Clone(whole)
		for i := from; i < to; i += 7 {
			b[i] ^= 0xff
		}
		return b
	}
	for name, content := range map[string][]byte{
		"first page zeroed": append(make([]byte, 4096), whole[4096:]...),
		"header flipped":    flip(0, 100),
		"first page":        flip(100, 4096),
		"in the middle":     flip(len(whole)/3, len(whole)*2/3),
		"last page":         flip(len(whole)-4096, len(whole)),
		"cut at a page":     whole[:len(whole)/2/4096*4096],
		"cut within a page": whole[:len(whole)/2+1000],
		"empty":             {},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			s.Close()
			put(t, filepath.Join(dir, fileName), content)
			if err := os.Mkdir(filepath.Join(dir, "volumes"), 0o700); err != nil {
				t.Fatal(err)
			}
			for range 2 { // it does not become better by looking
				_, err := Open(t.Context(), dir)
				if box.KindOf(err) != box.Unusable {
					t.Fatalf("it is not refused: %v", err)
				}
				if e := err.(*box.Error); !strings.Contains(e.Hint, "sunaba recover") {
					t.Errorf("the way out is %q", e.Hint)
				}
			}
			moved, err := Recover(t.Context(), dir, "volumes", "nothing")
			if err != nil || len(moved) < 2 || !slices.ContainsFunc(moved, func(p string) bool { return strings.Contains(p, "volumes.damaged-") }) {
				t.Fatalf("%v, moved %v", err, moved)
			}
			aside, err := os.ReadFile(moved[len(moved)-1])
			if err != nil || !bytes.Equal(aside, content) {
				t.Errorf("what was moved aside is other than it was (%v)", err)
			}
			if all, err := open(t, dir).Alive(t.Context()); err != nil || len(all) != 0 {
				t.Errorf("%v, %v", all, err)
			}
		})
	}
}

func TestWhatIsWholeOrNewerOrInUseIsNotMovedAside(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	add(t, s, record("a"))
	if _, err := Recover(t.Context(), dir); box.KindOf(err) != box.Unusable || !strings.Contains(err.Error(), "another daemon") {
		t.Errorf("in use: %v", err)
	}
	s.Close()
	if _, err := Recover(t.Context(), dir); box.KindOf(err) != box.Invalid {
		t.Errorf("whole: %v", err)
	}
	s = open(t, dir)
	if _, err := s.db.Exec("PRAGMA user_version = 999"); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := Recover(t.Context(), dir); box.KindOf(err) != box.Unusable || !strings.Contains(err.Error(), "later sunaba") {
		t.Errorf("newer: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.Contains(e.Name(), "damaged") }) {
		t.Errorf("something was moved: %v, %v", entries, err)
	}
}

func put(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
