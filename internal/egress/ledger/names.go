package ledger

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/sunaba-dev/sunaba/internal/hostname"
)

// Name is a name that a box was told an address for, and its place in the range
// of these.
type Name struct {
	Name  hostname.Name
	Place uint32
}

// Note writes down a name, unless the last that was written down of its place is that
// name: a box that goes through more names than are remembered is told the same again
// and again.
func (l *Ledger) Note(n Name) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.page == nil {
		return os.ErrClosed
	}
	if l.file == nil || l.last[n.Place] == digestOf(n.Name) {
		return nil
	}
	line := n.line(nil)
	if l.end+int64(len(line)) > Size {
		return ErrFull
	}
	if _, err := l.file.WriteAt(line, l.end); err != nil {
		return fmt.Errorf("cannot write a name down: %w", err)
	}
	l.end += int64(len(line))
	l.last[n.Place] = digestOf(n.Name)
	return nil
}

func digestOf(n hostname.Name) digest {
	sum := sha256.Sum256([]byte(n))
	return digest(sum[:])
}

func (n Name) line(to []byte) []byte {
	to = strconv.AppendUint(to, uint64(n.Place), 10)
	return append(append(append(to, ' '), n.Name...), '\n')
}

// readNames returns the names in a ledger's file and where they end. A line that was
// not written to its end is none.
func readNames(f *os.File) ([]Name, int64, error) {
	text, err := io.ReadAll(io.NewSectionReader(f, counts, lines))
	if err != nil {
		return nil, 0, fmt.Errorf("cannot read names: %w", err)
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	names, err := parse(text)
	return names, counts + int64(len(text)), err
}

func parse(text []byte) (names []Name, err error) {
	for line := range bytes.Lines(text) {
		place, name, _ := bytes.Cut(bytes.TrimSuffix(line, []byte{'\n'}), []byte{' '})
		p, err := strconv.ParseUint(string(place), 10, 32)
		if err != nil {
			return nil, fmt.Errorf("cannot read names: %.300q is no line of them", line)
		}
		n, err := hostname.Kept(string(name))
		if err != nil {
			return nil, fmt.Errorf("cannot read names: %w", err)
		}
		names = append(names, Name{n, uint32(p)})
	}
	return names, nil
}

// Names returns the text of all names in a ledger's file, for that of a copy of
// the box. Whoever wrote the file is not trusted: what is no name is an error.
func Names(f *os.File) ([]byte, error) {
	names, _, err := readNames(f)
	if err != nil {
		return nil, err
	}
	var text []byte
	for _, n := range names {
		text = n.line(text)
	}
	return text, nil
}

// Begin writes names, the text that Names returned, into a file that Make has made.
func Begin(f *os.File, text []byte) error {
	if len(text) == 0 {
		return nil
	}
	if len(text) > lines {
		return ErrFull
	}
	if _, err := parse(text); err != nil {
		return err
	}
	if _, err := f.WriteAt(text, counts); err != nil {
		return fmt.Errorf("cannot write names down: %w", err)
	}
	return nil
}
