package image

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

func newStore(t *testing.T) *Store {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	s, err := OpenStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func hostImage(t *testing.T, s *Store, opts HostOptions) *Image {
	t.Helper()
	img, err := s.Host(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { img.Close() })
	return img
}

// fakeHost makes a host file system in a folder. A path ending in / is a
// folder, a value "-> x" a link; files get mode 0644.
func fakeHost(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if to, ok := strings.CutPrefix(content, "-> "); ok {
			err = os.Symlink(to, p)
		} else if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(p, 0o755)
		} else {
			err = os.WriteFile(p, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestHostIsMadeOnceAndTheSameEachTime(t *testing.T) {
	s := newStore(t)
	opts := HostOptions{Init: []byte("init program")}
	first, second := hostImage(t, s, opts), hostImage(t, s, opts)
	if first.Digest != second.Digest || first.Name != box.ImageHost {
		t.Errorf("images %s and %s", first.Digest, second.Digest)
	}
	again := hostImage(t, newStore(t), opts)
	if again.Digest != first.Digest {
		t.Error("another store makes another image of the same host")
	}
	other := hostImage(t, s, HostOptions{Init: []byte("another program")})
	if other.Digest == first.Digest {
		t.Error("the init program is not part of the image")
	}
	b, err := io.ReadAll(first.File)
	if err != nil || len(b)%4096 != 0 || !bytes.Contains(b, []byte("init program")) {
		t.Errorf("the descriptor gives %d bytes, %v", len(b), err)
	}
	if n := len(b); n > 4<<20 {
		t.Errorf("the skeleton has %d bytes", n)
	}
	infos, err := s.Images()
	if err != nil || len(infos) != 2 || infos[0].Name != box.ImageHost || infos[0].Used.IsZero() {
		t.Errorf("Images = %+v, %v", infos, err)
	}
	byDigest, err := s.Open(t.Context(), first.Digest)
	if err != nil || !slices.Equal(byDigest.Binds, first.Binds) || byDigest.Path != first.Path {
		t.Errorf("Open gives %+v, %v", byDigest, err)
	}
	byDigest.Close()
}

func TestHostFollowsTheHostsLayout(t *testing.T) {
	merged := fakeHost(t, map[string]string{
		"usr/bin/bash": "", "usr/lib64/": "", "bin": "-> usr/bin", "lib64": "-> /usr/lib64", "sbin": "-> usr/../usr/bin",
	})
	tr, r, err := hostTree(merged, HostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Binds) != 1 || r.Binds[0] != (box.Mount{Source: "/usr", Target: "/usr", ReadOnly: true}) {
		t.Errorf("binds %v", r.Binds)
	}
	for name, to := range map[string]string{"/bin": "usr/bin", "/lib64": "/usr/lib64"} {
		if e := tr.entries[name]; e.Mode.Type() != fs.ModeSymlink || e.Link != to {
			t.Errorf("%s is %+v", name, e)
		}
	}
	if _, ok := tr.entries["/lib32"]; ok {
		t.Error("/lib32 appears on a host without it")
	}

	split := fakeHost(t, map[string]string{"usr/": "", "bin/": "", "lib/": "", "usr/local/": "", "opt/tools/bin/": ""})
	_, r, err = hostTree(split, HostOptions{ExtraPrefixes: []string{"/opt/tools", "/usr/local"}})
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, b := range r.Binds {
		targets = append(targets, b.Target)
	}
	if !slices.Equal(targets, []string{"/usr", "/bin", "/lib", "/opt/tools"}) {
		t.Errorf("binds %v", targets)
	}
	if !strings.HasSuffix(r.Path, ":/opt/tools/bin") {
		t.Errorf("PATH %s", r.Path)
	}
}

func TestOnlyTheAllowedPartsOfEtcAreCopied(t *testing.T) {
	key := "-----BEGIN RSA " + "PRIVATE KEY-----"
	root := fakeHost(t, map[string]string{
		"usr/bin/mawk":                       "",
		"etc/shadow":                         "root:secret",
		"etc/passwd":                         "alice:x:1001:",
		"etc/hostname":                       "realhost",
		"etc/ssh/ssh_host_rsa_key":           key,
		"etc/ssl/private/server.key":         key,
		"etc/ssl/openssl.cnf":                "ordinary",
		"etc/ssl/certs/ca-certificates.crt":  "-> ../../pki/bundle.pem",
		"etc/pki/bundle.pem":                 "CERTIFICATE",
		"etc/ssl/certs/java/cacerts":         key,
		"etc/alternatives/awk":               "-> /usr/bin/mawk",
		"etc/alternatives/rel":               "-> ../../usr/bin/mawk",
		"etc/alternatives/out":               "-> /root/bin/evil",
		"etc/alternatives/sneaky":            "-> /usr/../root/bin/evil",
		"etc/alternatives/README":            "text",
		"etc/gitconfig":                      "token",
		"etc/profile.d/token.sh":             "export TOKEN=1",
		"etc/python3.11/sitecustomize.py":    "pass",
		"etc/ld.so.cache":                    "cache",
		"etc/matplotlibrc":                   "backend: Agg",
		"etc/java-17-openjdk/management/pw":  "password",
		"etc/java-17-openjdk/jvm-amd64.cfg":  "-server KNOWN",
		"etc/java-17-openjdk/shortcut":       "-> /etc/shadow",
		"etc/os-release":                     "-> ../usr/lib/os-release",
		"etc/mime.types":                     "text/plain txt",
		"etc/perl/Net/libnet.cfg":            "{}",
		"etc/ld.so.conf.d/x86_64.conf":       "/usr/lib/x",
		"etc/ld.so.conf.d/deep/a/b/c/d/e/f/": "",
	})
	if err := os.Chmod(filepath.Join(root, "etc/java-17-openjdk/management/pw"), 0o600); err != nil {
		t.Fatal(err)
	}
	tr, _, err := hostTree(root, HostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	text := map[string]string{}
	for name, e := range tr.entries {
		if strings.HasPrefix(name, "/etc/") && !e.Mode.IsDir() {
			text[name] = e.Link
			if e.Open != nil {
				r, _ := e.Open()
				b, _ := io.ReadAll(r)
				text[name] = string(b)
			}
		}
	}
	for name, want := range map[string]string{
		"/etc/alternatives/awk":              "/usr/bin/mawk",
		"/etc/alternatives/rel":              "../../usr/bin/mawk",
		"/etc/hostname":                      "sunaba\n",
		"/etc/ssl/certs/ca-certificates.crt": "CERTIFICATE",
		"/etc/ssl/openssl.cnf":               "ordinary",
		"/etc/python3.11/sitecustomize.py":   "pass",
		"/etc/ld.so.cache":                   "cache",
		"/etc/matplotlibrc":                  "backend: Agg",
		"/etc/java-17-openjdk/jvm-amd64.cfg": "-server KNOWN",
		"/etc/os-release":                    "../usr/lib/os-release",
		"/etc/mime.types":                    "text/plain txt",
		"/etc/perl/Net/libnet.cfg":           "{}",
		"/etc/ld.so.conf.d/x86_64.conf":      "/usr/lib/x",
		"/etc/mtab":                          "/proc/self/mounts",
		"/etc/resolv.conf":                   "nameserver 198.18.0.1\n",
	} {
		got, ok := text[name]
		if !ok || got != want {
			t.Errorf("%s is %q (%v), want %q", name, got, ok, want)
		}
		delete(text, name)
	}
	for _, made := range []string{"/etc/passwd", "/etc/group", "/etc/hosts", "/etc/nsswitch.conf"} {
		if strings.Contains(text[made], "alice") || strings.Contains(text[made], "realhost") {
			t.Errorf("%s tells about the host: %q", made, text[made])
		}
		delete(text, made)
	}
	for name, s := range text {
		t.Errorf("%s should not be in the image: %q", name, s)
	}
}

func TestMountPointsAreMade(t *testing.T) {
	root := fakeHost(t, map[string]string{"usr/share/data/": "", "data/": "", "file": "x", "bin": "-> usr/bin"})
	ok := []box.Mount{
		{Source: "/data", Target: "/in/put"}, {Source: "/file", Target: "/in/f.txt"},
		{Source: "/data", Target: "/usr/share/data"}, {Source: "/data", Target: "/tmp"}, {Source: "/file", Target: "/etc/hosts"},
	}
	tr, _, err := hostTree(root, HostOptions{Mounts: ok})
	if err != nil {
		t.Fatal(err)
	}
	if e := tr.entries["/in/put"]; !e.Mode.IsDir() {
		t.Errorf("/in/put is %+v", e)
	}
	if e := tr.entries["/in/f.txt"]; !e.Mode.IsRegular() || e.Path == "" {
		t.Errorf("/in/f.txt is %+v", e)
	}
	if e := tr.entries["/tmp"]; e.Mode != fs.ModeDir|fs.ModeSticky|0o777 {
		t.Errorf("a mount changed /tmp to %v", e.Mode)
	}
	for name, m := range map[string]box.Mount{
		"missing source":    {Source: "/nowhere", Target: "/a"},
		"absent below /usr": {Source: "/data", Target: "/usr/share/other"},
		"root":              {Source: "/data", Target: "/"},
		"init":              {Source: "/data", Target: "/.sunaba"},
		"relative":          {Source: "/data", Target: "a"},
		"unclean":           {Source: "/data", Target: "/a/../b"},
		"folder over file":  {Source: "/data", Target: "/etc/hosts"},
		"file over folder":  {Source: "/file", Target: "/etc"},
		"over a link":       {Source: "/data", Target: "/bin"},
		"file over a link":  {Source: "/file", Target: "/etc/mtab"},
	} {
		if _, _, err := hostTree(root, HostOptions{Mounts: []box.Mount{m}}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestPrivateFoldersAreNoPrefix(t *testing.T) {
	root := fakeHost(t, map[string]string{
		"usr/": "", "opt/real/": "", "opt/link": "-> real", "opt/f": "file", "home/me/": "", "l": "-> /home",
		"l2": "-> .", "data:x/": "",
	})
	for _, dir := range []string{
		"/", "", "opt/real", "/opt/real/", "/opt/../home", "/home", "/home/me", "/root", "/etc", "/proc", "/proc/1/root", "/sys",
		"/dev", "/run", "/var", "/var/lib", "/tmp", "/boot", "/opt/link", "/opt/f", "/opt/nothing", "/l", "/l/me", "/l2/opt/real", "/data:x",
	} {
		if _, _, err := hostTree(root, HostOptions{ExtraPrefixes: []string{dir}}); err == nil {
			t.Errorf("%q was accepted", dir)
		}
	}
	if _, _, err := hostTree(root, HostOptions{ExtraPrefixes: []string{"/opt/real"}}); err != nil {
		t.Error(err)
	}
}

func TestNamesThatWouldBreakTheImageAreRefused(t *testing.T) {
	s := newStore(t)
	for _, opts := range []HostOptions{
		{Hostname: "a b"}, {Hostname: "a\nb"}, {Hostname: strings.Repeat("a", 65)},
		{Workdir: "work"}, {Workdir: "/"}, {Workdir: "/w/"}, {Workdir: "/usr/x"}, {Workdir: "/etc"}, {Workdir: "/proc/x"},
	} {
		if img, err := s.Host(context.Background(), opts); err == nil || box.KindOf(err) != box.Invalid {
			t.Errorf("%+v: %v, %v", opts, img, err)
		}
	}
	hostImage(t, s, HostOptions{Hostname: "box-1.example", Workdir: "/home/user/work"})
}

func BenchmarkHost(b *testing.B) {
	s, err := OpenStore(filepath.Join(b.TempDir(), "s"))
	if err != nil {
		b.Fatal(err)
	}
	init := make([]byte, 3<<20)
	img, err := s.Host(context.Background(), HostOptions{Init: init})
	if err != nil {
		b.Fatal(err)
	}
	img.Close()
	time.Sleep(1100 * time.Millisecond) // until the record is trusted
	for b.Loop() {
		img, err := s.Host(context.Background(), HostOptions{Init: init})
		if err != nil {
			b.Fatal(err)
		}
		img.Close()
	}
}

func TestChosenMountPointsDoNotFillTheStore(t *testing.T) {
	s := newStore(t)
	src := t.TempDir()
	first := HostOptions{Mounts: []box.Mount{{Source: src, Target: "/first"}}}
	var digest string
	for i := range keepSkeletons + 3 {
		for _, opts := range []HostOptions{first, {Mounts: []box.Mount{{Source: src, Target: fmt.Sprintf("/m%d", i)}}}} {
			img, err := s.Host(t.Context(), opts)
			if err != nil {
				t.Fatal(err)
			}
			img.Close()
			if opts.Mounts[0].Target == "/first" {
				digest = img.Digest
			}
		}
	}
	infos, err := s.Images()
	if err != nil || len(infos) != keepSkeletons {
		t.Errorf("%d images, want %d; %v", len(infos), keepSkeletons, err)
	}
	if !slices.ContainsFunc(infos, func(i Info) bool { return i.Digest == digest }) {
		t.Error("the image that was used all the time is gone")
	}
}
