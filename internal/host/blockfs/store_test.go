package blockfs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
)

func store(t *testing.T, dir string, bytes, files int64) *os.File {
	t.Helper()
	needRoot(t)
	mnt, _, err := NewStore(dir, bytes, files, 12_345, 70_000)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mnt.Close() })
	return mnt
}

func TestAStoreThatIsFullIsNotDamaged(t *testing.T) {
	mnt := store(t, t.TempDir(), testBytes, testFiles)
	f, err := os.Create(at(mnt, "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 64<<10); err == nil; {
		_, err = f.Write(block)
	}
	if err := f.Sync(); err != nil {
		t.Error(err)
	}
	if err := Damage(mnt); err != nil { // the count is there, and 0
		t.Error(err)
	}
	// Whoever goes on after Discard is told.
	if err := Discard(mnt); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Create(at(mnt, "another")); !errors.Is(err, syscall.EIO) {
		t.Errorf("a discarded store gives %v", err)
	}
}

// Where the kernel's count cannot be read, that is said instead.
func TestAStoreWhoseDamageNobodyTellsIsWeak(t *testing.T) {
	pipe, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	defer w.Close()
	if weak := blind(pipe); len(weak) != 1 || weak[0] != weakBlind {
		t.Errorf("weak is %q", weak)
	}
}

func TestAStoreHoldsItsBytesAndNoMore(t *testing.T) {
	dir := t.TempDir()
	mnt := store(t, dir, testBytes, testFiles)
	f, err := os.Create(at(mnt, "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var n int64
	for block := make([]byte, 64<<10); err == nil; {
		var m int
		m, err = f.Write(block)
		n += int64(m)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a full store gives %v", err)
	}
	if n < testBytes || float64(n) > testBytes*1.03 {
		t.Errorf("%d bytes fit, of %d", n, testBytes)
	}
	// What was written is there, also on the disk: nothing was promised that
	// the file behind cannot hold.
	if err := f.Sync(); err != nil {
		t.Error(err)
	}
	f.Close()
	mnt.Close()
	gone(t, dir)
}

// The last two have groups whose inodes are all in use from the start.
func TestAStoreHoldsItsFilesAndNoMore(t *testing.T) {
	for _, c := range []struct{ bytes, files int64 }{
		{testBytes, 1}, {testBytes, testFiles}, {64 << 20, 3000}, {10 << 30, 1000}, {30 << 30, 2500},
	} {
		mnt := store(t, t.TempDir(), c.bytes, c.files)
		var st unix.Statfs_t
		if err := unix.Fstatfs(int(mnt.Fd()), &st); err != nil {
			t.Fatal(err)
		}
		if room := int64(st.Bavail) * st.Bsize; room < c.bytes || float64(room) > float64(c.bytes)*1.03 || int64(st.Ffree) != c.files {
			t.Errorf("%+v: room for %d bytes and %d files", c, room, st.Ffree)
		}
		n, err := int64(0), error(nil)
		for ; err == nil && n <= c.files; n++ {
			name := at(mnt, fmt.Sprint(n))
			switch n % 3 {
			case 0:
				err = os.Mkdir(name, 0o700)
			case 1:
				err = os.Symlink("nowhere", name)
			default:
				err = os.WriteFile(name, nil, 0o600)
			}
		}
		if n--; n != c.files || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%+v: %d files fit, then %v", c, n, err)
		}
		if err := os.RemoveAll(at(mnt, "0")); err != nil {
			t.Error(err)
		}
		if err := os.WriteFile(at(mnt, "again"), nil, 0o600); err != nil {
			t.Errorf("%+v: after one was removed: %v", c, err)
		}
		mnt.Close()
	}
}

func TestAStoreIsEmptyAndItsOwners(t *testing.T) {
	mnt := store(t, t.TempDir(), testBytes, testFiles)
	info, err := os.Stat(at(mnt, "."))
	if err != nil {
		t.Fatal(err)
	}
	if st := info.Sys().(*syscall.Stat_t); info.Mode() != os.ModeDir|0o755 || st.Uid != 12_345 || st.Gid != 70_000 || st.Nlink != 2 {
		t.Errorf("the root is %v, %d:%d, with %d links", info.Mode(), st.Uid, st.Gid, st.Nlink)
	}
	if names, err := os.ReadDir(at(mnt, ".")); err != nil || len(names) != 0 {
		t.Errorf("it holds %v, %v", names, err)
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(mnt.Fd()), &st); err != nil || st.Flags&unix.ST_NOSUID == 0 || st.Flags&unix.ST_NODEV == 0 {
		t.Errorf("mount flags are %#x, %v", st.Flags, err)
	}
}

func TestAStoreIsInNoMountTable(t *testing.T) {
	mnt := store(t, t.TempDir(), testBytes, testFiles)
	var st unix.Stat_t
	if err := unix.Fstat(int(mnt.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if dev := fmt.Sprintf(" %d:%d ", unix.Major(st.Dev), unix.Minor(st.Dev)); bytes.Contains(table, []byte(dev)) {
		t.Errorf("device%sis mounted:\n%s", dev, table)
	}
}

func TestManyStoresAtOnceAreApart(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	const many = 50
	stores := make([]*os.File, many)
	var wg sync.WaitGroup
	for i := range stores {
		wg.Go(func() {
			mnt, _, err := NewStore(dir, testBytes, testFiles, 1, 1)
			if err != nil {
				t.Error(err)
				return
			}
			stores[i] = mnt
			if err := os.WriteFile(at(mnt, "who"), fmt.Append(nil, i), 0o600); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(bound(t, dir)); n != many && !t.Failed() {
		t.Errorf("%d devices for %d stores", n, many)
	}
	for i, mnt := range stores {
		if mnt == nil {
			continue
		}
		if b, err := os.ReadFile(at(mnt, "who")); err != nil || string(b) != fmt.Sprint(i) {
			t.Errorf("store %d holds %q, %v", i, b, err)
		}
		mnt.Close()
	}
	gone(t, dir)
}

func TestDiscardEndsAStoreForEverybody(t *testing.T) {
	dir := t.TempDir()
	mnt := store(t, dir, testBytes, testFiles)
	f, err := os.Create(at(mnt, "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := Discard(mnt); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("x")); !errors.Is(err, syscall.EIO) {
		t.Errorf("writing to a discarded store gives %v", err)
	}
	f.Close()
	mnt.Close()
	gone(t, dir)
}

// child starts this program in one of its roles and waits until it is ready.
func child(t *testing.T, role, dir string, namespaces uintptr) *exec.Cmd {
	t.Helper()
	needRoot(t)
	cmd := exec.Command("/proc/self/exe", role, dir)
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "ready\n" {
		cmd.Process.Kill()
		cmd.Wait()
		t.Fatalf("the child says %q, %v", line, err)
	}
	return cmd
}

func TestAKilledOwnerLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	cmd := child(t, "hold", dir, 0)
	if n := len(bound(t, dir)); n != 2 {
		t.Errorf("%d loop devices while the owner lives", n)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	gone(t, dir)
}

func TestAnAttachedMountLastsUntilItsNamespaceEnds(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	for _, name := range []string{"ext4", "erofs"} {
		if err := os.Mkdir(dir+"/"+name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := child(t, "attach", dir, unix.CLONE_NEWNS).Wait(); err != nil {
		t.Error(err)
	}
	gone(t, dir)
}

func TestWhatCannotBeAStoreIsRefused(t *testing.T) {
	for _, c := range []struct {
		bytes, files int64
		kind         box.Kind
	}{
		{0, 1, box.Invalid}, {testBytes, 0, box.Invalid}, {1 << 50, 1, box.Invalid},
	} {
		if mnt, _, err := NewStore(t.TempDir(), c.bytes, c.files, 1, 1); err == nil {
			mnt.Close()
			t.Errorf("%+v was made", c)
		} else if box.KindOf(err) != c.kind || !strings.HasPrefix(err.Error(), "cannot ") {
			t.Errorf("%+v: %v (%s)", c, err, box.KindOf(err))
		}
	}
	if mnt, _, err := NewStore(t.TempDir()+"/missing", testBytes, 1, 1, 1); err == nil {
		mnt.Close()
		t.Error("a store was made in a folder that is not there")
	}
	if !host.IsRoot() {
		if mnt, _, err := NewStore(t.TempDir(), testBytes, testFiles, 1, 1); err == nil {
			mnt.Close()
			t.Error("an ordinary user mounted a store")
		}
	}
}

func TestAStoreLargerThanTheDiskIsRefused(t *testing.T) {
	dir := t.TempDir()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	room := int64(st.Blocks) * st.Bsize // more than is free
	if room < 1<<20 || room > 8<<40 {
		t.Skipf("a disk of %d bytes cannot be asked for", room)
	}
	mnt, _, err := NewStore(dir, room, 1, 1, 1)
	if err == nil {
		mnt.Close()
	}
	if box.KindOf(err) != box.Exhausted {
		t.Errorf("NewStore = %v", err)
	}
}

// The store is mounted again without the newest option if the kernel says this.
func TestAnUnknownMountOptionIsEINVAL(t *testing.T) {
	needRoot(t)
	mnt, err := mount("ext4", "/dev/null", 0, option{"no_such_option", ""})
	if err == nil {
		mnt.Close()
	}
	if !errors.Is(err, unix.EINVAL) {
		t.Errorf("mount = %v", err)
	}
}

func BenchmarkStore(b *testing.B) {
	if !host.IsRoot() {
		b.Skip("mounting needs root")
	}
	dir := b.TempDir()
	for b.Loop() {
		mnt, _, err := NewStore(dir, 1<<30, 65_536, 1, 1)
		if err != nil {
			b.Fatal(err)
		}
		mnt.Close()
	}
}
