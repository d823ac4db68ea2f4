package jail

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// inside is the first argument of this test binary when it runs again in
// namespaces of its own; the second is the path that is a link in the image,
// the third what it leads to.
const inside = "inside-the-jail"

func TestMain(m *testing.M) {
	if len(os.Args) == 5 && os.Args[1] == inside {
		if err := buildWith(os.Args[2], os.Args[3], os.Args[4]); err != nil {
			fmt.Println("refused:", err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// build makes a jail from an image in which a path is a link.
func build(t *testing.T, link, to string) (said string, ok bool) {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "sunaba-jail-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	cmd := exec.Command("/proc/self/exe", inside, dir, link, to)
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

func buildWith(dir, link, to string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	root, err := newMount("tmpfs", nil, 0)
	if err != nil {
		return err
	}
	aside := filepath.Join(dir, "image")
	if err := os.Mkdir(aside, 0o700); err != nil {
		return err
	}
	if err := unix.MoveMount(int(root.Fd()), "", unix.AT_FDCWD, aside, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return err
	}
	for _, d := range []string{"proc", "dev", "sys", "tmp", "workspace", "elsewhere"} {
		if "/"+d == link {
			continue
		}
		if err := os.Mkdir(filepath.Join(aside, d), 0o755); err != nil {
			return err
		}
	}
	if link != "" {
		if err := os.Symlink(to, filepath.Join(aside, link)); err != nil {
			return err
		}
	}
	if link == "" && to == "mounted below" {
		if err := unix.Mount("tmpfs", filepath.Join(aside, "elsewhere"), "tmpfs", 0, ""); err != nil {
			return err
		}
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, aside, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return err
	}
	weak, err := Build(Config{
		RootApart: true,
		Dir:       dir, Root: os.NewFile(uintptr(fd), "root"), StoreBytes: 1 << 20, StoreFiles: 100, ShmBytes: 1 << 20, Hostname: "jail",
		Writable: []Writable{{"/workspace", 0o755}, {"/tmp", 0o1777}},
	})
	fmt.Print(strings.Join(weak, "; "))
	if len(weak) == 0 && err == nil {
		var st unix.Statfs_t
		if err := unix.Statfs("/", &st); err != nil || st.Type != unix.OVERLAYFS_SUPER_MAGIC {
			return fmt.Errorf("the root is of type %#x (%v)", st.Type, err)
		}
	}
	return err
}

// CVE-2019-19921, CVE-2023-27561, CVE-2025-52565, CVE-2021-30465: a mount point
// that is a link takes the mount to where the image says.
func TestImageWithLinksForMountPointsIsRefused(t *testing.T) {
	if said, ok := build(t, "", ""); !ok || said != "" {
		t.Fatalf("an image without links was refused, or is weak: %s", said)
	}
	for _, link := range []string{"/proc", "/dev", "/sys", "/tmp", "/workspace"} {
		for _, to := range []string{"/elsewhere", "elsewhere", "/", "../../../..", "/proc/self/fd", "/etc", link} {
			if said, ok := build(t, link, to); ok || !strings.Contains(said, link) || !strings.Contains(said, "too many levels of symbolic links") {
				t.Errorf("%s -> %s: built: %v: %s", link, to, ok, said)
			}
		}
	}
}

// A folder that cannot be set apart is shown as it is, and named as weak.
func TestFolderThatCannotBeSetApartIsWeak(t *testing.T) {
	said, ok := build(t, "", "mounted below")
	if !ok || said != "files: programs can see when a file of / is used outside the box, and can lock it: other file systems are mounted in it" {
		t.Errorf("built: %v: %q", ok, said)
	}
}

// CVE-2025-31133: runc covered files with /dev/null, which the image had made a
// link to /proc/sys/kernel/core_pattern.
func TestDevicesAreWhatTheirNamesSay(t *testing.T) {
	dir := t.TempDir()
	for _, name := range deviceNames() {
		if err := isDevice("/dev/"+name, name); err != nil {
			t.Errorf("a device of this host was refused: %v", err)
		}
	}
	for name, to := range map[string]string{"link": "/dev/null", "file": ""} {
		path := filepath.Join(dir, name)
		if to == "" {
			if err := os.WriteFile(path, nil, 0o666); err != nil {
				t.Fatal(err)
			}
		} else if err := os.Symlink(to, path); err != nil {
			t.Fatal(err)
		}
		if err := isDevice(path, "null"); err == nil {
			t.Errorf("a %s was taken for a device", name)
		}
	}
	if err := isDevice("/dev/ptmx", "ptmx"); err == nil {
		t.Error("a device without a known number was taken")
	}
}
