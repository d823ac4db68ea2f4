package image

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/sunaba-dev/sunaba/internal/image/erofs"

	"github.com/sunaba-dev/sunaba/box"
)

// tree collects the entries of an image.
type tree struct {
	entries map[string]erofs.Entry
	looked  []string // paths of the host that decided the entries; see again.go
}

// look notes that what lies at a path of the host, if anything, decides the
// tree. For a folder that includes the names in it and what links in it say,
// since neither changes without it.
func (t *tree) look(p string) { t.looked = append(t.looked, p) }

func newTree() *tree { return &tree{entries: map[string]erofs.Entry{}} }

// add adds an entry. A folder may be added again and keeps its first form;
// anything else twice is an error.
func (t *tree) add(e erofs.Entry) error {
	old, ok := t.entries[e.Path]
	if !ok {
		t.entries[e.Path] = e
		return nil
	}
	if old.Mode.IsDir() && e.Mode.IsDir() {
		return nil
	}
	return fmt.Errorf("cannot make image: %s is there twice", e.Path)
}

// dir makes a folder that is owned by owner (user and group) unless it exists.
func (t *tree) dir(name string, mode fs.FileMode, owner uint32) {
	if _, ok := t.entries[name]; !ok {
		t.entries[name] = erofs.Entry{Path: name, Mode: fs.ModeDir | mode, UID: owner, GID: owner}
	}
}

func (t *tree) file(name string, mode fs.FileMode, b []byte) error {
	return t.add(erofs.Entry{Path: name, Mode: mode, Size: int64(len(b)), Open: erofs.Bytes(b)})
}

func (t *tree) link(name, to string) error {
	return t.add(erofs.Entry{Path: name, Mode: fs.ModeSymlink | 0o777, Link: to})
}

// list returns the entries, with the folders between them and one fixed time
// for all. It is not 1970, because ZIP archives cannot hold times before 1980 and tools that write them
// fail on such files.
func (t *tree) list() []erofs.Entry {
	for name := range maps.Clone(t.entries) {
		for name != "/" {
			name = path.Dir(name)
			t.dir(name, 0o755, 0)
		}
	}
	entries := slices.Collect(maps.Values(t.entries))
	for i := range entries {
		entries[i].MTime = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return entries
}

// addSkeleton adds the folders that every image has, an /etc that tells
// nothing about the host, and the init program.
func (t *tree) addSkeleton(hostname, workdir, shell string, init []byte) error {
	for _, d := range []struct {
		name  string
		mode  fs.FileMode
		owner uint32
	}{
		{"/", 0o755, 0}, {"/dev", 0o755, 0}, {"/proc", 0o555, 0}, {"/sys", 0o555, 0},
		{"/.sunaba", 0o755, 0}, {"/etc", 0o755, 0}, {"/run", 0o755, 0}, {"/opt", 0o755, 0}, {"/mnt", 0o755, 0},
		{"/media", 0o755, 0}, {"/srv", 0o755, 0}, {"/home", 0o755, 0}, {"/root", 0o700, 0},
		{"/tmp", fs.ModeSticky | 0o777, 0}, {"/var", 0o755, 0}, {"/var/tmp", fs.ModeSticky | 0o777, 0},
		{"/var/cache", 0o755, 0}, {"/var/lib", 0o755, 0}, {"/var/log", 0o755, 0},
		{UserHome, 0o755, UserID}, {workdir, 0o755, UserID},
	} {
		t.dir(d.name, d.mode, d.owner)
	}
	for name, text := range map[string]string{
		"/etc/passwd": "root:x:0:0:root:/root:" + shell + "\n" +
			"user:x:1000:1000:user:" + UserHome + ":" + shell + "\n" +
			"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"/etc/group": "root:x:0:\ntty:x:5:\nuser:x:1000:\nnogroup:x:65534:\n",
		"/etc/nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n" +
			"networks: files\nprotocols: files\nservices: files\nrpc: files\n",
		"/etc/hosts": "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n" +
			"127.0.1.1 " + hostname + "\n",
		"/etc/hostname":    hostname + "\n",
		"/etc/resolv.conf": "nameserver " + box.LinkGateway4 + "\n", // nobody is there in a box without a network
	} {
		if err := t.file(name, 0o644, []byte(text)); err != nil {
			return err
		}
	}
	if err := t.link("/etc/mtab", "/proc/self/mounts"); err != nil {
		return err
	}
	if len(init) == 0 {
		return nil
	}
	return t.file(InitPath, 0o555, init)
}

// DefaultHostname is what a box is called unless it is told otherwise.
const DefaultHostname = "sunaba"

// DefaultWorkdir is where programs start unless they are told otherwise.
const DefaultWorkdir = "/workspace"

// placeNames fills in the defaults and checks what becomes part of an image.
func placeNames(hostname, workdir *string) error {
	if *hostname == "" {
		*hostname = DefaultHostname
	}
	if *workdir == "" {
		*workdir = DefaultWorkdir
	}
	if !validHostname(*hostname) {
		return fmt.Errorf("cannot make image: %q is not a host name of 1 to 64 letters, digits, dots and hyphens", *hostname)
	}
	if !cleanAbs(*workdir) || *workdir == "/" {
		return fmt.Errorf("cannot make image: working directory %q is not an absolute, clean path below the root", *workdir)
	}
	for _, dir := range []string{"/dev", "/proc", "/sys", "/etc", "/root", "/usr", "/.sunaba"} {
		if below(*workdir, dir) {
			return fmt.Errorf("cannot make image: working directory %q is in %s, which is not the user's", *workdir, dir)
		}
	}
	return nil
}

// validHostname accepts what Linux's sethostname takes (64 bytes), limited to
// the characters of RFC 1123, so that it cannot break lines of /etc/hosts.
func validHostname(s string) bool {
	for _, c := range []byte(s) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '.') {
			return false
		}
	}
	return s != "" && len(s) <= 64
}
