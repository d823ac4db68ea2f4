package files

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host/hostfs"
)

// Collector turns the archive of a box's working directory into a list of
// artifacts. The zero value with a Budget lists every file.
type Collector struct {
	Budget Budget
	// Root is the folder in the box that the archive's names are relative
	// to, and Seeds is what was placed in the box: files that still have
	// the same content are not artifacts.
	Root  string
	Seeds []SeedRecord
	// Output names the file, relative to Root, whose content is captured;
	// empty for none. A file of more than OutputMax bytes is not.
	Output    string
	OutputMax int64
	// Save, if not nil, receives a copy of each artifact. What a program
	// marks executable stays so; nothing is writable for others.
	Save *hostfs.Dir
}

// MaxOutput is the usual Collector.OutputMax, in bytes.
const MaxOutput = 8 << 20

// Collected is what came out of a box.
type Collected struct {
	Artifacts   []box.Artifact // in the archive's order; never nil
	Output      []byte         // content of Collector.Output; nil if there is none
	OutputError string         // why one that is there was not captured
	Notes       []string       // what was left out, in words
}

// Collect reads an archive. On an error the Collected holds what was complete
// by then. A file that cannot be saved is no such error: its artifact says why.
func (c *Collector) Collect(r io.Reader) (Collected, error) {
	seeds := map[string]SeedRecord{}
	for _, s := range c.Seeds {
		if rel, ok := strings.CutPrefix(s.Path, strings.TrimSuffix(path.Clean(c.Root), "/")+"/"); ok {
			seeds[rel] = s
		}
	}
	got := Collected{Artifacts: []box.Artifact{}}
	skipped, err := ReadArchive(r, c.Budget, func(name string, h Header, r io.Reader) error {
		if h.Skipped != "" {
			got.Artifacts = append(got.Artifacts, box.Artifact{Path: name, Error: "left out: " + h.Skipped})
			if name == c.Output {
				got.OutputError = name + " is left out: " + h.Skipped
			}
			return nil
		}
		seed, placed := seeds[name]
		capture := &capture{max: -1}
		if name == c.Output {
			capture.max = c.OutputMax
		}
		a, err := c.take(name, h, io.TeeReader(r, capture), func(size int64, sum string) bool {
			return placed && size == seed.Size && sum == seed.SHA256
		})
		if err != nil {
			return err
		}
		if a == nil {
			return nil // a seed as it was
		}
		got.Artifacts = append(got.Artifacts, *a)
		switch {
		case name != c.Output:
		case capture.over:
			got.OutputError = fmt.Sprintf("%s has %d bytes, more than the limit of %d", name, h.Size, c.OutputMax)
		default:
			got.Output = append([]byte{}, capture.data...)
		}
		return nil
	})
	got.Notes = skipped.Notes()
	if err != nil {
		return got, fmt.Errorf("cannot collect files: %w", err)
	}
	return got, nil
}

// take reads one file, saving it if asked. It returns nil for a file that
// unchanged recognizes, which is then not saved.
func (c *Collector) take(name string, h Header, r io.Reader, unchanged func(int64, string) bool) (*box.Artifact, error) {
	a := &box.Artifact{Path: name}
	var out *hostfs.File
	var saveErr error
	if c.Save != nil {
		out, saveErr = c.Save.Create(name, h.Mode&0o755|0o600)
	}
	sum := sha256.New()
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		sum.Write(buf[:n])
		a.Size += int64(n)
		if out != nil && saveErr == nil {
			_, saveErr = out.Write(buf[:n])
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			if out != nil {
				out.Abort()
			}
			return nil, err
		}
	}
	a.SHA256 = hex.EncodeToString(sum.Sum(nil))
	same := unchanged(a.Size, a.SHA256)
	switch {
	case out == nil:
	case same || saveErr != nil:
		out.Abort()
	default:
		if saveErr = out.Commit(); saveErr == nil {
			a.Saved = path.Join(c.Save.Name(), name)
		}
	}
	if same {
		return nil, nil
	}
	if saveErr != nil {
		a.Error = saveErr.Error()
	}
	return a, nil
}

// capture keeps up to max bytes; below 0 it keeps and counts nothing.
type capture struct {
	max  int64
	data []byte
	over bool
}

func (c *capture) Write(p []byte) (int, error) {
	if c.max >= 0 && !c.over {
		if c.over = int64(len(c.data)+len(p)) > c.max; c.over {
			c.data = nil
		} else {
			c.data = append(c.data, p...)
		}
	}
	return len(p), nil
}
