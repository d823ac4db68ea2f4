package hostfs

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

func openDir(t *testing.T, path string) *Dir {
	t.Helper()
	d, err := OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// put writes one file and commits it.
func put(d *Dir, rel, text string) error {
	f, err := d.Create(rel, 0o640)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(text); err != nil {
		f.Abort()
		return err
	}
	return f.Commit()
}

func TestDirWritesBelowAndReplacesOwnFiles(t *testing.T) {
	out := t.TempDir()
	d := openDir(t, out)
	before := openFiles(t)
	for _, text := range []string{"one", "two"} {
		if err := put(d, "a/b/c.txt", text); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(out + "/a/b/c.txt"); string(b) != "two" || err != nil {
		t.Errorf("read %q, %v", b, err)
	}
	if info, err := os.Stat(out + "/a/b/c.txt"); err != nil || info.Mode() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	f, err := d.Create("dropped", fs.ModeSetuid|0o777)
	if err != nil {
		t.Fatal(err)
	}
	if info, _ := f.Stat(); info.Mode() != 0o777 {
		t.Errorf("mode %v, want permission bits only", info.Mode())
	}
	f.Abort()
	if names, _ := os.ReadDir(out); len(names) != 1 {
		t.Errorf("temporary files are left: %v", names)
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d files open, %d before", after, before)
	}
	if err := put(d, "odd\n\xff name", "x"); err != nil {
		t.Errorf("a name that Linux allows: %v", err)
	}
}

func TestDirRefusesNamesAndThingsInTheWay(t *testing.T) {
	out, victim := t.TempDir(), t.TempDir()
	kept := write(t, victim+"/kept", "kept")
	d := openDir(t, out)
	symlink(t, victim, out+"/dirlink")
	symlink(t, kept, out+"/filelink")
	symlink(t, victim+"/new", out+"/loose")
	mkdir(t, out+"/folder")
	write(t, out+"/plain", "")
	if err := os.Link(kept, out+"/hard"); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(out+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	for _, rel := range []string{
		"", ".", "..", "/", "/etc/x", "../x", "a/../../x", "a/..", "a//b", "a/", "./a", "a\x00b",
		strings.Repeat("n", 256), strings.Repeat("a/", 2500) + "x",
		"dirlink/new", "filelink", "loose", "folder", "plain/x", "hard", "fifo",
	} {
		if err := put(d, rel, "evil"); err == nil {
			t.Errorf("%q was written", rel)
		}
	}
	if b, _ := os.ReadFile(kept); string(b) != "kept" {
		t.Errorf("the victim's file says %q", b)
	}
	if names, _ := os.ReadDir(victim); len(names) != 1 {
		t.Errorf("the victim's folder has %v", names)
	}
}

func TestCommitNoticesWhatCameMeanwhile(t *testing.T) {
	out := t.TempDir()
	d := openDir(t, out)
	f, err := d.Create("x", 0o644)
	if err != nil {
		t.Fatal(err)
	}
	symlink(t, "/etc/passwd", out+"/x")
	if err := f.Commit(); err == nil {
		t.Error("a link that came meanwhile was replaced")
	}
	if to, _ := os.Readlink(out + "/x"); to != "/etc/passwd" {
		t.Errorf("the link is now %q", to)
	}
	if names, _ := os.ReadDir(out); len(names) != 1 {
		t.Errorf("left: %v", names)
	}
}

// A component changes between folder and link as fast as it can.
func TestSwappedComponentNeverLeadsOut(t *testing.T) {
	out, victim := t.TempDir(), t.TempDir()
	mkdir(t, out+"/d")
	symlink(t, victim, out+"/other")
	d := openDir(t, out)
	var swaps atomic.Int64
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, out+"/d", unix.AT_FDCWD, out+"/other", unix.RENAME_EXCHANGE); err != nil {
				t.Error(err)
				return
			}
			swaps.Add(1)
		}
	}()
	written, refused := 0, 0
	for i := 0; i < 2000 || swaps.Load() < 10_000 && i < 1_000_000; i++ {
		switch err := put(d, "d/f", "evil"); {
		case err == nil:
			written++
		case errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR):
			refused++
		default:
			t.Fatal(err)
		}
	}
	close(stop)
	<-done
	t.Logf("%d swaps, %d written, %d refused", swaps.Load(), written, refused)
	if written == 0 || refused == 0 {
		t.Error("the race did not take place")
	}
	if names, _ := os.ReadDir(victim); len(names) != 0 {
		t.Errorf("landed in the victim: %v", names)
	}
}
