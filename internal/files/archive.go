package files

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/sunaba-dev/sunaba/internal/agent"
	"github.com/sunaba-dev/sunaba/internal/host/hostfs"
)

// Header describes a regular file in an archive.
type Header struct {
	Mode fs.FileMode // permission bits only
	Size int64
	// Skipped is why the box's agent sent no bytes; empty if it sent them.
	// It is hostile text of at most 200 bytes.
	Skipped string
}

// maxReason bounds Header.Skipped.
const maxReason = 200

// Skipped counts members that were not passed on.
type Skipped struct {
	Links   int // symbolic and hard links
	Devices int // character and block devices
	Pipes   int
	Others  int // kinds that we do not know; folders are not counted
	TooBig  int // files above Budget.FileBytes
}

// Notes puts the counts in words, one sentence a kind.
func (s Skipped) Notes() []string {
	var notes []string
	for _, k := range []struct {
		n    int
		what string
	}{
		{s.Links, "links"}, {s.Devices, "devices"}, {s.Pipes, "named pipes"},
		{s.Others, "members of unknown kind"}, {s.TooBig, "files above the size limit"},
	} {
		if k.n > 0 {
			notes = append(notes, fmt.Sprintf("%d %s left out", k.n, k.what))
		}
	}
	return notes
}

// ReadArchive reads a tar stream and calls fn for each regular file, in order.
// The name has passed [hostfs.CheckName] and is unique in the archive; r holds
// exactly Header.Size bytes, unless the archive is cut short, which r reports
// as an error that ReadArchive returns even if fn swallows it. An error of fn
// ends the reading and is returned as it is.
//
// Reading stops at the archive's end mark; bytes after it are not touched. A
// reader that blocks is not timed out here: the caller closes it.
func ReadArchive(r io.Reader, b Budget, fn func(name string, h Header, r io.Reader) error) (Skipped, error) {
	// Headers and padding cost at most about two blocks more per member than
	// names do; extended headers come out of the rest.
	m := &meter{r: r, left: b.Bytes + 2*b.NameBytes + int64(b.Entries)*2048 + 2*blockSize}
	a := archive{meter: m, tar: tar.NewReader(m), left: b, names: map[string]bool{}}
	for {
		err := a.next(fn)
		if err == io.EOF {
			return a.skipped, nil
		}
		if err != nil {
			return a.skipped, err
		}
	}
}

const blockSize = 512

type archive struct {
	meter   *meter
	tar     *tar.Reader
	left    Budget // what may still be spent; FileBytes stays
	names   map[string]bool
	skipped Skipped
}

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrArchive}, args...)...)
}

// next handles one member. It returns io.EOF at the archive's end.
func (a *archive) next(fn func(string, Header, io.Reader) error) error {
	before := a.meter.n
	h, err := a.tar.Next()
	switch {
	case err == io.EOF:
		// archive/tar is content with a stream that just stops between two
		// members. The format ends with two blocks of zeros.
		if a.meter.n-before < 2*blockSize || !a.meter.endsInZeros() {
			return bad("no end mark: it was cut short")
		}
		return io.EOF
	case errors.Is(err, ErrBudget):
		return err
	case errors.Is(err, tar.ErrInsecurePath):
		// Judged below, by our own rules.
	case err != nil:
		return bad("%w", err)
	}
	if a.left.Entries--; a.left.Entries < 0 {
		return fmt.Errorf("%w: too many members", ErrBudget)
	}
	if h.Size < 0 || h.Size > a.left.Bytes {
		return fmt.Errorf("%w: too many bytes", ErrBudget)
	}
	if h.Typeflag == tar.TypeReg && h.Size <= a.left.FileBytes {
		return a.file(h, fn)
	}
	a.count(h.Typeflag)
	a.left.Bytes -= h.Size
	return a.drain()
}

func (a *archive) count(kind byte) {
	switch kind {
	case tar.TypeReg, tar.TypeGNUSparse:
		a.skipped.TooBig++
	case tar.TypeDir:
	case tar.TypeSymlink, tar.TypeLink:
		a.skipped.Links++
	case tar.TypeChar, tar.TypeBlock:
		a.skipped.Devices++
	case tar.TypeFifo:
		a.skipped.Pipes++
	default:
		a.skipped.Others++
	}
}

func (a *archive) file(h *tar.Header, fn func(string, Header, io.Reader) error) error {
	name := strings.TrimPrefix(h.Name, "./")
	if err := hostfs.CheckName(name); err != nil {
		return bad("%w", err)
	}
	if a.names[name] {
		return bad("a name appears twice")
	}
	if a.left.NameBytes -= int64(len(name)); a.left.NameBytes < 0 {
		return fmt.Errorf("%w: too many bytes of names", ErrBudget)
	}
	a.names[name] = true
	a.left.Bytes -= h.Size
	if err := fn(name, Header{Mode: fs.FileMode(h.Mode) & fs.ModePerm, Size: h.Size, Skipped: reason(h)}, member{a.tar}); err != nil {
		return err
	}
	return a.drain()
}

func reason(h *tar.Header) string {
	why := h.PAXRecords[agent.SkippedKey]
	return why[:min(len(why), maxReason)]
}

// drain reads what is left of a member, so that the next call of Next sees
// nothing but padding and headers.
func (a *archive) drain() error {
	_, err := io.Copy(io.Discard, member{a.tar})
	return err
}

// member reads one member's content. It hides every method but Read, and its
// errors are of our classes, whoever gets to see them.
type member struct{ r io.Reader }

func (m member) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	if err == nil || err == io.EOF || errors.Is(err, ErrBudget) {
		return n, err
	}
	return n, bad("%w", err)
}

// meter counts a stream's bytes, ends it with ErrBudget when it is too long,
// and remembers whether it ended in zeros.
type meter struct {
	r     io.Reader
	n     int64
	left  int64
	zeros int64 // length of the run of zeros at the end
}

func (m *meter) Read(p []byte) (int, error) {
	if m.left <= 0 {
		return 0, fmt.Errorf("%w: the stream is too long", ErrBudget)
	}
	n, err := m.r.Read(p[:min(int64(len(p)), m.left)])
	m.n += int64(n)
	m.left -= int64(n)
	tail := 0
	for tail < n && p[n-1-tail] == 0 {
		tail++
	}
	if tail == n {
		m.zeros += int64(n)
	} else {
		m.zeros = int64(tail)
	}
	return n, err
}

func (m *meter) endsInZeros() bool { return m.zeros >= 2*blockSize }
