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
//	agent collect ROOT MAXFILE    write the regular files below ROOT as tar to stdout
//	agent place ROOT              unpack the tar on stdin below ROOT
func Main(args []string) int {
	var err error
	switch {
	case len(args) == 4 && args[1] == "collect":
		var maxFile int64
		if maxFile, err = strconv.ParseInt(args[3], 10, 64); err == nil {
			killOthers()
			err = Collect(os.Stdout, args[2], maxFile)
		}
	case len(args) == 3 && args[1] == "place":
		err = Place(os.Stdin, args[2])
	default:
		fmt.Fprintln(os.Stderr, "usage: agent collect ROOT MAXFILE | agent place ROOT")
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

// SkippedKey is the PAX record that says why a file's bytes are not there.
const SkippedKey = "SUNABA.skipped"

// Collect writes a tar stream of the regular files below root. Names are
// relative to root. Links are not followed, devices, sockets and fifos are
// left out, and a file longer than maxFile is named but not read.
func Collect(w io.Writer, root string, maxFile int64) error {
	tw := tar.NewWriter(w)
	type dir struct {
		path, rel string
	}
	todo := []dir{{root, ""}}
	for len(todo) > 0 {
		d := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		entries, err := os.ReadDir(d.path)
		if err != nil && len(entries) == 0 {
			continue // unreadable or gone: it is the box's own loss
		}
		for _, e := range entries {
			p, rel := d.path+"/"+e.Name(), path.Join(d.rel, e.Name())
			switch {
			case e.IsDir():
				todo = append(todo, dir{p, rel})
			case e.Type().IsRegular():
				if err := collectFile(tw, p, rel, maxFile); err != nil {
					return err
				}
			}
		}
	}
	return tw.Close()
}

// collectFile copies one file. Only an error of the stream itself is returned.
func collectFile(tw *tar.Writer, p, rel string, maxFile int64) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: rel, Format: tar.FormatPAX}
	f, err := os.OpenFile(p, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return skip(tw, h, err.Error())
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return skip(tw, h, err.Error())
	}
	if !st.Mode().IsRegular() {
		return nil
	}
	h.Mode = int64(st.Mode() & fs.ModePerm)
	if st.Size() > maxFile {
		return skip(tw, h, fmt.Sprintf("its size of %d bytes is over the limit", st.Size()))
	}
	h.Size = st.Size()
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.Copy(tw, io.LimitReader(f, h.Size))
	if err != nil && n == h.Size {
		err = nil
	}
	if n < h.Size { // it shrank, or cannot be read: the stream must stay whole
		_, err = io.CopyN(tw, zeros{}, h.Size-n)
	}
	return err
}

func skip(tw *tar.Writer, h *tar.Header, why string) error {
	h.PAXRecords = map[string]string{SkippedKey: why}
	return tw.WriteHeader(h)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
