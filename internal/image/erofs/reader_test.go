package erofs

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"testing"
	"time"
)

func TestWalkGivesBackWhatWasWritten(t *testing.T) {
	es := sample()
	got := map[string]seen{}
	seenDirs := map[string]bool{}
	err := Walk(bytes.NewReader(write(t, es)), func(e Entry, r io.Reader) error {
		if e.Path != "/" && !seenDirs[path.Dir(e.Path)] {
			t.Errorf("%.80q comes before its directory", e.Path)
		}
		s := seen{
			mode: (&node{entry: e}).unixMode(), uid: e.UID, gid: e.GID, content: e.Link,
			mtime: fmt.Sprintf("%d.%09d", e.MTime.Unix(), e.MTime.Nanosecond()),
		}
		if e.Mode.IsDir() {
			seenDirs[e.Path] = true
		}
		if (r != nil) != e.Mode.IsRegular() {
			t.Errorf("%.80q: %v with reader %v", e.Path, e.Mode, r)
		}
		if r != nil {
			sum := sha256.New()
			if n, err := io.Copy(sum, r); err != nil || n != e.Size {
				t.Errorf("%.80q: %d of %d bytes, %v", e.Path, n, e.Size, err)
			}
			s.content = fmt.Sprintf("%x", sum.Sum(nil))
		}
		got[e.Path] = s
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	compare(t, got, want(es))
}

func TestWalkStopsAtAnError(t *testing.T) {
	stop, calls := errors.New("stop"), 0
	err := Walk(bytes.NewReader(write(t, sample())), func(Entry, io.Reader) error {
		calls++
		return stop
	})
	if err != stop || calls != 1 {
		t.Errorf("Walk = %v after %d calls", err, calls)
	}
}

// small has one of each thing that a walk looks at.
func small(t testing.TB) []byte {
	es := []Entry{
		{Path: "/", Mode: fs.ModeDir | 0o755, MTime: time.Unix(1, 2)},
		file("/d/e/f", 0o4755, "content"), file("/d/two", 0o644, strings.Repeat("2", BlockSize+1)),
		{Path: "/empty", Mode: 0o600}, {Path: "/link", Mode: fs.ModeSymlink | 0o777, Link: "d/e"},
		{Path: "/long", Mode: fs.ModeSymlink | 0o777, Link: strings.Repeat("k", MaxLink)},
	}
	for i := range 40 {
		es = append(es, Entry{Path: fmt.Sprintf("/many/%0200d", i), Mode: 0o644})
	}
	var b bytes.Buffer
	if _, err := Write(&b, es, 0); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// resum makes the superblock's checksum fit again, so that a change behind it
// is what is judged.
func resum(img []byte) {
	if len(img) < BlockSize {
		return
	}
	s := super{
		root:   binary.LittleEndian.Uint16(img[superOffset+14:]),
		inodes: binary.LittleEndian.Uint64(img[superOffset+16:]),
		blocks: binary.LittleEndian.Uint32(img[superOffset+36:]),
	}
	clear(img[superOffset+4 : superOffset+8])
	s.put(img[:BlockSize])
}

// drain walks, and checks that an accepted or refused image costs no more than
// its length.
func drain(t testing.TB, img []byte) error {
	var files, bytesRead int64
	err := Walk(bytes.NewReader(img), func(e Entry, r io.Reader) error {
		files++
		e.Open = zeros(e.Size)
		if len(e.Path) > maxPath || e.check() != nil {
			t.Errorf("%q is no path, %v", e.Path, e.check())
		}
		if r == nil {
			return nil
		}
		n, err := io.Copy(io.Discard, r)
		bytesRead += n
		return err
	})
	if files*inodeSize > int64(len(img)) || bytesRead > int64(len(img)) {
		t.Errorf("%d files and %d bytes in an image of %d", files, bytesRead, len(img))
	}
	return err
}

func TestAChangedMetadataByteIsSeenOrHarmless(t *testing.T) {
	img := small(t)
	if err := drain(t, img); err != nil {
		t.Fatal(err)
	}
	accepted := 0
	// A stride without a common factor with any field meets all of them.
	for i := superOffset; i < 2*BlockSize; i += 5 {
		bad := bytes.Clone(img)
		bad[i] ^= 1 << (i % 8)
		if drain(t, bad) == nil && i < BlockSize {
			t.Errorf("byte %d of the first block may change", i)
		}
		resum(bad)
		if drain(t, bad) == nil {
			accepted++ // an owner, a time, a permission, a letter of a name
		}
	}
	if accepted == 0 {
		t.Error("no change is accepted, so the checksum was not made to fit")
	}
}

func TestWhatIsNoImageOfOursIsRefused(t *testing.T) {
	img := small(t)
	le := binary.LittleEndian
	ino := func(n int, at int) int { // offset of field at in inode number n
		for off := superOffset + superSize; off+inodeSize <= len(img); off += inodeSize {
			if le.Uint16(img[off:])&formatExtended != 0 && le.Uint32(img[off+20:]) == uint32(n) {
				return off + at
			}
		}
		t.Fatalf("no inode %d", n)
		return 0
	}
	for name, change := range map[string]func(b []byte) []byte{
		"empty":               func(b []byte) []byte { return nil },
		"half a block":        func(b []byte) []byte { return b[:2048] },
		"its end is missing":  func(b []byte) []byte { return b[:len(b)-BlockSize] },
		"zeros":               func(b []byte) []byte { return make([]byte, len(b)) },
		"root at the end":     func(b []byte) []byte { le.PutUint16(b[superOffset+14:], 0xffff); return b },
		"no blocks":           func(b []byte) []byte { le.PutUint32(b[superOffset+36:], 0); return b },
		"too few blocks":      func(b []byte) []byte { le.PutUint32(b[superOffset+36:], 2); return b },
		"too many inodes":     func(b []byte) []byte { le.PutUint64(b[superOffset+16:], 1<<40); return b },
		"huge file":           func(b []byte) []byte { le.PutUint64(b[ino(5, 8):], 1<<63-1); return b },
		"file in the inodes":  func(b []byte) []byte { le.PutUint32(b[ino(5, 16):], 1); return b },
		"device":              func(b []byte) []byte { le.PutUint16(b[ino(5, 4):], 0o020644); return b },
		"compressed":          func(b []byte) []byte { le.PutUint16(b[ino(5, 0):], formatExtended|3<<1); return b },
		"compact inode":       func(b []byte) []byte { le.PutUint16(b[ino(5, 0):], 0); return b },
		"extended attributes": func(b []byte) []byte { le.PutUint16(b[ino(5, 2):], 1); return b },
		"directory of files":  func(b []byte) []byte { le.PutUint16(b[ino(2, 4):], 0o100755); return b },
	} {
		bad := change(bytes.Clone(img))
		resum(bad)
		if err := drain(t, bad); err == nil {
			t.Errorf("%s was read", name)
		} else if !strings.HasPrefix(err.Error(), "cannot read image: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestADirectoryInItselfEndsTheWalk(t *testing.T) {
	img := small(t)
	le := binary.LittleEndian
	root := int(le.Uint16(img[superOffset+14:])) << slotBits
	// The root's own directory lies behind its inode; its entry "d" is third.
	entries := img[root+inodeSize:]
	for _, to := range []uint64{uint64(root) >> slotBits, 0, 1 << 62, ^uint64(0)} {
		le.PutUint64(entries[2*direntSize:], to)
		resum(img)
		if err := drain(t, img); err == nil {
			t.Errorf("a directory that leads to %d was read", to)
		}
	}
}

func FuzzWalk(f *testing.F) {
	img := small(f)
	f.Add(uint32(0), []byte{}, uint32(0), []byte{})
	f.Add(uint32(superOffset+36), []byte{0xff, 0xff, 0xff, 0xff}, uint32(0), []byte{})
	f.Add(uint32(superOffset+superSize+8), []byte{0xff, 0xff, 0xff, 0xff, 0xff}, uint32(superOffset+superSize+16), []byte{1})
	f.Add(uint32(superOffset+superSize+inodeSize), []byte{36}, uint32(superOffset+superSize+inodeSize+8), []byte{0xff, 0xff})
	f.Fuzz(func(t *testing.T, at uint32, change []byte, at2 uint32, change2 []byte) {
		bad := bytes.Clone(img)
		copy(bad[int(at)%len(bad):], change)
		copy(bad[int(at2)%len(bad):], change2)
		drain(t, bad)
		resum(bad)
		drain(t, bad)
	})
}
