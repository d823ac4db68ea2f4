package gvisor

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/sunaba-dev/sunaba/box"
)

// In a copy of files each has its whole path, and the guest's kernel holds them all
// while it writes them, and again when it reads them. Folders in folders in folders
// would take it more memory than the box has: 15000 of them, with names of 200 bytes,
// some 22 GiB. So paths are bounded, one and together.
const (
	pathMost  = 8 << 10  // bytes; PATH_MAX, which is 4096, bounds one name in a call
	pathsMost = 32 << 20 // bytes of all
)

// namesPipe is where a guest's kernel writes the names of a copy to, as a tar archive.
type namesPipe struct {
	to   *os.File // for that kernel
	from *os.File
	said chan error
}

// openNames begins to pass on what is written to a pipe to the given file.
func openNames(file *os.File) (*namesPipe, error) {
	from, to, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("cannot make a pipe for the names of a copy: %w", err)
	}
	p := &namesPipe{to: to, from: from, said: make(chan error, 1)}
	go func() {
		defer from.Close() // whoever writes more is told so
		p.said <- passNames(file, from)
	}()
	return p, nil
}

// close says what was wrong with the names, when all of them were passed on.
func (p *namesPipe) close() error {
	p.to.Close()
	return <-p.said
}

func passNames(file io.Writer, from io.Reader) error {
	all := io.TeeReader(from, file)
	names, sum := tar.NewReader(all), 0
	for {
		h, err := names.Next()
		if err == io.EOF {
			_, err = io.Copy(io.Discard, all)
			return err
		}
		if errors.Is(err, tar.ErrFieldTooLong) {
			err = nil
			h = &tar.Header{Name: string(make([]byte, pathMost+1))}
		}
		if err != nil {
			return fmt.Errorf("cannot read the names of a copy: %w", err)
		}
		const cannot = "cannot copy the guest's files: "
		switch sum += len(h.Name) + len(h.Linkname); {
		case len(h.Name) > pathMost:
			return box.Errorf(box.Conflict, "snapshot box", cannot+"one lies so deep in folders that its path has more than %d bytes", pathMost)
		case sum > pathsMost:
			return box.Errorf(box.Conflict, "snapshot box", cannot+"their paths have more than %d MiB together", pathsMost>>20)
		}
	}
}
