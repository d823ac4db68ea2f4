package agent

import (
	"archive/tar"
	"bytes"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// members reads an archive as name -> content, or "skipped: reason".
func members(t *testing.T, b []byte) map[string]string {
	t.Helper()
	got := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		got[h.Name] = string(body)
		if why := h.PAXRecords[SkippedKey]; why != "" {
			got[h.Name] = "skipped: " + why
		}
	}
}

func TestCollectNamesEverythingAndReadsOnlyWhatIsAFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, body string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("a", "alpha")
	write("deep/er/b\n", "beta")
	write("big", strings.Repeat("x", 200))
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "big"), 1<<40); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Collect(&out, dir, 100); err != nil {
		t.Fatal(err)
	}
	got := members(t, out.Bytes())
	for name, want := range map[string]string{
		"a": "alpha", "deep/er/b\n": "beta",
		"link": "skipped: a symbolic link", "pipe": "skipped: a named pipe",
		"big": "skipped: its 1099511627776 bytes do not fit into what is left of the disk limit",
	} {
		if got[name] != want {
			t.Errorf("%q: got %q, want %q", name, got[name], want)
		}
	}
	if len(got) != 5 {
		t.Errorf("got %d members: %q", len(got), got)
	}
}

func TestCollectStopsReadingWhenTheSumIsSpent(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{"1", "2", "3"} {
		if err := os.WriteFile(filepath.Join(dir, n), make([]byte, 40), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := Collect(&out, dir, 100); err != nil {
		t.Fatal(err)
	}
	whole, skipped := 0, 0
	for _, body := range members(t, out.Bytes()) {
		if strings.HasPrefix(body, "skipped") {
			skipped++
		} else if len(body) == 40 {
			whole++
		}
	}
	if whole != 2 || skipped != 1 {
		t.Errorf("%d files whole and %d skipped, want 2 and 1", whole, skipped)
	}
}

func TestNamesTooLongForAnyHostDoNotCostTheRest(t *testing.T) {
	dir := t.TempDir()
	d, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("d", 200)
	for range 30 {
		if err := d.Mkdir(name, 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := d.OpenRoot(name)
		d.Close()
		if err != nil {
			t.Fatal(err)
		}
		d = next
	}
	d.Close()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Collect(&out, dir, 100); err != nil {
		t.Fatal(err)
	}
	got := members(t, out.Bytes())
	if len(got) != 2 || got["f"] != "x" {
		t.Errorf("%d members, f = %q", len(got), got["f"])
	}
	for n := range got {
		if len(n) > 4095 {
			t.Errorf("a name of %d bytes", len(n))
		}
	}
}

func TestATreeIsCollectedToItsEndAndBack(t *testing.T) {
	dir := t.TempDir()
	want := map[string]string{}
	write := func(name string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
		want[name] = name
	}
	deep := strings.Repeat("d/", 1000)
	for _, n := range []string{"1", "a/2", "a/b/3", "a/b/c/4", "a/e/5", "f/g/h/6", "f/i/7", deep + "8", deep + "x/9", deep + "y/10"} {
		write(n)
	}
	var out bytes.Buffer
	if err := Collect(&out, dir, 1<<20); err != nil {
		t.Fatal(err)
	}
	if got := members(t, out.Bytes()); !maps.Equal(got, want) {
		t.Errorf("got %d members, want %d", len(got), len(want))
	}
}

// A folder that can be listed and not searched has no way back out of it. Root
// is not kept from searching.
func TestAFolderThatCannotBeLeftIsNotEntered(t *testing.T) {
	dir := t.TempDir()
	for _, p := range []string{"trap/sub", "trap/other", "z"} {
		if err := os.MkdirAll(filepath.Join(dir, p), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{"trap/sub/f", "z/f"} {
		if err := os.WriteFile(filepath.Join(dir, p), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	trap := filepath.Join(dir, "trap")
	if err := os.Chmod(trap, 0o444); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(trap, 0o755)
	for p := dir; p != "/" && strings.Contains(p, "Test"); p = filepath.Dir(p) {
		if err := os.Chmod(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := asNobody(t, func() error { return Collect(&out, dir, 100) }); err != nil {
		t.Fatal(err)
	}
	got := members(t, out.Bytes())
	if len(got) != 3 || got["z/f"] != "x" || !strings.Contains(got["trap/sub"], "permission denied") || !strings.Contains(got["trap/other"], "permission denied") {
		t.Errorf("got %q", got)
	}
}

// asNobody runs fn on a thread that has no right to pass over a file's mode;
// see setfsuid(2).
func asNobody(t *testing.T, fn func() error) error {
	t.Helper()
	if os.Geteuid() != 0 {
		return fn()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends
		if err := unix.Setfsuid(65534); err != nil {
			done <- err
			return
		}
		done <- fn()
	}()
	return <-done
}

func TestPlacedFilesAreExactAndNeverReplaceOthers(t *testing.T) {
	root := t.TempDir()
	archive := func(headers ...*tar.Header) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range headers {
			h.Uid, h.Gid = os.Getuid(), os.Getgid()
			if h.Typeflag == tar.TypeReg {
				h.Size = 3
			}
			if err := w.WriteHeader(h); err != nil {
				t.Fatal(err)
			}
			if h.Typeflag == tar.TypeReg {
				if _, err := w.Write([]byte("abc")); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	ok := archive(&tar.Header{Typeflag: tar.TypeDir, Name: "./d/", Mode: 0o755}, &tar.Header{Typeflag: tar.TypeReg, Name: "./d/f", Mode: 0o640})
	if err := Place(bytes.NewReader(ok), root); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(root + "/d/f"); err != nil || string(b) != "abc" {
		t.Errorf("got %q, %v", b, err)
	}
	if st, err := os.Stat(root + "/d/f"); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if err := Place(bytes.NewReader(ok), root); err == nil {
		t.Error("a file that was there was replaced")
	}
	link := archive(&tar.Header{Typeflag: tar.TypeSymlink, Name: "./l", Linkname: "/etc"})
	if err := Place(bytes.NewReader(link), root); err == nil {
		t.Error("a link was placed")
	}
	if err := Place(bytes.NewReader(ok[:700]), t.TempDir()); err == nil {
		t.Error("an archive that is cut short was taken")
	}
}
