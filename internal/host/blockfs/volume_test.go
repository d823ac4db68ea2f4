package blockfs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// newVolume makes a volume in dir.
func newVolume(t *testing.T, dir string, size int64) *os.File {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, "volume"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := MakeVolume(f, size); err != nil {
		t.Fatal(err)
	}
	return f
}

func mounted(t *testing.T, f *os.File, readOnly bool) *os.File {
	t.Helper()
	mnt, _, err := MountVolume(f, filepath.Dir(f.Name()), readOnly, 70_000, 70_001)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mnt.Close() })
	return mnt
}

// free waits until no loop device has a file of dir.
func free(t *testing.T, dir string) {
	t.Helper()
	within(t, "the volume is let go", func() bool { return len(bound(t, dir)) == 0 })
}

func fsck(t *testing.T, name string) {
	t.Helper()
	const fsck = "/sbin/e2fsck"
	if _, err := os.Stat(fsck); err != nil {
		t.Logf("not looked at by e2fsck: %v", err)
		return
	}
	cmd := exec.Command(fsck, "-fn", name)
	cmd.Env = []string{"LC_ALL=C"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestAVolumeKeepsWhatIsWrittenAndForWhom(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	f := newVolume(t, dir, testBytes)
	mnt := mounted(t, f, false)
	st, err := os.Stat(at(mnt, "."))
	if err != nil {
		t.Fatal(err)
	}
	if s := st.Sys().(*syscall.Stat_t); s.Uid != 70_000 || s.Gid != 70_001 {
		t.Errorf("its root is of %d, %d", s.Uid, s.Gid)
	}
	var flags unix.Statfs_t
	if err := unix.Fstatfs(int(mnt.Fd()), &flags); err != nil {
		t.Fatal(err)
	}
	if want := int64(unix.ST_NOSUID | unix.ST_NODEV); flags.Flags&(want|unix.ST_RDONLY|unix.ST_NOEXEC) != want {
		t.Errorf("flags %x", flags.Flags)
	}
	// Nobody but the box's user can have anything on it, root neither.
	if err := os.WriteFile(at(mnt, "root"), nil, 0o600); !errors.Is(err, unix.EOVERFLOW) {
		t.Errorf("root can write on it: %v", err)
	}
	asUser(t, 70_000, 70_001, "sh", "-c", fmt.Sprintf("echo kept > %s/file", host.FDPath(3)), mnt)
	mnt.Close()
	free(t, dir)
	fsck(t, f.Name())
	if replay, err := CheckVolume(f, testBytes); replay || err != nil {
		t.Errorf("%v, %v", replay, err)
	}
	// To another box it is that box's.
	mnt, _, err = MountVolume(f, dir, false, 80_000, 80_000)
	if err != nil {
		t.Fatal(err)
	}
	defer mnt.Close()
	if st, err = os.Stat(at(mnt, "file")); err != nil || st.Sys().(*syscall.Stat_t).Uid != 80_000 {
		t.Errorf("%v, %v", st, err)
	}
	if b, err := os.ReadFile(at(mnt, "file")); err != nil || string(b) != "kept\n" {
		t.Errorf("%q, %v", b, err)
	}
}

// asUser runs a command as a user, with a file as its descriptor 3.
func asUser(t *testing.T, uid, gid uint32, name string, args ...any) {
	t.Helper()
	cmd := exec.Command(name)
	for _, a := range args {
		switch a := a.(type) {
		case string:
			cmd.Args = append(cmd.Args, a)
		case *os.File:
			cmd.ExtraFiles = append(cmd.ExtraFiles, a)
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/bin:/bin"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func TestAVolumeHasTheSizeThatWasAskedFor(t *testing.T) {
	needRoot(t)
	for _, size := range []int64{VolumeMin, 20 << 20, 150 << 20} {
		dir := t.TempDir()
		f := newVolume(t, dir, size)
		if st, err := f.Stat(); err != nil || host.Allocated(f) < st.Size() {
			t.Errorf("%d of its %d bytes are set aside", host.Allocated(f), st.Size())
		}
		mnt := mounted(t, f, false)
		asUser(t, 70_000, 70_001, "sh", "-c", fmt.Sprintf("cat /dev/zero > %s/all 2>/dev/null; rm -f /nowhere", host.FDPath(3)), mnt)
		st, err := os.Stat(at(mnt, "all"))
		if err != nil || st.Size() < size || st.Size() > size*103/100+64<<10 {
			t.Errorf("of %d bytes %d fit (%v)", size, st.Size(), err)
		}
		t.Logf("of %d bytes %d fit", size, st.Size())
		mnt.Close()
		free(t, dir)
	}
}

func TestAVolumeOfASizeThatCannotBeIsRefused(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "v"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int64{-1, 0, VolumeMin - 1, VolumeMax + 1} {
		if err := MakeVolume(f, size); box.KindOf(err) != box.Invalid || err == nil {
			t.Errorf("%d: %v", size, err)
		}
	}
}

// The room is there from the first: a disk that is full later takes nothing from it.
func TestAFullHostDiskTakesNothingFromAVolume(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=32m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	over, err := os.Create(filepath.Join(dir, "over"))
	if err != nil {
		t.Fatal(err)
	}
	defer over.Close()
	for _, size := range []int64{64 << 20, 27 << 20} { // with its journal, the second would fit
		if err := MakeVolume(over, size); box.KindOf(err) != box.Exhausted || err == nil || host.Allocated(over) > 0 {
			t.Errorf("a volume of %d bytes on a disk of 32 MiB: %v, and it has %d", size, err, host.Allocated(over))
		}
	}
	if err := errors.Join(os.Remove(over.Name()), over.Close()); err != nil {
		t.Fatal(err)
	}
	f := newVolume(t, dir, 8<<20)
	mnt := mounted(t, f, false)
	fill, err := os.Create(filepath.Join(dir, "fill"))
	if err != nil {
		t.Fatal(err)
	}
	defer fill.Close()
	zeros := make([]byte, 1<<20)
	for err == nil {
		_, err = fill.Write(zeros)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	asUser(t, 70_000, 70_001, "sh", "-ec", fmt.Sprintf("yes | head -c 8388608 > %[1]s/all; sync %[1]s/all; rm -f /nowhere", host.FDPath(3)), mnt)
	mnt.Close()
	free(t, dir)
	mnt = mounted(t, f, true)
	if b, err := os.ReadFile(at(mnt, "all")); err != nil || !bytes.Equal(b, bytes.Repeat([]byte("y\n"), 4<<20)) {
		t.Errorf("%d bytes come back, %v", len(b), err)
	}
	mnt.Close()
	free(t, dir)
}

// The lock is of the open file description, which the loop device holds.
func TestTheLockOfAVolumeLastsAsLongAsItsMount(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	name := newVolume(t, dir, testBytes).Name()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	mnt := mounted(t, f, false)
	f.Close()
	if !host.Locked(name) {
		t.Error("it is free while it is mounted")
	}
	mnt.Close()
	within(t, "it is free", func() bool { return !host.Locked(name) })
}

func TestReadersMountAVolumeTogetherAndWriteNothing(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	f := newVolume(t, dir, testBytes)
	mnt := mounted(t, f, false)
	asUser(t, 70_000, 70_001, "sh", "-c", fmt.Sprintf("echo kept > %s/file", host.FDPath(3)), mnt)
	mnt.Close()
	free(t, dir)
	before, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r, err := os.Open(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		mnt := mounted(t, r, true)
		r.Close()
		if b, err := os.ReadFile(at(mnt, "file")); err != nil || string(b) != "kept\n" {
			t.Errorf("%q, %v", b, err)
		}
		if err := os.WriteFile(at(mnt, "file"), nil, 0o600); !errors.Is(err, unix.EROFS) {
			t.Errorf("written to: %v", err)
		}
	}
	if after, err := os.ReadFile(f.Name()); err != nil || !bytes.Equal(before, after) {
		t.Errorf("reading changed it (%v)", err)
	}
}

// What a host's crash leaves is what is on its disk at that moment: what a program
// has synced, and a file system that is whole. The control is
// the file system that was not unmounted.
func TestAVolumeOfAHostThatStoppedIsMadeWhole(t *testing.T) {
	needRoot(t)
	dir, then := t.TempDir(), t.TempDir()
	f := newVolume(t, dir, 24<<20)
	mnt := mounted(t, f, false)
	asUser(t, 70_000, 70_001, "sh", "-ec", fmt.Sprintf(`cd %s; echo kept > synced; sync synced
		for i in $(seq 300); do mkdir d$i; echo $i > d$i/f; ln d$i/f l$i; done; sync d300/f; for i in $(seq 200); do rm l$i; done`, host.FDPath(3)), mnt)
	crashed, err := os.Create(filepath.Join(then, "volume"))
	if err != nil {
		t.Fatal(err)
	}
	defer crashed.Close()
	if _, err := io.Copy(crashed, io.NewSectionReader(f, 0, 1<<40)); err != nil {
		t.Fatal(err)
	}
	if replay, err := CheckVolume(crashed, 24<<20); err != nil || !replay {
		t.Fatalf("it was not unmounted, and %v, %v", replay, err)
	}
	r, err := os.Open(crashed.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if m, _, err := MountVolume(r, then, true, 70_000, 70_001); err == nil {
		m.Close()
		t.Error("half of it can be read")
	}
	free(t, then)
	if err := ReplayVolume(crashed); err != nil {
		t.Fatal(err)
	}
	free(t, then)
	if replay, err := CheckVolume(crashed, 24<<20); err != nil || replay {
		t.Errorf("%v, %v", replay, err)
	}
	fsck(t, crashed.Name())
	again := mounted(t, crashed, false)
	for name, want := range map[string]string{"synced": "kept\n", "d300/f": "300\n"} {
		if b, err := os.ReadFile(at(again, name)); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}

// Whenever a host stops, all that a program has flushed is there. EXT4_IOC_SHUTDOWN
// without a flush stops the writing at a moment, as a power cut does.
func TestWhatWasFlushedSurvivesAHostThatStopsAtAnyMoment(t *testing.T) {
	needRoot(t)
	const size = 16 << 20
	dir := t.TempDir()
	f := newVolume(t, dir, size)
	acked, replays := 0, 0
	r := rand.New(rand.NewPCG(3, 3))
	for round := range 12 {
		replay, err := CheckVolume(f, size)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if replay {
			replays++
			if err := ReplayVolume(f); err != nil {
				t.Fatal(err)
			}
			free(t, dir)
			fsck(t, f.Name())
		}
		mnt := mounted(t, f, false)
		if round > 0 {
			b, err := os.ReadFile(at(mnt, "log"))
			lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
			if err != nil || len(lines) < acked {
				t.Errorf("round %d: %d lines are there, %d were flushed, %v", round, len(lines), acked, err)
			}
			for i, l := range lines[:min(acked, len(lines))] {
				if l != fmt.Sprint(i) {
					t.Fatalf("round %d: line %d is %q", round, i, l)
				}
			}
			if last, err := os.ReadFile(at(mnt, "last")); err != nil || strings.TrimSpace(string(last)) == "" {
				t.Errorf("round %d: what replaced a file is %q, %v", round, last, err)
			}
		}
		// Each line is flushed before it is told; files come, go and are replaced beside.
		cmd := exec.Command("sh", "-c", fmt.Sprintf(`cd %s && head -n %d log > log.new 2>/dev/null; sync log.new; mv log.new log; sync .
			i=%[2]d; while echo $i >> log && sync log && echo $i; do i=$((i+1)); mkdir d$i && echo $i > d$i/f && rmdir d$((i-9)) 2>/dev/null; rm -rf d$((i-5))
			echo $i > new && sync new && mv new last; done`, host.FDPath(3), acked))
		cmd.ExtraFiles, cmd.Env, cmd.Dir = []*os.File{mnt}, []string{"PATH=/usr/bin:/bin"}, "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 70_000, Gid: 70_001}}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		stop := 5 + r.IntN(20) // lines
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			acked++
			if stop--; stop == 0 {
				time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond)
				if err := Discard(mnt); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = cmd.Wait()
		if stop > 0 {
			t.Fatalf("round %d: it has stopped by itself", round)
		}
		mnt.Close()
		free(t, dir)
	}
	t.Logf("%d lines were flushed; of 12 stops %d left something to be done again", acked, replays)
	if replays < 6 {
		t.Error("the stops are none")
	}
}

// A file that was changed under Sunaba is refused, or what was changed is an error:
// nothing of it is believed, and the kernel goes on. Who can do that is the host's
// root or its disk: see docs/threat-model.md.
func TestNothingOfADamagedVolumeIsBelieved(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	f := newVolume(t, dir, testBytes)
	mnt := mounted(t, f, false)
	asUser(t, 70_000, 70_001, "sh", "-ec", fmt.Sprintf("cd %s; for i in $(seq 50); do mkdir d$i; echo $i > d$i/f; chmod 640 d$i/f; done", host.FDPath(3)), mnt)
	mnt.Close()
	free(t, dir)
	whole, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	// wrong says what is not as it was.
	wrong := func(mnt *os.File) (bad []string) {
		for i := 1; i <= 50; i++ {
			name := fmt.Sprintf("d%d/f", i)
			st, err := os.Stat(at(mnt, name))
			if err != nil || st.Mode() != 0o640 || st.Sys().(*syscall.Stat_t).Uid != 70_000 || st.Size() != int64(len(fmt.Sprintln(i))) {
				bad = append(bad, fmt.Sprint(name, st, err))
			} else if b, err := os.ReadFile(at(mnt, name)); err != nil || string(b) != fmt.Sprintln(i) {
				bad = append(bad, fmt.Sprintf("%s %q %v", name, b, err))
			}
		}
		return bad
	}
	refused, byKernel, told, well := 0, 0, 0, 0
	r := rand.New(rand.NewPCG(7, 7))
	for n := range 30 {
		damaged := bytes.Clone(whole)
		for range 1 + n {
			damaged[r.IntN(48*blockSize)] ^= byte(1 << r.IntN(8)) // superblock, descriptors, bitmaps, inodes, root
		}
		if _, err := f.WriteAt(damaged, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := CheckVolume(f, testBytes); err != nil {
			if box.KindOf(err) != box.Unusable || !strings.HasPrefix(err.Error(), "cannot use volume: ") {
				t.Error(err)
			}
			refused++
			continue
		}
		mnt, _, err := MountVolume(f, dir, false, 70_000, 70_001)
		if err != nil {
			byKernel++
			free(t, dir)
			continue
		}
		bad := wrong(mnt)
		switch err := Damage(mnt); {
		case err != nil:
			told++
		case len(bad) > 0:
			t.Errorf("with %d bits changed, and nobody tells: %q", n+1, bad)
		default:
			well++ // what was changed is in use by nobody
		}
		mnt.Close()
		free(t, dir)
	}
	t.Logf("%d were refused by what they say, %d by the kernel, %d had errors that are told, in %d nothing was wrong", refused, byKernel, told, well)
	if refused == 0 || told == 0 {
		t.Error("nothing was refused, or nothing was told")
	}
}

// What docs/volumes.md tells the operator to do.
func TestADamagedVolumeIsUsableAfterFsck(t *testing.T) {
	needRoot(t)
	const fsck = "/sbin/e2fsck"
	if _, err := os.Stat(fsck); err != nil {
		t.Skip("e2fsck is not installed (Debian: e2fsprogs)")
	}
	dir := t.TempDir()
	f := newVolume(t, dir, 24<<20)
	mnt := mounted(t, f, false)
	asUser(t, 70_000, 70_001, "sh", "-ec", fmt.Sprintf("cd %s; mkdir a b; echo kept > a/file; for i in $(seq 100); do echo $i > b/$i; done", host.FDPath(3)), mnt)
	dirBlock := blockOf(t, mnt, "b")
	mnt.Close()
	free(t, dir)
	if _, err := f.WriteAt(bytes.Repeat([]byte{0xff}, 4096), dirBlock); err != nil {
		t.Fatal(err)
	}
	// The kernel finds it when somebody looks, and then nobody writes any more.
	mnt = mounted(t, f, false)
	if names, _ := os.ReadDir(at(mnt, "b")); len(names) > 0 {
		t.Errorf("in a folder of nonsense are %v", names)
	}
	cmd := exec.Command("sh", "-c", "echo more > "+host.FDPath(3)+"/a/more")
	cmd.ExtraFiles, cmd.Env = []*os.File{mnt}, []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 70_000, Gid: 70_001}}
	cmd.Dir = "/"
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "Read-only") {
		t.Errorf("it is still written to: %v, %s", err, out)
	}
	if err := Damage(mnt); err == nil {
		t.Error("nobody counts the damage")
	}
	mnt.Close()
	free(t, dir)
	if _, err := CheckVolume(f, 24<<20); box.KindOf(err) != box.Unusable || err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Fatalf("it is mounted again: %v", err)
	}
	put := exec.Command(fsck, "-fy", f.Name())
	put.Env = []string{"LC_ALL=C"}
	out, err := put.CombinedOutput()
	if put.ProcessState.ExitCode() != 1 { // errors corrected
		t.Fatalf("%v\n%s", err, out)
	}
	if replay, err := CheckVolume(f, 24<<20); replay || err != nil {
		t.Fatalf("%v, %v\n%s", replay, err, out)
	}
	mnt = mounted(t, f, false)
	defer mnt.Close()
	if b, err := os.ReadFile(at(mnt, "a/file")); err != nil || string(b) != "kept\n" {
		t.Errorf("%q, %v", b, err)
	}
	asUser(t, 70_000, 70_001, "sh", "-ec", fmt.Sprintf("echo more > %s/a/more", host.FDPath(3)), mnt)
}

// blockOf is where the first block of a folder lies.
func blockOf(t *testing.T, mnt *os.File, name string) int64 {
	t.Helper()
	d, err := os.Open(at(mnt, name))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := host.SyncFS(mnt); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(d.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/sbin/debugfs", "-R", fmt.Sprintf("blocks <%d>", st.Ino), fileOf(t, mnt))
	cmd.Env = []string{"LC_ALL=C"}
	out, err := cmd.Output()
	var block int64
	if err == nil {
		_, err = fmt.Sscan(string(out), &block)
	}
	if err != nil || block == 0 {
		t.Fatalf("%v: %s", err, out)
	}
	return block * 4096
}

// fileOf is the file behind the loop device of a mount.
func fileOf(t *testing.T, mnt *os.File) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(mnt.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/loop/backing_file", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}
