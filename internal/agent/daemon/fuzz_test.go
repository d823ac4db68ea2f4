package daemon

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func FuzzCommandLine(f *testing.F) {
	for _, s := range []string{"serve /work", "serve /work root handover", "serve / root keep-code --socket /run/s", "connect --socket /s", "sync", "sync now", "serve", "connect", "serve /a connect", "serve /a --socket"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		a, err := parseArgs(append([]string{Argv}, strings.Split(line, " ")...))
		if err != nil {
			return
		}
		if a.sync {
			if line != "sync" || a != (args{sync: true}) {
				t.Errorf("%q is %+v", line, a)
			}
			return
		}
		if a.connect != strings.HasPrefix(line, "connect") || a.connect && (a.socket == "" || a.root || a.handover) ||
			!a.connect && !filepath.IsAbs(a.dir) || a.socket != "" && !filepath.IsAbs(a.socket) {
			t.Errorf("%q is %+v", line, a)
		}
	})
}

func FuzzHandoverMessage(f *testing.F) {
	f.Add(unix.UnixRights(99_999))
	f.Add(unix.UnixRights(99_998, 99_999))
	f.Add(unix.UnixRights(99_999)[:18])
	f.Add([]byte{})
	f.Add([]byte("\x16\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x000000\xb0000"))
	f.Fuzz(func(t *testing.T, oob []byte) {
		// Only numbers that nobody has: the agent closes what it gets.
		for i := unix.CmsgLen(0); i+4 <= len(oob); i += 4 {
			oob[i+2] |= 0x80
		}
		if n := len(descriptors(oob)); n > len(oob)/4 {
			t.Errorf("%d descriptors in %d bytes", n, len(oob))
		}
	})
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00name\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		_ = eachEvent(b, func(e event) error {
			n++
			if strings.Contains(e.name, "\x00") {
				t.Errorf("a name with NUL: %q", e.name)
			}
			return nil
		})
		if n > len(b)/unix.SizeofInotifyEvent {
			t.Errorf("%d events in %d bytes", n, len(b))
		}
	})
}

// FuzzProcessFiles: what /proc says is the kernel's, but a program chooses its
// name.
func FuzzProcessFiles(f *testing.F) {
	f.Add("sh", uint32(1), uint32(77))
	f.Add(") Z 1 (", uint32(3), uint32(4))
	f.Fuzz(func(t *testing.T, name string, parent, session uint32) {
		line := fmt.Appendf(nil, "12 (%s) S %d 5 %d ", name, parent, session)
		got := statFields(line)
		if fieldAt(got, 1) != uint64(parent) || fieldAt(got, 3) != uint64(session) {
			t.Errorf("%q: %d, %d", line, fieldAt(got, 1), fieldAt(got, 3))
		}
		statFields([]byte(name))
		fieldAt([]byte(name), int(parent%10))
		number([]byte(name))
	})
}

// FuzzUnpack wants nothing outside the folder to be touched, whatever comes.
func FuzzUnpack(f *testing.F) {
	f.Add(archive(f, tar.Header{Name: "a/b"}, tar.Header{Name: "l", Linkname: "../out", Typeflag: tar.TypeSymlink}, tar.Header{Name: "l/x"}))
	f.Add(archive(f, tar.Header{Name: "../out/x"}))
	f.Add(archive(f, tar.Header{Name: "f"}, tar.Header{Name: "h", Linkname: "f", Typeflag: tar.TypeLink}, tar.Header{Name: "d", Typeflag: tar.TypeDir}))
	f.Add(archive(f, tar.Header{Name: strings.Repeat("deep/", 60) + "f", PAXRecords: map[string]string{"SCHILY.xattr.user.x": "1"}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 16<<10 {
			return
		}
		dir := t.TempDir()
		if err := os.MkdirAll(dir+"/in", 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(dir+"/out", 0o700); err != nil {
			t.Fatal(err)
		}
		root, err := handle(unix.AT_FDCWD, dir+"/in", unix.O_DIRECTORY)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(root)
		if h, err := tar.NewReader(bytes.NewReader(b)).Next(); err == nil && h.Size > 1<<20 {
			return // sparse: it would take long
		}
		u := &unpacker{slots: newSlots(), root: root}
		_ = u.unpack(bytes.NewReader(b))
		if left, err := os.ReadDir(dir + "/out"); err != nil || len(left) != 0 {
			t.Errorf("outside: %v, %v", left, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
			t.Errorf("beside: %v, %v", left, err)
		}
	})
}
