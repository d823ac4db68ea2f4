package hostfs

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOpenInputReadsRegularFilesOnly(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir+"/file", "hello")
	before := openFiles(t)

	f, info, err := OpenInput(file)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(f); string(b) != "hello" || err != nil || info.Size() != 5 {
		t.Errorf("read %q, %v, size %d", b, err, info.Size())
	}
	f.Close()

	if err := unix.Mkfifo(dir+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", dir+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	mkdir(t, dir+"/real")
	write(t, dir+"/real/file", "")
	for path, says := range map[string]string{
		dir + "/fifo":                        "a named pipe",
		dir + "/s":                           "a socket",
		dir:                                  "a folder",
		"/dev/null":                          "a device",
		symlink(t, file, dir+"/link"):        "a symbolic link",
		symlink(t, "/nowhere", dir+"/loose"): "a symbolic link",
		dir + "/missing":                     "no such file",
	} {
		f, _, err := OpenInput(path)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %q", path, err, says)
			f.Close()
		}
	}
	symlink(t, "real", dir+"/way")
	if f, _, err := OpenInput(dir + "/way/file"); err != nil {
		t.Errorf("a link on the way is the caller's own: %v", err)
	} else {
		f.Close()
	}
	if after := openFiles(t); after != before+1 { // the listener
		t.Errorf("%d files open, %d before", after, before)
	}
}

// expectSource checks one source against a refused list.
func expectSource(t *testing.T, path string, refused []string, ok bool) {
	t.Helper()
	f, _, err := OpenMountSource(path, refused)
	if f != nil {
		f.Close()
	}
	if ok && err != nil || !ok && !errors.Is(err, ErrRefused) {
		t.Errorf("%s: got %v, want ok = %v", path, err, ok)
	}
}

func TestRefusedSourcesAreFoundUnderEveryName(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	shadow := write(t, mkdir(t, dir+"/etc")+"/shadow", "secret")
	keys := mkdir(t, dir+"/home/.ssh")
	write(t, mkdir(t, keys+"/deep")+"/id", "key")
	mkdir(t, dir+"/data/in")
	write(t, dir+"/data/file", "")
	symlink(t, "etc", dir+"/etc-link")
	symlink(t, shadow, dir+"/data/shadow-link")
	symlink(t, keys, dir+"/keys-link")
	if err := os.Link(shadow, mkdir(t, dir+"/hard")+"/innocent"); err != nil {
		t.Fatal(err)
	}
	run := mkdir(t, dir+"/run")
	l, err := net.Listen("unix", run+"/engine.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	symlink(t, "run", dir+"/var-run")
	refused := []string{shadow, keys, dir + "/var-run/engine.sock", dir + "/not/there", keys + "/"}

	for path, ok := range map[string]bool{
		dir + "/data":             true,
		dir + "/data/in":          true,
		dir + "/data/file":        true,
		dir + "/home/../data":     true,
		dir + "/var-run":          false, // holds the socket
		run:                       false,
		run + "/engine.sock":      false,
		shadow:                    false,
		dir + "/data/shadow-link": false,
		dir + "/etc-link/shadow":  false,
		dir + "/hard/innocent":    false,
		dir + "/hard":             false, // holds a hard link
		dir + "/etc":              false,
		dir + "/etc-link":         false,
		keys:                      false,
		keys + "/deep":            false,
		dir + "/keys-link/deep":   false,
		dir + "/home":             false,
		dir:                       false,
		"/":                       false,
		"/dev/null":               false,
	} {
		expectSource(t, path, refused, ok)
	}
	// A name that does not exist yet is refused once it does.
	mkdir(t, dir+"/not/there/below")
	expectSource(t, dir+"/not/there/below", refused, false)
	if _, _, err := OpenMountSource(dir+"/missing", nil); err == nil || errors.Is(err, ErrRefused) {
		t.Errorf("a missing source: %v", err)
	}
}

func TestRefusedSourcesAreFoundThroughBindMounts(t *testing.T) {
	if !privately(t) {
		return
	}
	dir := t.TempDir()
	shadow := write(t, mkdir(t, dir+"/etc")+"/shadow", "secret")
	keys := mkdir(t, dir+"/keys")
	mkdir(t, keys+"/deep")
	bind(t, shadow, write(t, dir+"/as-file", ""))
	bind(t, dir+"/etc", mkdir(t, dir+"/as-folder"))
	bind(t, keys+"/deep", mkdir(t, dir+"/below-keys"))
	bind(t, dir+"/etc", mkdir(t, dir+"/outer/sub"))
	bind(t, dir+"/etc", mkdir(t, dir+"/a space/x"))
	mkdir(t, dir+"/fine")
	bind(t, dir+"/fine", mkdir(t, dir+"/fine-again"))
	refused := []string{shadow, keys}
	for path, ok := range map[string]bool{
		dir + "/as-file":    false,
		dir + "/as-folder":  false,
		dir + "/below-keys": false,
		dir + "/outer":      false, // a mount below shows it
		dir + "/a space":    false,
		dir + "/fine":       true,
		dir + "/fine-again": true,
	} {
		expectSource(t, path, refused, ok)
	}
	for _, p := range []string{"/as-file", "/as-folder", "/below-keys", "/outer/sub", "/a space/x", "/fine-again"} {
		if err := unix.Unmount(dir+p, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}
}

func TestAResolvedSourceIsReachedThroughNoLink(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "a/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"l": "a", "a/l": "b"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]bool{"a/b": true, "a/l": false, "l/b": false, "l": false} {
		f, _, err := OpenResolvedSource(filepath.Join(dir, name), nil)
		if (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			f.Close()
		}
	}
}
