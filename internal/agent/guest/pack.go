package guest

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/agentpb"
)

// maxNames bounds what is remembered of an archive while it passes, in bytes.
const maxNames = 16 << 20

// linkCost is what remembering a name costs beside its bytes.
const linkCost = 64

// Pack implements box.Guest. The agent's archive is read and written anew: what
// w gets has folders, files and links only, each with a name below the packed
// folder, and none that leads through a link of the same archive to somewhere
// else when it is unpacked (CVE-2021-37713 is one of many that did).
func (g *Guest) Pack(ctx context.Context, from string, most int64, w io.Writer) error {
	const op = "pack folder"
	if err := asked(op, from); err != nil {
		return err
	}
	if most < 1 {
		return refused(op, "the bound of %d bytes leaves room for nothing", most)
	}
	s, err := listen(ctx, g, op, g.files.Pack, &agentpb.PackRequest{Path: []byte(from), MostBytes: uint64(most)})
	if err != nil {
		return err
	}
	defer s.close()
	p := &packer{in: &packed{s: s, left: most}, links: map[string]bool{}, files: most}
	p.out = tar.NewWriter(w)
	return p.copy()
}

// packed is the agent's archive as a reader.
type packed struct {
	s    *listener[agentpb.PackResponse]
	rest []byte
	left int64
	err  error // what the stream ended with
}

func (p *packed) Read(b []byte) (int, error) {
	for len(p.rest) == 0 {
		if p.err != nil {
			return 0, p.err
		}
		m, err := p.s.next()
		switch {
		case err != nil:
			p.err = err
		case len(m.Tar) == 0:
			p.err = p.s.failed(lie("a piece of nothing"))
		case int64(len(m.Tar)) > p.left:
			p.err = p.s.failed(lie("more bytes than were asked for"))
		default:
			p.rest = m.Tar
			p.left -= int64(len(m.Tar))
		}
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

type packer struct {
	in    *packed
	out   *tar.Writer
	links map[string]bool // symbolic links that passed, by clean name
	names int             // bytes of their names, and linkCost for each
	files int64           // bytes of files that may still come
}

func (p *packer) copy() error {
	in := tar.NewReader(p.in)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return p.broken(err)
		}
		fresh, err := p.header(h)
		if err != nil {
			return p.in.s.failed(err)
		}
		if err := p.out.WriteHeader(fresh); err != nil {
			return fmt.Errorf("cannot write archive: %w", err)
		}
		if fresh.Typeflag != tar.TypeReg {
			continue
		}
		// A file with holes would be longer here than it came: an honest agent writes
		// them out, and the bound is of what leaves here.
		if p.files -= fresh.Size; p.files < 0 {
			return p.in.s.failed(lie("a file of more bytes than were asked for"))
		}
		if n, err := io.Copy(p.out, in); err != nil && n < h.Size && p.in.err != nil {
			return p.broken(err)
		} else if err != nil {
			return fmt.Errorf("cannot write archive: %w", err)
		}
	}
	// Behind an archive's end there are only zeroes.
	if _, err := io.Copy(io.Discard, p.in); err != nil {
		return err
	}
	if err := p.out.Close(); err != nil {
		return fmt.Errorf("cannot write archive: %w", err)
	}
	return nil
}

// broken is the error for an archive that cannot be read: that of the stream, if
// it ended badly.
func (p *packer) broken(err error) error {
	if p.in.err != nil && !errors.Is(p.in.err, io.EOF) {
		return p.in.err
	}
	return p.in.s.failed(lie("an archive that cannot be read (%s)", shown(err.Error())))
}

// header makes a fresh header with what may pass of an old one: no owner, who
// would be another one here, and no setuid bit.
func (p *packer) header(h *tar.Header) (*tar.Header, error) {
	name := strings.TrimSuffix(h.Name, "/")
	if name == "." || name == "" {
		name = "."
	} else if err := p.inside(strings.TrimPrefix(name, "./")); err != nil {
		return nil, err
	} else {
		name = strings.TrimPrefix(name, "./")
	}
	fresh := &tar.Header{Typeflag: h.Typeflag, Name: name, Mode: h.Mode & 0o777, ModTime: h.ModTime.Truncate(time.Second)}
	switch h.Typeflag {
	case tar.TypeDir:
		fresh.Name += "/"
	case tar.TypeReg:
		fresh.Size = h.Size
	case tar.TypeLink:
		fresh.Linkname = strings.TrimPrefix(h.Linkname, "./")
		if err := p.inside(fresh.Linkname); err != nil {
			return nil, err
		}
	case tar.TypeSymlink:
		fresh.Linkname = h.Linkname
		if err := checkText(h.Linkname, maxPath, "a link"); err != nil {
			return nil, err
		}
		if p.names += len(name) + linkCost; p.names > maxNames {
			return nil, box.Errorf(box.Exhausted, p.in.s.op, "cannot %s: it has too many links", p.in.s.op)
		}
		p.links[name] = true
	default:
		return nil, lie("a %q in an archive", h.Typeflag)
	}
	return fresh, nil
}

// inside wants a name below the folder, whose way does not lead over a link.
func (p *packer) inside(name string) error {
	if _, err := checkBelow(name); err != nil {
		return err
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if p.links[dir] {
			return lie("an archive in which a link has something below it")
		}
	}
	return nil
}
