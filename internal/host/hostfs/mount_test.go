package hostfs

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func cloned(t *testing.T, source string, attr MountAttr, target string) {
	t.Helper()
	f, _, err := OpenMountSource(source, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := CloneMount(f, attr)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := MoveMount(m, target); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(target, unix.MNT_DETACH) })
}

func TestClonedMountShowsTheDescriptorNotTheName(t *testing.T) {
	if !privately(t) {
		return
	}
	dir := t.TempDir()
	src := mkdir(t, dir+"/src")
	write(t, src+"/who", "right")
	f, _, err := OpenMountSource(src, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// After the check the name is made to lead elsewhere.
	write(t, mkdir(t, dir+"/evil")+"/who", "wrong")
	os.Rename(src, dir+"/moved")
	symlink(t, dir+"/evil", src)
	m, err := CloneMount(f, MountAttr{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	at := mkdir(t, dir+"/at")
	if err := MoveMount(m, at); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(at, unix.MNT_DETACH)
	if b, _ := os.ReadFile(at + "/who"); string(b) != "right" {
		t.Errorf("the mount shows %q", b)
	}
	if err := os.WriteFile(at+"/new", nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Errorf("write to a read-only mount: %v", err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(at, &st); err != nil || st.Flags&unix.ST_NOSUID == 0 || st.Flags&unix.ST_NODEV == 0 {
		t.Errorf("mount flags %#x, %v: want nosuid and nodev", st.Flags, err)
	}
	if err := MoveMount(m, symlink(t, at, dir+"/atlink")); err == nil {
		t.Error("a link was taken as mount point")
	}
}

func TestMountsBelowComeOnlyWhenAsked(t *testing.T) {
	if !privately(t) {
		return
	}
	dir := t.TempDir()
	sub := mkdir(t, dir+"/src/sub")
	if err := unix.Mount("none", sub, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(sub, unix.MNT_DETACH)
	write(t, sub+"/inner", "x")
	cloned(t, dir+"/src", MountAttr{}, mkdir(t, dir+"/plain"))
	if _, err := os.Stat(dir + "/plain/sub/inner"); err == nil {
		t.Error("the mount below came unasked")
	}
	cloned(t, dir+"/src", MountAttr{Recursive: true, ReadOnly: true}, mkdir(t, dir+"/all"))
	if _, err := os.Stat(dir + "/all/sub/inner"); err != nil {
		t.Error("the mount below did not come")
	}
	if err := os.WriteFile(dir+"/all/sub/new", nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Errorf("write to the mount below: %v, want read-only too", err)
	}
}

func TestIDMappedMountShowsAnotherOwner(t *testing.T) {
	if !privately(t) {
		return
	}
	dir := t.TempDir()
	src := mkdir(t, dir+"/src")
	os.Chown(write(t, src+"/mine", "x"), 4711, 4712)
	os.Chown(write(t, src+"/roots", "x"), 0, 0)
	os.Chown(src, 4711, 4712)
	at := mkdir(t, dir+"/at")
	f, _, err := OpenMountSource(src, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	attr := MountAttr{Users: []IDMap{{4711, 1000}}, Groups: []IDMap{{4712, 1001}}}
	m, err := CloneMount(f, attr)
	if errors.Is(err, unix.EINVAL) {
		t.Skipf("this file system cannot be idmapped: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := MoveMount(m, at); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(at, unix.MNT_DETACH)
	owner := func(path string) [2]uint32 {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		st := info.Sys().(*syscall.Stat_t)
		return [2]uint32{st.Uid, st.Gid}
	}
	for path, want := range map[string][2]uint32{
		at + "/mine":   {1000, 1001},
		at + "/roots":  {65534, 65534},
		src + "/mine":  {4711, 4712},
		src + "/roots": {0, 0},
	} {
		if got := owner(path); got != want {
			t.Errorf("%s is owned by %v, want %v", path, got, want)
		}
	}
	if _, err := CloneMount(f, MountAttr{Users: attr.Users}); err == nil {
		t.Error("users without groups were mapped")
	}
}
