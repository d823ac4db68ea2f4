package blockfs

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/image/erofs"
)

// image returns an image as a store keeps it: a read-only file.
func image(t testing.TB, dir string) *os.File {
	t.Helper()
	rw, err := host.OpenUnlinked(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer rw.Close()
	entries := []erofs.Entry{
		{Path: "/file", Mode: 0o644, UID: 1000, Size: 5, Open: erofs.Bytes([]byte("hello"))},
		{Path: "/setuid", Mode: fs.ModeSetuid | 0o755, Size: 4, Open: erofs.Bytes([]byte("root"))},
	}
	if _, err := erofs.Write(rw, entries, 0); err != nil {
		t.Fatal(err)
	}
	f, err := host.Seal(rw)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestAnImageIsMountedBothWays(t *testing.T) {
	needRoot(t)
	for name, mount := range map[string]func(*os.File) (*os.File, error){"any way": MountImage, "by loop": mountImageLoop} {
		dir := t.TempDir()
		f := image(t, dir)
		mnt, err := mount(f)
		if box.KindOf(err) == box.Unusable {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(name, err)
		}
		f.Close() // the mount does not need it
		if b, err := os.ReadFile(at(mnt, "file")); err != nil || string(b) != "hello" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
		if err := os.WriteFile(at(mnt, "new"), nil, 0o600); !errors.Is(err, syscall.EROFS) {
			t.Errorf("%s: writing gives %v", name, err)
		}
		var st unix.Statfs_t
		if err := unix.Fstatfs(int(mnt.Fd()), &st); err != nil || st.Flags&(unix.ST_NOSUID|unix.ST_NODEV|unix.ST_RDONLY) != unix.ST_NOSUID|unix.ST_NODEV|unix.ST_RDONLY {
			t.Errorf("%s: mount flags are %#x, %v", name, st.Flags, err)
		}
		mnt.Close()
		gone(t, dir)
	}
}

func TestWhatIsNoImageIsNotMounted(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	f, err := host.OpenUnlinked(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, 2*blockSize)); err != nil {
		t.Fatal(err)
	}
	for name, mount := range map[string]func(*os.File) (*os.File, error){"any way": MountImage, "by loop": mountImageLoop} {
		if mnt, err := mount(f); err == nil {
			mnt.Close()
			t.Errorf("%s: zeros were mounted", name)
		} else if !strings.HasPrefix(err.Error(), "cannot mount erofs") {
			t.Errorf("%s: %v", name, err)
		}
	}
	gone(t, dir)
}

func TestTheProbesImageIsWhatOurWriterMakes(t *testing.T) {
	var b bytes.Buffer
	if _, err := erofs.Write(&b, nil, 0); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b.Bytes(), emptyImage()) {
		t.Error("the empty image differs from what the writer makes")
	}
}

func TestTheProbeTellsWhatWorks(t *testing.T) {
	dir := t.TempDir()
	steps := Probe(t.Context(), dir)
	if len(steps) != 2 {
		t.Fatalf("%d steps", len(steps))
	}
	for _, s := range steps {
		t.Logf("%+v", s)
		switch {
		case s.Name == "" || s.Detail == "":
			t.Errorf("%+v says nothing", s)
		case !host.IsRoot() && s.State != box.Missing:
			t.Errorf("%+v for an ordinary user", s)
		case s.State == box.Works && s.Advice != "":
			t.Errorf("%+v advises about what works", s)
		}
	}
	if steps := Probe(t.Context(), dir+"/missing"); steps[0].State != box.Missing || steps[1].State != box.Missing {
		t.Errorf("a folder that is not there: %+v", steps)
	}
	gone(t, dir)
}

func BenchmarkImage(b *testing.B) {
	if !host.IsRoot() {
		b.Skip("mounting needs root")
	}
	f := image(b, b.TempDir())
	for name, mount := range map[string]func(*os.File) (*os.File, error){"any": MountImage, "loop": mountImageLoop} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				mnt, err := mount(f)
				if err != nil {
					b.Fatal(err)
				}
				mnt.Close()
			}
		})
	}
}
