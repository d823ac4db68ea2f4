package cgroup

import (
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// fsys is what this package asks of a control group file system. The tests put
// one of version 2 with the kernel's rules in its place.
type fsys interface {
	Mkdir(path string) error
	Rmdir(path string) error
	// Read returns a file without surrounding space.
	Read(path string) (string, error)
	// Write makes exactly one write call: the kernel parses each on its own.
	Write(path, value string) error
	// Dirs returns the names of the folders in a folder.
	Dirs(path string) ([]string, error)
}

type kernelFS struct{}

func (kernelFS) Mkdir(path string) error { return os.Mkdir(path, 0o755) }

func (kernelFS) Rmdir(path string) error {
	for {
		err := unix.Rmdir(path)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return &os.PathError{Op: "rmdir", Path: path, Err: err}
		}
		return nil
	}
}

// Read makes the plain calls: os.ReadFile asks the runtime's poller about each
// file, which makes a small one several times as dear, and an account is many.
func (kernelFS) Read(path string) (string, error) {
	fd, err := again(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return "", &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	text := make([]byte, 0, 512)
	for {
		if len(text) == cap(text) {
			text = slices.Grow(text, len(text))
		}
		n, err := again(func() (int, error) { return unix.Read(fd, text[len(text):cap(text)]) })
		if err != nil {
			return "", &os.PathError{Op: "read", Path: path, Err: err}
		}
		if n == 0 {
			return strings.TrimSpace(string(text)), nil
		}
		text = text[:len(text)+n]
	}
}

// again makes a call until no signal gets in its way.
func again(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}

func (kernelFS) Write(path, value string) error {
	// No O_CREATE: a file that the kernel did not make is a missing feature.
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func (kernelFS) Dirs(path string) ([]string, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
