package ext4

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func options(bytes, files int64) Options {
	return Options{Bytes: bytes, Files: files, UID: 70_000, GID: 1 << 31, Now: time.Unix(1<<32+5, 6), Seed: [16]byte{1, 2}}
}

// geometries have one and several groups, a short last one, and as many inodes
// as data or next to none.
var geometries = []Options{ //house:const a table
	options(MinBytes, 1), options(MinBytes, 100), options(MinBytes+1, 65_536),
	options(64<<20, 65_536), options(127<<20, 500), options(128<<20, 32_758), options(129<<20, 32_759),
	options(1<<30, 65_536), options(1<<30, 1_000_000), options(10<<30, 1000), options(1<<40, 10_000_000),
	kept(MinBytes, 100), kept(64<<20, 4096), kept(127<<20, 500), kept(200<<20, 12_800), kept(1<<30, 65_536), kept(10<<30, 1000),
}

func kept(bytes, files int64) Options {
	o := options(bytes, files)
	o.Journal = true
	return o
}

func (o Options) String() string { return fmt.Sprintf("%d bytes and %d files", o.Bytes, o.Files) }

func TestThePlanHoldsWhatWasAskedFor(t *testing.T) {
	check := func(o Options) {
		l, err := plan(o)
		if err != nil {
			t.Fatal(err)
		}
		last := l.blocks - l.perGroup*(l.groups-1)
		reserve := min(l.blocks/50, 4096)
		room := (l.blocks - l.end - reserve) * BlockSize
		switch {
		case l.groups*l.inodes-l.used != o.Files || l.used < reservedInodes:
			t.Errorf("%v: %d inodes in use of %d groups of %d", o, l.used, l.groups, l.inodes)
		case l.inodes > bitmapBits || l.inodes%inodesPerBlock != 0 || l.perGroup > bitmapBits || l.perGroup%8 != 0:
			t.Errorf("%v: %d inodes and %d blocks in a group", o, l.inodes, l.perGroup)
		case last < 1 || last > l.perGroup:
			t.Errorf("%v: %d blocks in the last group", o, last)
		case o.Journal != (l.journal > 0) || l.end != l.root+1+l.journal:
			t.Errorf("%v: a journal of %d blocks up to %d", o, l.journal, l.end)
		case l.blocks >= 1<<32:
			t.Errorf("%v: %d blocks", o, l.blocks)
		case room < o.Bytes || float64(room) > float64(o.Bytes)*1.03:
			t.Errorf("%v: room for %d bytes", o, room)
		}
		if files := o.Files + reservedInodes; l.inodes > fewInodes+inodesPerBlock && l.groups < l.blocks/(2*fewBlocks) && l.groups < files/fewInodes {
			t.Errorf("%v: %d inodes in a group, and %d blocks would allow fewer", o, l.inodes, l.blocks)
		}
	}
	for _, o := range geometries {
		check(o)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		if t.Failed() {
			break
		}
		o := options(MinBytes+r.Int64N(1<<(20+r.IntN(23))), 1+r.Int64N(1<<r.IntN(25)))
		o.Journal = r.IntN(2) == 0
		check(o)
	}
}

func TestWhatCannotBeMadeIsRefused(t *testing.T) {
	for _, o := range []Options{{}, options(MinBytes-1, 1), options(MaxBytes+1, 1), options(MinBytes, 0), options(MinBytes, MaxFiles+1), options(-1, -1)} {
		if n, err := Write(nil, o); err == nil {
			t.Errorf("%v: made with %d bytes", o, n)
		}
	}
}

func TestFsckFindsNothing(t *testing.T) {
	fsck := "/sbin/e2fsck"
	if _, err := os.Stat(fsck); err != nil {
		t.Skip("e2fsck is not installed (Debian: e2fsprogs)")
	}
	for _, o := range geometries {
		l, err := plan(o)
		if err != nil {
			t.Fatal(err)
		}
		if l.used >= l.inodes || o.Bytes > 1<<30 {
			continue // the kernel accepts inodes in use that nothing refers to; fsck does not
		}
		name := filepath.Join(t.TempDir(), "fs")
		f, err := os.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		size, err := Write(f, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(size); err != nil {
			t.Fatal(err)
		}
		f.Close()
		cmd := exec.Command(fsck, "-fn", name)
		cmd.Env = []string{"LC_ALL=C"}
		out, err := cmd.CombinedOutput()
		want := fmt.Sprintf(": %d/%d files", l.used, l.used+o.Files)
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%v: want %q, %v\n%s", o, want, err, out)
		}
	}
}

