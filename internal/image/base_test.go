package image

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

func baseImage(t *testing.T, s *Store, opts BaseOptions) *Image {
	t.Helper()
	img, err := s.Base(t.Context(), opts, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { img.Close() })
	return img
}

// someFiles are base options that every Linux host can meet quickly.
func someFiles(t *testing.T) BaseOptions {
	t.Helper()
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("this host has no /bin/sh")
	}
	return BaseOptions{Packages: []string{}, Paths: []string{"/bin/sh"}, ExtraPaths: []string{"/bin/sh"}}
}

func TestBaseIsTheSameBytesEachTime(t *testing.T) {
	opts := BaseOptions{}
	if testing.Short() {
		opts = someFiles(t)
	}
	first := baseImage(t, newStore(t), opts)
	second := baseImage(t, newStore(t), opts)
	if first.Digest != second.Digest || first.Name != box.ImageBase || len(first.Binds) != 0 {
		t.Errorf("%s and %s", first.Digest, second.Digest)
	}
	info, err := first.File.Stat()
	if err != nil || info.Size() > 1<<30 {
		t.Errorf("the base image has %d bytes, %v", info.Size(), err)
	}
	t.Logf("%d MiB, notes %q", info.Size()>>20, first.Notes)
}

func TestBaseIsMadeOnce(t *testing.T) {
	s := newStore(t)
	opts := someFiles(t)
	var calls []string
	progress := func(done, total int64, what string) {
		if done > total {
			t.Errorf("%d of %d bytes", done, total)
		}
		calls = append(calls, what)
	}
	first, err := s.Base(t.Context(), opts, progress)
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	if !slices.ContainsFunc(calls, func(s string) bool { return strings.HasPrefix(s, "/") }) {
		t.Errorf("progress named no file: %q", calls)
	}
	calls = nil
	second, err := s.Base(t.Context(), opts, progress)
	if err != nil || len(calls) != 0 || second.Digest != first.Digest {
		t.Errorf("made again: %q, %v", calls, err)
	}
	second.Close()

	opts.Init = []byte("init")
	third := baseImage(t, s, opts)
	if third.Digest == first.Digest {
		t.Error("the init program is not part of the image")
	}
	if err := s.Remove(first.Digest); err != nil {
		t.Fatal(err)
	}
	opts.Init = nil
	if again := baseImage(t, s, opts); again.Digest != first.Digest {
		t.Error("a removed image comes back as another one")
	}
}

func TestBaseNeverTakesPrivateFolders(t *testing.T) {
	s := newStore(t)
	for _, p := range []string{"/", "/etc/shadow", "/root", "/home", "/var/lib", "/proc/1/root", "/tmp", "usr/bin", "/usr/../etc", "/usr/no/such/file"} {
		opts := someFiles(t)
		opts.ExtraPaths = []string{p}
		if _, err := s.Base(t.Context(), opts, nil); err == nil || box.KindOf(err) != box.Invalid {
			t.Errorf("%s: %v", p, err)
		}
	}
}

