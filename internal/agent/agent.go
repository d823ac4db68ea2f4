// Package agent is the small program inside a box and its side of the protocol.
//
// For now it does two things: before a program starts it can put files into the
// box, and after the program has ended it hands out the files that were left.
// It runs inside the walls, among hostile data and as guest root without any
// power outside, so that a name in a box is only ever resolved by that box's
// own kernel. The host believes nothing it says.
package agent

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"syscall"
	"time"
)

// Main runs the agent's command line and returns its exit code.
//
//	agent collect ROOT MAX    write what lies below ROOT as tar to stdout, MAX bytes of it
//	agent place ROOT          unpack the tar on stdin below ROOT
func Main(args []string) int {
	var err error
	switch {
	case len(args) == 4 && args[1] == "collect":
		var max int64
		if max, err = strconv.ParseInt(args[3], 10, 64); err == nil {
			killOthers()
			err = Collect(os.Stdout, args[2], max)
		}
	case len(args) == 3 && args[1] == "place":
		err = Place(os.Stdin, args[2])
	default:
		fmt.Fprintln(os.Stderr, "usage: agent collect ROOT MAX | agent place ROOT")
		return 2
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		return 1
	}
	return 0
}

// killOthers ends every other program of the box, so that nothing writes while
// files are read. kill(-1) reaches all but the caller and init; a fork bomb may
// need it more than once.
func killOthers() {
	for range 50 {
		if err := syscall.Kill(-1, syscall.SIGKILL); errors.Is(err, syscall.ESRCH) {
			return
		}
		if !othersLeft() {
			return
		}
		t := time.NewTimer(2 * time.Millisecond)
		<-t.C
	}
}

func othersLeft() bool {
	dir, err := os.ReadDir("/proc")
	if err != nil {
		return false
	}
	for _, e := range dir {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != 1 && pid != os.Getpid() {
			return true
		}
	}
	return false
}

// SkippedKey is the PAX record that says why a member has no bytes: it is not a
// regular file, it cannot be read, or it does not fit.
const SkippedKey = "SUNABA.skipped"

// Collect writes a tar stream of what lies below root, folders aside. Names are
// relative to root. Regular files come with their bytes as long as these fit
// into max altogether; everything else is named with the reason why not. Links
// are not followed.
func Collect(w io.Writer, root string, max int64) error {
	c := collector{tw: tar.NewWriter(w), left: max}
	type dir struct {
		path, rel string
	}
	todo := []dir{{root, ""}}
	for len(todo) > 0 {
		d := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		entries, err := os.ReadDir(d.path)
		if err != nil && len(entries) == 0 && d.rel != "" {
			if err := c.skip(d.rel, cause(err)); err != nil {
				return err
			}
		}
		for _, e := range entries {
			p, rel := d.path+"/"+e.Name(), path.Join(d.rel, e.Name())
			if e.IsDir() {
				todo = append(todo, dir{p, rel})
			} else if err := c.file(p, rel, e.Type()); err != nil {
				return err
			}
		}
	}
	return c.tw.Close()
}

type collector struct {
	tw   *tar.Writer
	left int64
	long int // names too long so far
}

// maxName is the longest path of Linux without its NUL: PATH_MAX, limits.h.
const maxName = 4095

// file copies one file. Only an error of the stream itself is returned.
func (c *collector) file(p, rel string, kind fs.FileMode) error {
	if !kind.IsRegular() {
		return c.skip(rel, kindName(kind))
	}
	f, err := os.OpenFile(p, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return c.skip(rel, cause(err))
	}
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
