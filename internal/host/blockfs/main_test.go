package blockfs

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/hostfs"
)

// TestMain is also the child that the tests kill or put into a mount namespace
// of its own.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 {
		if role, ok := roles()[os.Args[1]]; ok {
			if err := role(os.Args[2]); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

func roles() map[string]func(dir string) error {
	return map[string]func(string) error{"hold": hold, "attach": attachBoth}
}

// hold makes a store and an image mount, writes, and waits for its end.
func hold(dir string) error {
	store, _, err := NewStore(dir, testBytes, testFiles, 1, 1)
	if err != nil {
		return err
	}
	image, err := mountEmpty(dir, mountImageLoop)
	if err != nil {
		return err
	}
	if err := os.WriteFile(at(store, "file"), make([]byte, 1<<20), 0o600); err != nil {
		return err
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	store.Close()
	image.Close()
	return err
}

// attachBoth runs in a mount namespace of its own.
func attachBoth(dir string) error {
	if err := host.PrivateMounts(); err != nil {
		return err
	}
	store, _, err := NewStore(dir, testBytes, testFiles, 1, 1)
	if err != nil {
		return err
	}
	image, err := mountEmpty(dir, MountImage)
	if err != nil {
		return err
	}
	for _, m := range []*os.File{store, image} {
		if err := hostfs.MoveMount(m, filepath.Join(dir, m.Name())); err != nil {
			return err
		}
		m.Close()
	}
	if err := os.WriteFile(filepath.Join(dir, "ext4", "file"), []byte("x"), 0o600); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(dir, "erofs", "folder"), 0o700); err == nil {
		return fmt.Errorf("cannot trust image mount: it can be written to")
	}
	fmt.Println("ready")
	return nil
}

const (
	testBytes = 8 << 20
	testFiles = 100
)

func needRoot(t *testing.T) {
	t.Helper()
	if !host.IsRoot() {
		t.Skip("mounting needs root")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skipf("no loop devices here: %v", err)
	}
}

// at names a file below a mount that is attached nowhere.
func at(mnt *os.File, name string) string { return filepath.Join(host.FDPath(mnt.Fd()), name) }

// bound lists the loop devices that hold a file of dir.
func bound(t *testing.T, dir string) (all []string) {
	t.Helper()
	names, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if b, err := os.ReadFile(name); err == nil && strings.HasPrefix(string(b), dir+"/") {
			all = append(all, name)
		}
	}
	return all
}

// gone waits until nothing of dir is left: no loop device, no name. The kernel
// takes a mount down after its last descriptor is closed, not at once.
func gone(t *testing.T, dir string) {
	t.Helper()
	within(t, "nothing is bound", func() bool { return len(bound(t, dir)) == 0 })
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if !n.IsDir() {
			t.Errorf("%s is left over", n.Name())
		}
	}
}

// mountEmpty mounts an image with nothing in it, from a file without a name.
func mountEmpty(dir string, mount func(*os.File) (*os.File, error)) (*os.File, error) {
	f, err := host.OpenUnlinked(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Write(emptyImage()); err != nil {
		return nil, err
	}
	return mount(f)
}

func within(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}
