package erofs

import (
	"bytes"
	"io"
	"math/rand/v2"
	"path"
	"testing"
)

func TestLookupFindsWhatWalkShows(t *testing.T) {
	image := bytes.NewReader(write(t, sample()))
	n := 0
	err := Walk(image, func(e Entry, _ io.Reader) error {
		n++
		got, err := Lookup(image, e.Path)
		if err != nil || got.Path != e.Path || got.Mode != e.Mode || got.Link != e.Link || got.Size != e.Size {
			t.Errorf("%.80q: %+v, %v", e.Path, got, err)
		}
		for _, more := range []string{"nothing\x01here", "nothing\x01here/and/there"} {
			if got, err := Lookup(image, path.Join(e.Path, more)); err != nil || got.Path != e.Path || got.Mode != e.Mode {
				t.Errorf("%.80q: %+v, %v", path.Join(e.Path, more), got, err)
			}
		}
		return nil
	})
	if err != nil || n < 10 {
		t.Fatalf("%d entries, %v", n, err)
	}
}

// Bytes that are no image's are an error, or an entry, and no panic.
func TestLookupBelievesNothing(t *testing.T) {
	good := write(t, sample())
	r := rand.New(rand.NewPCG(1, 2))
	failed := 0
	for range 2000 {
		bad := bytes.Clone(good)
		for range 1 + r.IntN(3) {
			bad[r.IntN(min(len(bad), 3*BlockSize))] = byte(r.Uint32())
		}
		if r.IntN(4) == 0 {
			bad = bad[:r.IntN(len(bad))]
		}
		if _, err := Lookup(bytes.NewReader(bad), "/etc/passwd/x"); err != nil {
			failed++
		}
	}
	if failed == 0 {
		t.Error("nothing was refused")
	}
}
