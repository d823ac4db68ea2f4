package agent

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// SkippedKey is the PAX record that says why a member has no bytes: it is not a
// regular file, it cannot be read, or it does not fit.
const SkippedKey = "SUNABA.skipped"

// Collect writes a tar stream of what lies below root, folders aside. Names are
// relative to root. Regular files come with their bytes as long as these fit
// into max altogether; everything else is named with the reason why not. Links
// are not followed, and folders whose names nothing outside could have are not
// entered.
//
// A folder is entered and left one step at a time, by descriptor: by path, the
// cost of a deep tree would grow with the square of its depth.
func Collect(w io.Writer, root string, max int64) error {
	c := collector{tw: tar.NewWriter(w), left: max}
	dir, err := openDir(unix.AT_FDCWD, root)
	if err != nil {
		return c.tw.Close() // the program removed it
	}
	defer func() { dir.Close() }()
	folders, err := c.folder(dir, "")
	if err != nil {
		return err
	}
	path := []level{{todo: folders}}
	for len(path) > 0 {
		here := &path[len(path)-1]
		if len(here.todo) == 0 {
			path = path[:len(path)-1]
			if len(path) == 0 {
				break
			}
			up, err := openDir(int(dir.Fd()), "..")
			if err != nil {
				return fmt.Errorf("cannot leave folder: %w", err)
			}
			dir.Close()
			dir = up
			continue
		}
		name := here.todo[len(here.todo)-1]
		here.todo = here.todo[:len(here.todo)-1]
		rel := join(here.rel, name)
		next, err := openDir(int(dir.Fd()), name)
		if len(rel) > maxName {
			err = errors.New("its name is too long")
		}
		if err == nil {
			folders, err = c.folder(next, rel)
			if err != nil {
				next.Close()
				return err
			}
			if folders, err = c.enterable(next, rel, folders); err != nil {
				next.Close()
				return err
			}
			if len(folders) == 0 {
				next.Close()
				continue
			}
			dir.Close()
			dir = next
			path = append(path, level{rel, folders})
			continue
		}
		if next != nil {
			next.Close()
		}
		if err := c.skip(rel, cause(err)); err != nil {
			return err
		}
	}
	return c.tw.Close()
}

// level is a folder on the way from the root, with those in it that are still
// to be entered.
type level struct {
	rel  string
	todo []string
}

// enterable returns the folders if the one that they are in can be left again,
// by its name "..": it may be one that can be listed but not searched.
func (c *collector) enterable(dir *os.File, rel string, folders []string) ([]string, error) {
	if len(folders) == 0 {
		return nil, nil
	}
	up, err := openDir(int(dir.Fd()), "..")
	if err == nil {
		up.Close()
		return folders, nil
	}
	for _, name := range folders {
		if err := c.skip(join(rel, name), cause(err)); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func join(rel, name string) string {
	if rel == "" {
		return name
	}
	return rel + "/" + name
}

// openDir opens a folder, not a link to one.
func openDir(at int, name string) (*os.File, error) {
	for {
		fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		// ReadDir asks by this name for kinds that the file system does not tell.
		return os.NewFile(uintptr(fd), "/proc/self/fd/"+strconv.Itoa(fd)), nil
	}
}

// folder writes the files of one folder and returns the names of the folders in
// it. Only an error of the stream itself is returned.
func (c *collector) folder(dir *os.File, rel string) (folders []string, err error) {
	entries, err := dir.ReadDir(-1)
	if err != nil && len(entries) == 0 && rel != "" {
		return nil, c.skip(rel, cause(err))
	}
	for _, e := range entries {
		if e.IsDir() {
			folders = append(folders, e.Name())
		} else if err := c.file(int(dir.Fd()), e.Name(), join(rel, e.Name()), e.Type()); err != nil {
			return nil, err
		}
	}
	return folders, nil
}

type collector struct {
	tw   *tar.Writer
	left int64
	long int // names too long so far
}

// maxName is the longest path of Linux without its NUL: PATH_MAX, limits.h.
const maxName = 4095

// file copies one file. Only an error of the stream itself is returned.
func (c *collector) file(at int, name, rel string, kind fs.FileMode) error {
	if !kind.IsRegular() {
		return c.skip(rel, kindName(kind))
	}
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return c.skip(rel, cause(err))
	}
	f := os.NewFile(uintptr(fd), "file")
	defer f.Close()
	st, err := f.Stat()
	switch {
	case err != nil:
		return c.skip(rel, cause(err))
	case !st.Mode().IsRegular():
		return c.skip(rel, kindName(st.Mode().Type()))
	case st.Size() > c.left:
		return c.skip(rel, fmt.Sprintf("its %d bytes do not fit into what is left of the disk limit", st.Size()))
	}
	c.left -= st.Size()
	h := &tar.Header{Typeflag: tar.TypeReg, Name: rel, Mode: int64(st.Mode() & fs.ModePerm), Size: st.Size(), Format: tar.FormatPAX}
	if err := c.tw.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.Copy(c.tw, io.LimitReader(f, h.Size))
	if n < h.Size { // it shrank, or cannot be read: the stream must stay whole
		_, err = io.CopyN(c.tw, zeros{}, h.Size-n)
	}
	return err
}

func (c *collector) skip(rel, why string) error {
	if len(rel) > maxName { // nothing can have it outside, and it ends here
		c.long++
		rel, why = fmt.Sprintf("%s...%d", rel[:100], c.long), "its name is too long"
	}
	return c.tw.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: rel, Format: tar.FormatPAX,
		PAXRecords: map[string]string{SkippedKey: why},
	})
}

// cause is an error without the path, which the member's name already says.
func cause(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}

func kindName(m fs.FileMode) string {
	switch {
	case m&fs.ModeSymlink != 0:
		return "a symbolic link"
	case m&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return "not a regular file"
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
