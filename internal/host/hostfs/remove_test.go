package hostfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// chain makes a chain of folders that is deeper than any path can name.
func chain(t *testing.T, top string, depth int) {
	t.Helper()
	cur, err := unix.Open(top, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range depth {
		if err := unix.Mkdirat(cur, "d", 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(cur, "d", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(cur)
		cur = next
	}
	unix.Close(cur)
}

func gone(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", path, err)
	}
}

func TestRemoveTreeOfAChainOf20000(t *testing.T) {
	top := mkdir(t, t.TempDir()+"/top")
	depth := 20_000
	if testing.Short() {
		depth = 2_000
	}
	chain(t, top, depth)
	before := openFiles(t)
	if err := RemoveTree(t.Context(), top); err != nil {
		t.Fatal(err)
	}
	gone(t, top)
	if after := openFiles(t); after != before {
		t.Errorf("%d files open, %d before", after, before)
	}
}

func TestRemoveTreeOfEveryShape(t *testing.T) {
	base := t.TempDir()
	victim := write(t, mkdir(t, base+"/victim")+"/kept", "kept")
	top := mkdir(t, base+"/top")
	for i := range 300 { // more than a batch, and folders that are not empty
		write(t, fmt.Sprintf("%s/f%d", mkdir(t, fmt.Sprintf("%s/d%d", top, i%150)), i), "")
		write(t, fmt.Sprintf("%s/f%d", top, i), "")
	}
	mkdir(t, top+"/empty")
	symlink(t, base+"/victim", top+"/dirlink")
	symlink(t, victim, top+"/filelink")
	if err := unix.Mkfifo(top+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, mkdir(t, top+"/shut")+"/x", "")
	if err := os.Chmod(top+"/shut", 0); err != nil {
		t.Fatal(err)
	}
	if err := RemoveTree(t.Context(), top); err != nil {
		t.Fatal(err)
	}
	gone(t, top)
	if b, _ := os.ReadFile(victim); string(b) != "kept" {
		t.Error("the victim behind the links is damaged")
	}
	link := symlink(t, base+"/victim", base+"/link")
	for _, p := range []string{link, base + "/never"} {
		if err := RemoveTree(t.Context(), p); err != nil {
			t.Error(err)
		}
		gone(t, p)
	}
	if _, err := os.Stat(victim); err != nil {
		t.Error("removing a link removed what it leads to")
	}
	for _, p := range []string{"/", "..", base + "/.."} {
		if err := RemoveTree(canceled(t), p); err == nil {
			t.Errorf("%s was removed", p)
		}
	}
}

func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestRemoveTreeStopsWithItsContext(t *testing.T) {
	top := mkdir(t, t.TempDir()+"/top")
	chain(t, top, 10)
	if err := RemoveTree(canceled(t), top); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestRemoveTreeWhileSomebodyWrites(t *testing.T) {
	base := t.TempDir()
	top := mkdir(t, base+"/top")
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			os.MkdirAll(fmt.Sprintf("%s/a/b%d/c", top, i%7), 0o755)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	RemoveTree(ctx, top) // may or may not win; must return
	cancel()
	close(stop)
	<-done
	if err := RemoveTree(t.Context(), top); err != nil {
		t.Error(err)
	}
	gone(t, top)
}

func TestSwappedFolderNeverLeadsRemovalOut(t *testing.T) {
	base := t.TempDir()
	victim := mkdir(t, base+"/victim")
	for i := range 50 {
		write(t, fmt.Sprintf("%s/%d", victim, i), "kept")
	}
	var swaps atomic.Int64
	for range 30 {
		top := mkdir(t, base+"/top")
		for i := range 20 {
			write(t, mkdir(t, fmt.Sprintf("%s/d/%d", top, i))+"/x", "")
		}
		other := symlink(t, victim, base+"/other")
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				default:
				}
				if unix.Renameat2(unix.AT_FDCWD, top+"/d", unix.AT_FDCWD, other, unix.RENAME_EXCHANGE) == nil {
					swaps.Add(1)
				}
			}
		}()
		RemoveTree(t.Context(), top) // an error is right when a folder was moved away
		close(stop)
		<-done
		for _, p := range []string{top, other} {
			if err := RemoveTree(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
	}
	if names, _ := os.ReadDir(victim); len(names) != 50 {
		t.Errorf("%d of 50 files are left after %d swaps", len(names), swaps.Load())
	}
	if swaps.Load() == 0 {
		t.Error("the race did not take place")
	}
}

func TestRemoveTreeDoesNotCrossMounts(t *testing.T) {
	if !privately(t) {
		return
	}
	base := t.TempDir()
	victim := mkdir(t, base+"/victim/deep")
	top := mkdir(t, base+"/top/a/m")
	bind(t, base+"/victim", top)
	defer unix.Unmount(top, unix.MNT_DETACH)
	if err := RemoveTree(t.Context(), base+"/top"); err == nil {
		t.Error("a tree with a mount in it was removed")
	}
	if _, err := os.Stat(victim); err != nil {
		t.Error("removal went through a mount")
	}
}
