package blockfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
)

func dump(t *testing.T, store *os.File) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Dump(store, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// checked has e2fsck, where there is one, look at the file system behind a store
// that nobody uses.
func checked(t *testing.T, b []byte, size int64) {
	t.Helper()
	fsck, err := exec.LookPath("e2fsck")
	if err != nil {
		t.Log("no e2fsck here")
		return
	}
	f, err := host.OpenUnlinked(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := load(f, bytes.NewReader(b), size); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(fsck, "-fn", "/proc/self/fd/3")
	cmd.ExtraFiles, cmd.Env = []*os.File{f}, []string{"PATH=/usr/sbin:/usr/bin"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("e2fsck: %v\n%s", err, out)
	}
}

func TestACopyOfAStoreHoldsAllOfItAndAsMuchFits(t *testing.T) {
	dir := t.TempDir()
	needRoot(t)
	was, _, err := NewStore(dir, testBytes, testFiles, 12_345, 12_345)
	if err != nil {
		t.Fatal(err)
	}
	var room [2]unix.Statfs_t
	for g := range 6 {
		name := at(was, "file"+string(rune('0'+g)))
		writeAs(t, 12_345+g, name, bytes.Repeat([]byte{byte('a' + g)}, 300_000))
		if g == 0 {
			for _, err := range []error{
				os.Mkdir(at(was, "folder"), 0o700), os.Symlink("nowhere", at(was, "link")), os.Link(name, at(was, "folder/same")),
				unix.Setxattr(name, "user.note", []byte("kept"), 0), unix.Mkfifo(at(was, "pipe"), 0o600),
				os.WriteFile(at(was, "gone"), bytes.Repeat([]byte("secret"), 100_000), 0o600), os.Remove(at(was, "gone")),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		d := dump(t, was)
		if bytes.Contains(d, []byte("secretsecret")) {
			t.Error("what was deleted is in the copy")
		}
		if !bytes.Equal(d, dump(t, was)) {
			t.Error("two copies of the same differ")
		}
		if err := unix.Fstatfs(int(was.Fd()), &room[0]); err != nil {
			t.Fatal(err)
		}
		checked(t, d, sizeOf(t, d))
		uid := 12_345 + g + 1 // another user's each time; on the store it stays the first one's
		is, _, err := RestoreStore(dir, bytes.NewReader(d), testBytes, testFiles, 12_345, uid, uid)
		if err != nil {
			t.Fatal(err)
		}
		defer is.Close()
		if err := unix.Fstatfs(int(is.Fd()), &room[1]); err != nil || room[0].Bavail != room[1].Bavail || room[0].Ffree != room[1].Ffree {
			t.Errorf("room for %d blocks and %d files became %d and %d, %v", room[0].Bavail, room[0].Ffree, room[1].Bavail, room[1].Ffree, err)
		}
		for k := range g + 1 {
			b, err := os.ReadFile(at(is, "file"+string(rune('0'+k))))
			if err != nil || !bytes.Equal(b, bytes.Repeat([]byte{byte('a' + k)}, 300_000)) {
				t.Errorf("generation %d: file %d has %d bytes, %v", g, k, len(b), err)
			}
		}
		st, err := os.Stat(at(is, "file0"))
		if err != nil || st.Sys().(*syscall.Stat_t).Uid != uint32(uid) || st.Sys().(*syscall.Stat_t).Nlink != 2 || st.Mode() != 0o640 {
			t.Errorf("file0 is %+v, %v", st.Sys(), err)
		}
		var note [10]byte
		if n, err := unix.Getxattr(at(is, "file0"), "user.note", note[:]); err != nil || string(note[:n]) != "kept" {
			t.Errorf("its attribute is %q, %v", note, err)
		}
		if to, err := os.Readlink(at(is, "link")); err != nil || to != "nowhere" {
			t.Errorf("a link to %q, %v", to, err)
		}
		if err := Damage(is); err != nil {
			t.Error(err)
		}
		was.Close()
		was = is
	}
	was.Close()
	gone(t, dir)
}

// writeAs makes a file as another user, whose it is.
func writeAs(t *testing.T, uid int, name string, b []byte) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Setfsgid(uid)
	_ = unix.Setfsuid(uid)
	err := os.WriteFile(name, b, 0o640)
	_ = unix.Setfsuid(0)
	_ = unix.Setfsgid(0)
	if err != nil {
		t.Fatal(err)
	}
}

func sizeOf(t *testing.T, d []byte) int64 {
	t.Helper()
	var size int64
	for i, c := range d[len(dumpMark):][:8] {
		size |= int64(c) << (8 * i)
	}
	return size
}

func TestACopyThatIsNotWholeMakesNoStore(t *testing.T) {
	dir := t.TempDir()
	mnt := store(t, dir, testBytes, testFiles)
	if err := os.WriteFile(at(mnt, "file"), make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	d := dump(t, mnt)
	mnt.Close()
	changed := func(at int, to byte) []byte { c := bytes.Clone(d); c[at] = to; return c }
	for what, c := range map[string][]byte{
		"nothing": nil, "a mark": d[:10], "cut off": d[:len(d)-1], "one more": append(bytes.Clone(d), 0), "its end away": d[:len(d)-16],
		"another kind": changed(0, 'S'), "another size": changed(len(dumpMark)+2, 0xee),
		"a piece elsewhere": changed(len(dumpMark)+8+7, 1), "not a block": changed(len(dumpMark)+8, 1), "a long piece": changed(len(dumpMark)+8+8+5, 1),
		"no ext4": changed(len(dumpMark)+8+16+1024+0x38, 0), "a damaged one": changed(len(dumpMark)+8+16+1024+0x3a, 3),
	} {
		if is, _, err := RestoreStore(dir, bytes.NewReader(c), testBytes, testFiles, 1, 2, 2); err == nil {
			is.Close()
			t.Errorf("%s makes a store", what)
		} else if box.KindOf(err) != box.Conflict {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, other := range [][2]int64{{testBytes * 2, testFiles}, {testBytes, testFiles * 10}} {
		if is, _, err := RestoreStore(dir, bytes.NewReader(d), other[0], other[1], 1, 2, 2); box.KindOf(err) != box.Conflict {
			if is != nil {
				is.Close()
			}
			t.Errorf("for another size: %v", err)
		}
	}
	gone(t, dir)
}

func TestWhoTakesACopyMayFail(t *testing.T) {
	mnt := store(t, t.TempDir(), testBytes, testFiles)
	if err := os.WriteFile(at(mnt, "file"), bytes.Repeat([]byte("x"), 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	full := errors.New("full")
	if err := Dump(mnt, &limited{left: 500_000, err: full}); !errors.Is(err, full) {
		t.Errorf("it says %v", err)
	}
	if err := os.WriteFile(at(mnt, "more"), []byte("y"), 0o600); err != nil {
		t.Error(err)
	}
}

type limited struct {
	left int
	err  error
}

func (l *limited) Write(b []byte) (int, error) {
	if l.left -= len(b); l.left < 0 {
		return 0, l.err
	}
	return io.Discard.Write(b)
}

// A store of many bytes with little in it is a short dump, soon.
func TestACopyIsAsLongAsWhatIsInTheStore(t *testing.T) {
	mnt := store(t, t.TempDir(), 4<<30, 200_000)
	if err := os.WriteFile(at(mnt, "file"), []byte(strings.Repeat("x", 10_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if d := dump(t, mnt); len(d) > 1<<20 {
		t.Errorf("it has %d bytes", len(d))
	}
}

// Folders at the end of one group of blocks and files at the beginning of the next:
// the kernel's list of what is in use leaves the folders out.
func TestACopyHoldsWhatTheKernelDoesNotList(t *testing.T) {
	needRoot(t)
	const bytes, files = 128 << 20, 100_000
	was, _, err := NewStore(t.TempDir(), bytes, files, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer was.Close()
	for i := range 5 {
		dir := at(was, fmt.Sprint("d", i))
		if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(dir+"/f", []byte(dir), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	d := dump(t, was)
	again, _, err := RestoreStore(t.TempDir(), strings.NewReader(string(d)), bytes, files, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	for i := range 5 {
		if got, err := os.ReadFile(at(again, fmt.Sprint("d", i, "/f"))); err != nil || string(got) != at(was, fmt.Sprint("d", i)) {
			t.Errorf("%q, %v", got, err)
		}
	}
}