// dpkgHost is a small host with a package database.
func dpkgHost(t *testing.T, extra map[string]string) string {
	t.Helper()
	files := map[string]string{
		"usr/bin/": "", "usr/lib/": "", "bin": "-> usr/bin", "lib": "-> usr/lib",
		"usr/bin/dash": "dash", "usr/bin/sh": "-> dash",
		"usr/bin/mawk": "mawk", "usr/bin/awk": "-> /etc/alternatives/awk", "etc/alternatives/awk": "-> /usr/bin/mawk",
		"usr/bin/vi": "-> /etc/alternatives/vi", "etc/alternatives/vi": "-> /usr/bin/vim", "usr/bin/vim": "vim",
		"usr/bin/tool": "wrapper", "usr/bin/tool.real": "tool",
		"usr/lib/libx.so.1": "-> libx.so.1.0", "usr/lib/libx.so.1.0": "lib", "usr/lib/libother.so": "",
		"usr/share/doc/dash/README": "doc", "usr/share/man/man1/awk.1": "man",
		"usr/lib/secret": "for root only", "etc/shadow": "x", "var/lib/dash/state": "state",
		"var/lib/dpkg/status": `Package: dpkg
Status: install ok installed
Architecture: amd64
Version: 1

Package: dash
Status: install ok installed
Architecture: amd64
Version: 0.5
Pre-Depends: libx1 (>= 1.0), nothing-has-this
Depends: gone | awk-virtual,
 tool:any
Description: shell
 Depends: this line is text

Package: mawk
Status: install ok installed
Architecture: amd64
Version: 1.3
Provides: awk-virtual (= 1)

Package: libx1
Status: install ok installed
Architecture: i386
Version: 1

Package: libx1
Status: install ok installed
Architecture: amd64
Version: 1.0
Depends: dash

Package: tool
Status: install ok installed
Architecture: all
Version: 1

Package: tool-wrapper
Status: install ok installed
Architecture: all
Version: 1

Package: gone
Status: deinstall ok config-files
Architecture: all
Version: 1
`,
		"var/lib/dpkg/diversions":             "/usr/bin/tool\n/usr/bin/tool.real\ntool-wrapper\n",
		"var/lib/dpkg/info/dash.list":         "/.\n/bin\n/bin/dash\n/usr\n/usr/share/doc/dash/README\n/etc/shadow\n/var/lib/dash/state\n/usr/lib/secret\n/usr/bin/removed\n",
		"var/lib/dpkg/info/mawk.list":         "/usr/bin/mawk\n",
		"var/lib/dpkg/info/libx1:amd64.list":  "/lib/libx.so.1\n/usr/lib/libx.so.1.0\n",
		"var/lib/dpkg/info/libx1:i386.list":   "/usr/lib/libother.so\n",
		"var/lib/dpkg/info/tool.list":         "/usr/bin/tool\n",
		"var/lib/dpkg/info/tool-wrapper.list": "/usr/bin/tool\n",
		"var/lib/dpkg/alternatives/awk":       "auto\n/usr/bin/awk\nawk.1.gz\n/usr/share/man/man1/awk.1.gz\n\n/usr/bin/mawk\n5\n",
		"var/lib/dpkg/alternatives/vi":        "auto\n/usr/bin/vi\n\n/usr/bin/vim\n5\n",
	}
	for name, content := range extra {
		files[name] = content
	}
	root := fakeHost(t, files)
	if err := os.Chmod(filepath.Join(root, "usr/lib/secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	return root
}

// planned returns the image's files and links below the skeleton, with their
// contents or targets.
func planned(t *testing.T, root string, opts BaseOptions) (map[string]string, *base) {
	t.Helper()
	b, err := planBase(root, opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.collect(); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for name, e := range b.entries {
		switch {
		case e.Mode.IsDir():
		case e.Open == nil:
			got[name] = "-> " + e.Link
		case below(name, "/usr"):
			r, err := e.Open()
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(r)
			r.Close()
			got[name] = string(text)
		}
	}
	return got, b
}

func TestPackagesComeWithWhatTheyNeed(t *testing.T) {
	got, b := planned(t, dpkgHost(t, nil), BaseOptions{Packages: []string{"dash", "absent", "gone"}})
	want := map[string]string{
		"/bin": "-> usr/bin", "/lib": "-> usr/lib", "/etc/mtab": "-> /proc/self/mounts",
		"/usr/bin/dash": "dash", "/usr/bin/sh": "-> dash",
		"/usr/bin/mawk": "mawk", "/usr/bin/awk": "-> /etc/alternatives/awk", "/etc/alternatives/awk": "-> /usr/bin/mawk",
		"/usr/bin/tool":      "tool", // the diverted file under its own name, as the diverting package is not there
		"/usr/lib/libx.so.1": "-> libx.so.1.0", "/usr/lib/libx.so.1.0": "lib",
	}
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%s is %q, want %q", name, got[name], text)
		}
		delete(got, name)
	}
	for name, text := range got {
		t.Errorf("%s should not be in the image: %q", name, text)
	}
	notes := strings.Join(b.record.Notes, "; ")
	if !strings.Contains(notes, "absent, gone") || !strings.Contains(notes, "may read them: 1") {
		t.Errorf("notes %q", notes)
	}
}

func TestAnAlternativeThatIsNotInTheImageGivesWayToTheBestOneThatIs(t *testing.T) {
	got, _ := planned(t, dpkgHost(t, map[string]string{
		"etc/alternatives/awk": "-> /usr/bin/gawk", "usr/bin/gawk": "gawk",
		"var/lib/dpkg/alternatives/awk": "auto\n/usr/bin/awk\nawkman\n/usr/bin/awkman\n\n/usr/bin/dash\n5\n\n/usr/bin/gawk\n100\n/usr/bin/gawk\n/usr/bin/mawk\n10\n\n",
	}), BaseOptions{Packages: []string{"dash"}})
	if got["/etc/alternatives/awk"] != "-> /usr/bin/mawk" || got["/usr/bin/awk"] != "-> /etc/alternatives/awk" || got["/usr/bin/gawk"] != "" {
		t.Errorf("awk leads to %q", got["/etc/alternatives/awk"])
	}
}

func TestADivertingPackageKeepsItsFile(t *testing.T) {
	got, _ := planned(t, dpkgHost(t, nil), BaseOptions{Packages: []string{"tool", "tool-wrapper"}})
	if got["/usr/bin/tool"] != "wrapper" || got["/usr/bin/tool.real"] != "tool" {
		t.Errorf("%q", got)
	}
}

func TestTheKeyFollowsVersionsOfWhatIsInTheImage(t *testing.T) {
	key := func(edit ...string) string {
		root := dpkgHost(t, nil)
		name := filepath.Join(root, dpkgDir, "status")
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		s := strings.NewReplacer(edit...).Replace(string(b))
		if err := os.WriteFile(name, []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
		p, err := planBase(root, BaseOptions{Packages: []string{"dash"}})
		if err != nil {
			t.Fatal(err)
		}
		return p.key
	}
	same := key()
	if key() != same {
		t.Error("the key is not stable")
	}
	if key("Version: 1.3", "Version: 1.4") == same {
		t.Error("an upgrade of a dependency keeps the key")
	}
	if key("Package: gone", "Package: other") != same {
		t.Error("a package that is not in the image changes the key")
	}
}

func TestAHostWithoutDpkgUsesPaths(t *testing.T) {
	root := fakeHost(t, map[string]string{
		"usr/bin/": "", "bin": "-> usr/bin", "usr/bin/sh": "-> busybox", "usr/bin/busybox": "bb", "usr/lib/python3.9/os.py": "x",
		"usr/lib/python3.9/evil": "-> /etc/shadow", "etc/shadow": "s", "usr/bin/other": "",
	})
	got, _ := planned(t, root, BaseOptions{Paths: []string{"/bin/sh", "/usr/lib/python3*", "/usr/bin/absent"}})
	for _, name := range []string{"/usr/bin/sh", "/usr/bin/busybox", "/usr/lib/python3.9/os.py"} {
		if _, ok := got[name]; !ok {
			t.Errorf("%s is missing", name)
		}
	}
	for _, name := range []string{"/usr/bin/other", "/etc/shadow"} {
		if _, ok := got[name]; ok {
			t.Errorf("%s should not be in the image", name)
		}
	}
	if _, err := planBase(root, BaseOptions{Paths: []string{"/usr/bin/absent"}}); err == nil {
		t.Error("an image of nothing was planned")
	}
}

func TestBytecodeIsTakenOnlyIfItFits(t *testing.T) {
	when := time.Unix(1600000000, 0)
	pyc := func(size byte) string { // magic, flags, time, size, code
		return "MAGC" + "\x00\x00\x00\x00" + "\x00\x10\x5e\x5f" + string([]byte{size, 0, 0, 0}) + "code"
	}
	dir := "usr/lib/python3.9/"
	root := dpkgHost(t, map[string]string{
		dir + "good.py": "12345", dir + "__pycache__/good.cpython-39.pyc": pyc(5),
		dir + "stale.py": "12345", dir + "__pycache__/stale.cpython-39.pyc": pyc(6),
		dir + "short.py": "12345", dir + "__pycache__/short.cpython-39.pyc": "MAGC",
		dir + "__pycache__/absent.cpython-39.pyc": pyc(5), dir + "__pycache__/good.cpython-39.opt-1.pyc": pyc(5),
		"var/lib/dpkg/info/mawk.list": "/" + dir + "good.py\n/" + dir + "stale.py\n/" + dir + "short.py\n",
	})
	for _, name := range []string{"good", "stale", "short"} {
		if err := os.Chtimes(filepath.Join(root, dir, name+".py"), when, when); err != nil {
			t.Fatal(err)
		}
	}
	got, _ := planned(t, root, BaseOptions{Packages: []string{"mawk"}})
	var cached []string
	for name := range got {
		if strings.HasSuffix(name, ".pyc") {
			cached = append(cached, name)
		}
	}
	name := "/" + dir + "__pycache__/good.cpython-39.pyc"
	if !slices.Equal(cached, []string{name}) {
		t.Fatalf("bytecode %q", cached)
	}
	if want := "MAGC\x01" + strings.Repeat("\x00", 11) + "code"; got[name] != want {
		t.Errorf("%q, want %q", got[name], want)
	}
}

func TestTheLoaderCacheKeepsItsOrder(t *testing.T) {
	b, err := os.ReadFile("/etc/ld.so.cache")
	if err != nil {
		t.Skip("this host's loader has no cache")
	}
	c, err := parseLdCache(b)
	if err != nil || len(c.libs) == 0 {
		t.Fatal(err)
	}
	all := c.filter(func(string) bool { return true })
	again, err := parseLdCache(all.bytes())
	if err != nil || !slices.Equal(again.libs, all.libs) || again.flags != c.flags {
		t.Errorf("%d libraries became %v, %v", len(all.libs), again, err)
	}
	if again, err := parseLdCache(append(bytes.Repeat([]byte("old format "), 9), all.bytes()...)); err != nil || !slices.Equal(again.libs, all.libs) {
		t.Errorf("behind an old-format cache: %v", err)
	}
	first := all.libs[0].path
	if some := all.filter(func(p string) bool { return p != first }); slices.ContainsFunc(some.libs, func(l ldLib) bool { return l.path == first }) {
		t.Error("a library that is not in the image is in its cache")
	}
}

// FuzzLdCache: any bytes give a cache or an error, and a cache survives being
// written and read.
func FuzzLdCache(f *testing.F) {
	c := &ldCache{flags: 2, libs: []ldLib{{1, 0, 0, "libc.so.6", "/lib/libc.so.6"}, {2, 3, 4, "", ""}}}
	f.Add(c.bytes())
	f.Add(c.bytes()[:60])
	f.Add([]byte(ldMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parseLdCache(b)
		if err != nil {
			return
		}
		again, err := parseLdCache(c.bytes())
		if err != nil || !slices.Equal(again.libs, c.libs) {
			t.Errorf("%v became %v, %v", c, again, err)
		}
	})
}
