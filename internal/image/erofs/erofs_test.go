package erofs

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	reader "gvisor.dev/gvisor/pkg/erofs"
)

func file(p string, mode fs.FileMode, content string) Entry {
	return Entry{Path: p, Mode: mode, Size: int64(len(content)), Open: Bytes([]byte(content))}
}

// sample is a tree with every case that has its own code path.
func sample() []Entry {
	when := time.Unix(1700000000, 123456789)
	long := strings.Repeat("n", MaxName)
	es := []Entry{
		{Path: "/", Mode: fs.ModeDir | 0o711, MTime: when},
		{Path: "/tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777},
		{Path: "/home/user", Mode: fs.ModeDir | 0o755, UID: 1000, GID: 1001},
		{Path: "/empty", Mode: 0o400},
		{Path: "/link", Mode: fs.ModeSymlink | 0o777, Link: "deep/x", UID: 7, MTime: when},
		{Path: "/longlink", Mode: fs.ModeSymlink | 0o777, Link: strings.Repeat("l/", 2047) + "l"},
		{Path: "/inlinelink", Mode: fs.ModeSymlink | 0o777, Link: strings.Repeat("k", BlockSize-inodeSize)},
		{Path: "/blocklink", Mode: fs.ModeSymlink | 0o777, Link: strings.Repeat("m", BlockSize-inodeSize+1)},
		file("/!before-dot", 0o644, "sorts before the dot"),
		file("/setuid", fs.ModeSetuid|fs.ModeSetgid|0o755, "bits"),
		file("/big-ids", 0o640, "ids"),
		file("/"+long, 0o644, "longest name"),
		file("/one-block", 0o644, strings.Repeat("1", BlockSize)),
		file("/one-more", 0o644, strings.Repeat("2", BlockSize+1)),
		file("/\xff\xfe", 0o644, "not UTF-8"),
	}
	es[10].UID, es[10].GID = 4000000000, 70000
	deep := "/deep"
	for range 60 {
		deep += "/d"
	}
	es = append(es, file(deep+"/f", 0o444, "at the bottom"))
	for i := range 3000 {
		es = append(es, file(fmt.Sprintf("/many/%d-%s", i*7919%3000, strings.Repeat("x", i%200)), 0o644, strconv.Itoa(i)))
	}
	for i := range 40 { // names that fill a directory block to the last byte
		es = append(es, Entry{Path: fmt.Sprintf("/exact/%0244d", i), Mode: 0o644})
	}
	return es
}

func write(t *testing.T, es []Entry) []byte {
	t.Helper()
	var b bytes.Buffer
	n, err := Write(&b, es, 0)
	if err != nil {
		t.Fatal(err)
	}
	if n != int64(b.Len()) || n%BlockSize != 0 {
		t.Fatalf("Write says %d bytes and wrote %d", n, b.Len())
	}
	return b.Bytes()
}

// seen describes one inode; want and the readers must give the same.
type seen struct {
	mode     uint16
	uid, gid uint32
	mtime    string
	content  string // digest of a file, or the link target
}

func want(es []Entry) map[string]seen {
	m := map[string]seen{}
	for _, e := range es {
		s := seen{mode: (&node{entry: e}).unixMode(), uid: e.UID, gid: e.GID, mtime: "0.000000000"}
		if !e.MTime.IsZero() {
			s.mtime = fmt.Sprintf("%d.%09d", e.MTime.Unix(), e.MTime.Nanosecond())
		}
		switch {
		case e.Mode.IsRegular():
			var b []byte
			if e.Open != nil {
				r, _ := e.Open()
				b, _ = io.ReadAll(r)
			}
			s.content = fmt.Sprintf("%x", sha256.Sum256(b))
		case e.Mode.Type() == fs.ModeSymlink:
			s.content = e.Link
		}
		m[e.Path] = s
		for p := path.Dir(e.Path); ; p = path.Dir(p) {
			if _, ok := m[p]; !ok {
				m[p] = seen{mode: 0o040755, mtime: "0.000000000"}
			}
			if p == "/" {
				break
			}
		}
	}
	// An entry for a directory wins over the one made for its contents.
	for _, e := range es {
		if e.Mode.IsDir() {
			s := m[e.Path]
			s.mode = (&node{entry: e}).unixMode()
			m[e.Path] = s
		}
	}
	return m
}

func compare(t *testing.T, got, want map[string]seen) {
	t.Helper()
	for _, p := range slices.Sorted(maps.Keys(want)) {
		if g, ok := got[p]; !ok {
			t.Errorf("%.80q is missing", p)
		} else if g != want[p] {
			t.Errorf("%.80q is\n%+v, want\n%+v", p, g, want[p])
		}
	}
	for p := range got {
		if _, ok := want[p]; !ok {
			t.Errorf("%.80q should not be there", p)
		}
	}
}

func TestTheUserSpaceKernelReadsWhatWasWritten(t *testing.T) {
	es := sample()
	name := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(name, write(t, es), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	img, err := reader.OpenImage(f)
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()

	got := map[string]seen{}
	var walk func(p string, nid, parent uint64)
	walk = func(p string, nid, parent uint64) {
		ino, err := img.Inode(nid)
		if err != nil {
			t.Fatalf("%.80q: %v", p, err)
		}
		s := seen{mode: ino.Mode(), uid: ino.UID(), gid: ino.GID(), mtime: fmt.Sprintf("%d.%09d", ino.Mtime(), ino.MtimeNsec())}
		switch {
		case ino.IsRegular():
			if off, err := ino.DataOffset(); err != nil || off%BlockSize != 0 {
				t.Errorf("%.80q cannot be mapped: offset %d, %v", p, off, err)
			}
			ranges, err := ino.DataRanges()
			if err != nil {
				t.Fatal(err)
			}
			s.content = fmt.Sprintf("%x", sha256.Sum256(ranges[0].Bytes))
		case ino.IsSymlink():
			if s.content, err = ino.Readlink(); err != nil {
				t.Fatal(err)
			}
		case ino.IsDir():
			subdirs := uint32(0)
			err := ino.IterDirents(func(name string, typ uint8, child uint64) error {
				if found, err := ino.Lookup(name); err != nil || found != child {
					t.Errorf("%.80q: looking up %.80q gives %d, %v; want %d", p, name, found, err, child)
				}
				switch name {
				case ".":
					if child != nid {
						t.Errorf("%.80q: . is not itself", p)
					}
				case "..":
					if child != parent {
						t.Errorf("%.80q: .. is not the parent", p)
					}
				default:
					if typ == typeDir {
						subdirs++
					}
					walk(path.Join(p, name), child, nid)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if ino.Nlink() != subdirs+2 {
				t.Errorf("%.80q has %d links and %d directories", p, ino.Nlink(), subdirs)
			}
		}
		got[p] = s
	}
	walk("/", img.RootNid(), img.RootNid())
	compare(t, got, want(es))
}

// run runs a shell script in a private mount namespace.
func run(t *testing.T, script string, args ...string) string {
	t.Helper()
	cmd := exec.Command("unshare", append([]string{"-m", "--propagation", "private", "sh", "-euc", script, "sh"}, args...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	return string(out)
}

func TestTheKernelReadsWhatWasWritten(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	if fss, err := os.ReadFile("/proc/filesystems"); err != nil || !bytes.Contains(fss, []byte("\terofs\n")) {
		t.Skip("this kernel has no EROFS (or its module is not loaded)")
	}
	es := sample()
	dir := t.TempDir()
	name := filepath.Join(dir, "image")
	if err := os.WriteFile(name, write(t, es), 0o600); err != nil {
		t.Fatal(err)
	}
	mnt := filepath.Join(dir, "mnt")
	if err := os.Mkdir(mnt, 0o700); err != nil {
		t.Fatal(err)
	}
	out := run(t, `mount -t erofs -o loop,ro "$1" "$2"; cd "$2"
find . -printf '%p\0%y\0%m\0%U\0%G\0%T@\0%l\0'
printf '#\0'
find . -type f -print0 | xargs -0 sha256sum -z`, name, mnt)
	tree, sums, _ := strings.Cut(out, "#\x00")
	digest := map[string]string{}
	for line := range strings.SplitSeq(sums, "\x00") {
		if sum, p, ok := strings.Cut(line, "  "); ok {
			digest[p] = sum
		}
	}
	got := map[string]seen{}
	types := map[string]uint16{"f": 0o100000, "d": 0o040000, "l": 0o120000}
	fields := strings.Split(tree, "\x00")
	for ; len(fields) >= 7; fields = fields[7:] {
		perm, _ := strconv.ParseUint(fields[2], 8, 16)
		uid, _ := strconv.ParseUint(fields[3], 10, 32)
		gid, _ := strconv.ParseUint(fields[4], 10, 32)
		sec, frac, _ := strings.Cut(fields[5], ".")
		s := seen{mode: types[fields[1]] | uint16(perm), uid: uint32(uid), gid: uint32(gid), mtime: sec + "." + frac[:9]}
		s.content = fields[6]
		if fields[1] == "f" {
			s.content = digest[fields[0]]
		}
		got[path.Join("/", fields[0])] = s
	}
	compare(t, got, want(es))
}

func TestFsckFindsNothing(t *testing.T) {
	fsck, err := exec.LookPath("fsck.erofs")
	if err != nil {
		t.Skip("fsck.erofs is not installed (Debian: erofs-utils)")
	}
	name := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(name, write(t, sample()), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(fsck, "-d3", "--extract", name)
	cmd.Env = []string{"LC_ALL=C"}
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("o error")) {
		t.Fatalf("%v: %s", err, out)
	}
}

func TestBytesDependOnTheTreeOnly(t *testing.T) {
	es := sample()
	first := write(t, es)
	rand.Shuffle(len(es), func(i, j int) { es[i], es[j] = es[j], es[i] })
	if !bytes.Equal(first, write(t, es)) {
		t.Error("the order of the entries changes the image")
	}
	es[0].GID++
	if bytes.Equal(first, write(t, es)) {
		t.Error("an owner does not change the image")
	}
}

func TestAnEmptyTreeIsAnImage(t *testing.T) {
	if n := len(write(t, nil)); n != BlockSize {
		t.Errorf("an empty file system has %d bytes", n)
	}
}

// zeros gives n zero bytes without holding them.
func zeros(n int64) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(io.LimitReader(zeroReader{}, n)), nil }
}

type zeroReader struct{}

func (zeroReader) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestAFileMayBeLargerThan4GiB(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 4 GiB")
	}
	const size = 1<<32 + 5
	n, err := Write(io.Discard, []Entry{{Path: "/a", Size: size, Open: zeros(size)}, file("/b", 0o644, "after it")}, 0)
	if want := int64(BlockSize + roundUp(size, BlockSize) + BlockSize); err != nil || n != want {
		t.Errorf("Write = %d, %v; want %d", n, err, want)
	}
}

func TestWhatIsNoFileSystemIsRefused(t *testing.T) {
	dir := fs.ModeDir | 0o755
	link := fs.ModeSymlink | 0o777
	for name, es := range map[string][]Entry{
		"twice":                  {file("/a", 0, "1"), file("/a", 0, "2")},
		"directory twice":        {{Path: "/a", Mode: dir}, {Path: "/a", Mode: dir}},
		"below a file":           {file("/a", 0, "1"), file("/a/b", 0, "2")},
		"below a file, reversed": {file("/a/b", 0, "2"), file("/a", 0, "1")},
		"below a link":           {{Path: "/a", Mode: link, Link: "b"}, file("/a/b", 0, "")},
		"root is a file":         {file("/", 0, "1")},
		"relative":               {file("a", 0, "1")},
		"empty path":             {file("", 0, "1")},
		"dots":                   {file("/a/../b", 0, "1")},
		"trailing slash":         {{Path: "/a/", Mode: dir}},
		"NUL":                    {file("/a\x00b", 0, "1")},
		"long name":              {file("/"+strings.Repeat("n", 256), 0, "")},
		"long parent name":       {file("/"+strings.Repeat("n", 256)+"/a", 0, "")},
		"empty link":             {{Path: "/a", Mode: link}},
		"long link":              {{Path: "/a", Mode: link, Link: strings.Repeat("l", 4096)}},
		"device":                 {{Path: "/a", Mode: fs.ModeDevice}},
		"socket":                 {{Path: "/a", Mode: fs.ModeSocket}},
		"no contents":            {{Path: "/a", Size: 1}},
		"negative size":          {{Path: "/a", Size: -1}},
		"too many blocks":        {{Path: "/a", Size: 1 << 44, Open: zeros(0)}},
		"far too many blocks":    {{Path: "/a", Size: 1<<63 - 1, Open: zeros(0)}},
	} {
		var b bytes.Buffer
		if _, err := Write(&b, es, 0); err == nil || b.Len() != 0 {
			t.Errorf("%s: %v after %d bytes", name, err, b.Len())
		}
	}
}

func TestWrongContentsAreAnError(t *testing.T) {
	broken := errors.New("broken")
	for name, e := range map[string]Entry{
		"shorter":    {Path: "/a", Size: 10, Open: zeros(9)},
		"longer":     {Path: "/a", Size: 10, Open: zeros(11)},
		"unopenable": {Path: "/a", Size: 10, Open: func() (io.ReadCloser, error) { return nil, broken }},
	} {
		if _, err := Write(io.Discard, []Entry{e}, 0); err == nil || !strings.Contains(err.Error(), "/a") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheSizeLimitIsExact(t *testing.T) {
	es := []Entry{file("/a", 0o644, "1"), file("/b", 0o644, "2")}
	if _, err := Write(io.Discard, es, 3*BlockSize); err != nil {
		t.Error(err)
	}
	if _, err := Write(io.Discard, es, 3*BlockSize-1); err == nil {
		t.Error("an image of three blocks was written under a smaller limit")
	}
}
