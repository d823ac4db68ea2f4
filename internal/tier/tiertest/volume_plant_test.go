package tiertest

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// mountHere mounts a volume with all that a box's mount forbids.
func (s *shelf) mountHere(t *testing.T, file, dir string) {
	t.Helper()
	command(t, "mount", "-o", "loop,suid,dev,exec", filepath.Join(s.dir, file), dir)
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
}

func command(t *testing.T, argv ...string) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", argv, err, out)
	}
}

func mknod(t *testing.T, name string, mode uint32, dev int) {
	t.Helper()
	if err := syscall.Mknod(name, mode, dev); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, 0o666); err != nil {
		t.Fatal(err)
	}
}