func TestWhatWasMadeIsKnownAgainAndNothingElse(t *testing.T) {
	name := filepath.Join(t.TempDir(), "fs")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	made := func(o Options) int64 {
		if err := f.Truncate(0); err != nil {
			t.Fatal(err)
		}
		size, err := Write(f, o)
		if err != nil {
			t.Fatal(err)
		}
		return size
	}
	size := made(kept(8<<20, 500))
	if k, err := Look(f); err != nil || k != (Kept{Size: size}) {
		t.Errorf("%+v, %v, of %d bytes", k, err, size)
	}
	for what, at := range map[string]struct {
		off  int64
		with byte
		want Kept
		err  bool
	}{
		"in use":              {superOffset + 0x60, incompat&0xff | needsReplay, Kept{Size: size, Replay: true}, false},
		"damaged":             {superOffset + 0x3a, 3, Kept{Size: size, Errors: 1}, false},
		"not unmounted":       {superOffset + 0x3a, 0, Kept{Size: size, Errors: 1}, false},
		"errors were found":   {superOffset + 0x194, 7, Kept{Size: size, Errors: 7}, false},
		"no ext4":             {superOffset + 0x38, 0, Kept{}, true},
		"an unknown feature":  {superOffset + 0x61, 0xff, Kept{}, true},
		"a compatible one":    {superOffset + 0x5d, 0xff, Kept{}, true},
		"a read-only one":     {superOffset + 0x66, 1, Kept{}, true},
		"a journal elsewhere": {superOffset + 0xe4, 8, Kept{}, true},
		"other blocks":        {superOffset + 0x18, 0, Kept{}, true},
	} {
		made(kept(8<<20, 500))
		if _, err := f.WriteAt([]byte{at.with}, at.off); err != nil {
			t.Fatal(err)
		}
		if _, err := Look(f); err == nil {
			t.Errorf("%s: its sum is no matter", what)
		}
		b := make([]byte, 1024)
		if _, err := f.ReadAt(b, superOffset); err != nil {
			t.Fatal(err)
		}
		sealSuper(b)
		if _, err := f.WriteAt(b, superOffset); err != nil {
			t.Fatal(err)
		}
		if k, err := Look(f); k != at.want || (err != nil) != at.err {
			t.Errorf("%s: %+v, %v", what, k, err)
		}
	}
	made(options(8<<20, 500))
	if _, err := Look(f); err == nil {
		t.Error("one without a journal passes")
	}
	made(Options{Bytes: MinBytes, Files: 1, Journal: true})
	if err := f.Truncate(superOffset + 100); err != nil {
		t.Fatal(err)
	}
	if _, err := Look(f); err == nil {
		t.Error("half a superblock passes")
	}
}

// count keeps what was written to it.
type count struct {
	n    int64
	last int64
	buf  bytes.Buffer
}

func (c *count) WriteAt(b []byte, off int64) (int, error) {
	c.n += int64(len(b))
	c.last = max(c.last, off+int64(len(b)))
	return c.buf.Write(b)
}

func TestLittleIsWritten(t *testing.T) {
	var c count
	size, err := Write(&c, options(1<<30, 65_536))
	if err != nil {
		t.Fatal(err)
	}
	if c.n > 64<<10 || c.last > size {
		t.Errorf("%d bytes written up to %d, of a file system of %d", c.n, c.last, size)
	}
	// And nothing twice: pieces that overlap would hide each other.
	l, _ := plan(options(1<<30, 65_536))
	seen := map[int64]bool{}
	for _, p := range l.pieces(options(1<<30, 65_536)) {
		for off := p.off; off < p.off+int64(len(p.data)); off += 256 {
			if seen[off/256] {
				t.Errorf("byte %d is written twice", off)
			}
			seen[off/256] = true
		}
	}
}

func TestAWriteErrorIsReported(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := Write(f, options(MinBytes, 1)); err == nil || !strings.HasPrefix(err.Error(), "cannot write file system: ") {
		t.Error(err)
	}
}
