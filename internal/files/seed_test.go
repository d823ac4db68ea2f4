package files

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
)

func seed(path, data string, size int64) box.Seed {
	return box.Seed{Path: path, Mode: 0o640, Size: size, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(data)), nil
	}}
}

func TestSeedTarIsDeterministicAndComplete(t *testing.T) {
	a, b := seed("/workspace/b/deep/x", "xx", 2), seed("/workspace/input.json", "{}", 2)
	long := seed("/workspace/"+strings.Repeat("n", 200)+"\xff", "", 0)
	var one, two bytes.Buffer
	records, err := BuildSeedTar(&one, []box.Seed{a, b, long}, 1000, 1001, []string{"/workspace/tmp"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := BuildSeedTar(&two, []box.Seed{long, b, a}, 1000, 1001, []string{"/workspace/tmp"}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Error("order of seeds changes the bytes")
	}
	if len(records) != 3 || records[0] != (SeedRecord{"/workspace/b/deep/x", 2, sum("xx")}) {
		t.Errorf("records %+v", records)
	}
	var got []string
	for r := tar.NewReader(&one); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Name == "./" { // the box's root stays root's
			if h.Uid != 0 || h.Gid != 0 || h.Mode != 0o755 {
				t.Errorf("root: owner %d:%d, mode %o", h.Uid, h.Gid, h.Mode)
			}
			continue
		}
		if h.Uid != 1000 || h.Gid != 1001 || h.ModTime.Unix() != 0 {
			t.Errorf("%s: owner %d:%d, time %v", h.Name, h.Uid, h.Gid, h.ModTime)
		}
		got = append(got, fmt.Sprintf("%.30s %o", h.Name, h.Mode))
	}
	want := []string{"./workspace/ 755", "./workspace/b/ 755", "./workspace/b/deep/ 755", "./workspace/tmp/ 755",
		"./workspace/b/deep/x 640", "./workspace/input.json 640", fmt.Sprintf("%.30s 640", "."+long.Path)}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSeedsThatChangeOrClashAreRefused(t *testing.T) {
	broken := seed("/w/x", "", 1)
	broken.Open = func() (io.ReadCloser, error) { return nil, errors.New("gone") }
	for says, seeds := range map[string][]box.Seed{
		"grew":         {seed("/w/x", "abc", 2)},
		"shrank":       {seed("/w/x", "a", 2)},
		"gone":         {broken},
		"twice":        {seed("/w/x", "a", 1), seed("/w/x", "a", 1)},
		"a folder too": {seed("/w/x", "a", 1), seed("/w/x/y", "a", 1)},
		"not an abs":   {seed("w/x", "a", 1)},
		"leaves":       {seed("/w/../x", "a", 1)},
		"empty":        {seed("/w//x", "a", 1)},
	} {
		if _, err := BuildSeedTar(io.Discard, seeds, 0, 0, nil); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
	full := &fullWriter{}
	if _, err := BuildSeedTar(full, []box.Seed{seed("/w/x", "a", 1)}, 0, 0, nil); err == nil {
		t.Error("a writer's error was lost")
	}
}

type fullWriter struct{}

func (*fullWriter) Write([]byte) (int, error) { return 0, errors.New("full") }

// What goes in comes out again as unchanged.
func TestSeedsRoundTrip(t *testing.T) {
	var b bytes.Buffer
	records, err := BuildSeedTar(&b, []box.Seed{seed("/workspace/a", "1", 1), seed("/workspace/s/b", "22", 2)}, 1000, 1000, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := Collector{Budget: DefaultBudget(), Root: "/", Seeds: records}
	got, err := c.Collect(&b)
	if err != nil || len(got.Artifacts) != 0 {
		t.Errorf("%v, %+v", err, got.Artifacts)
	}
}
