package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path"
	"strings"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
)

// tempPrefix begins the names of files that are not complete.
const tempPrefix = ".sunaba-"

// Write makes or replaces a file in one step, when all of it has come. What
// breaks off before leaves nothing.
func (f files) Write(_ context.Context, stream *connect.ClientStream[pb.WriteRequest]) (*connect.Response[pb.WriteResponse], error) {
	if !stream.Receive() {
		return nil, broken("write a file", stream.Err())
	}
	h := stream.Msg().Head
	p := string(h.GetPath())
	w, err := f.begin(h)
	if err != nil {
		return nil, failed("write", p, err)
	}
	defer w.abort()
	for more := true; more; more = stream.Receive() {
		if data := stream.Msg().Data; len(data) > 0 {
			f.slots.do(func() { _, err = w.Write(data) })
			if err != nil {
				return nil, failed("write", p, err)
			}
		}
	}
	if err := stream.Err(); err != nil {
		return nil, broken("write "+shown(p), err)
	}
	var e *pb.Entry
	f.slots.do(func() { e, err = w.commit() })
	if err != nil {
		return nil, failed("write", p, err)
	}
	return connect.NewResponse(&pb.WriteResponse{Entry: e}), nil
}

// broken tells of a stream that was cut.
func broken(what string, err error) error {
	if err == nil {
		return wrong("cannot %s: nothing came", what)
	}
	return err
}

// begin checks what is wanted and opens a file for it.
func (f files) begin(h *pb.WriteHead) (w *writer, err error) {
	p := string(h.GetPath())
	if err := checkPath(p); err != nil {
		return nil, err
	}
	if h.Mode&^0o777 != 0 {
		return nil, wrong("cannot make %s with mode %#o: only permission bits may be set", shown(p), h.Mode)
	}
	for name := range h.Attributes {
		if !strings.HasPrefix(name, attributePrefix) || strings.Contains(name, "\x00") {
			return nil, wrong("cannot set attribute %s: its name must begin with %s", shown(name), attributePrefix)
		}
	}
	own, err := f.args.owner(h.User)
	if err != nil {
		return nil, err
	}
	f.slots.do(func() {
		if h.Parents {
			if _, err = makeDirs(path.Dir(p), 0o755, own); err != nil {
				return
			}
		}
		var pl *place
		if pl, err = placeOf(p); err != nil {
			return
		}
		w, err = newWriter(pl, p, own, wish{h.Mode, h.Mode == 0, h.Exclusive, h.Attributes})
	})
	return w, err
}

// writer is a file that has its name only when it is complete.
type writer struct {
	*os.File
	at        *place
	path      string // as it was asked for
	temp      string
	exclusive bool
}

// wish is how a file is wanted.
type wish struct {
	mode       uint32
	keepMode   bool // of what is replaced; else it is 0644
	exclusive  bool
	attributes map[string][]byte
}

// newWriter takes the place over.
func newWriter(at *place, p string, own owner, o wish) (*writer, error) {
	w := &writer{at: at, path: p, temp: tempPrefix + rand.Text(), exclusive: o.exclusive}
	mode := o.mode
	if o.keepMode {
		mode = 0o644
	}
	err := w.replaceable()
	if err == nil && at.st != nil {
		if o.keepMode {
			mode = at.st.Mode & 0o777
		}
		own = own.of(at.st)
	}
	var fd int
	if err == nil {
		fd, err = retry(func() (int, error) {
			return unix.Openat(at.dir, w.temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		})
	}
	if err != nil {
		at.close()
		return nil, err
	}
	w.File = os.NewFile(uintptr(fd), p)
	err = own.take(fd)
	if err == nil {
		err = unix.Fchmod(fd, mode)
	}
	for name, value := range o.attributes {
		if err == nil {
			err = unix.Fsetxattr(fd, name, value, 0)
		}
	}
	if err != nil {
		w.abort()
		return nil, err
	}
	return w, nil
}

// replaceable refuses to put a file where something stands that writing to would
// not be possible either.
func (w *writer) replaceable() error {
	st := w.at.st
	switch {
	case st == nil:
		return nil
	case w.exclusive:
		return unix.EEXIST
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return unix.EISDIR
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return wrong("cannot write %s: it is %s, not a regular file", shown(w.path), kindName(st.Mode))
	}
	return unix.Faccessat(w.at.dir, w.at.name, unix.W_OK, 0)
}

// commit gives the file its name.
func (w *writer) commit() (*pb.Entry, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(w.Fd()), &st); err != nil {
		return nil, err
	}
	var flags uint
	if w.exclusive {
		flags = unix.RENAME_NOREPLACE
	}
	if err := unix.Renameat2(w.at.dir, w.temp, w.at.dir, w.at.name, flags); err != nil {
		return nil, err
	}
	w.temp = ""
	return entry(w.path, &st), nil
}

// abort drops what was not committed. It is harmless afterwards.
func (w *writer) abort() {
	if w.temp != "" {
		_ = unix.Unlinkat(w.at.dir, w.temp, 0)
		w.temp = ""
	}
	if err := w.File.Close(); !errors.Is(err, os.ErrClosed) {
		w.at.close()
	}
}

// replace makes something under a temporary name and gives it its own in one
// step. A folder is not replaced.
func replace(dir int, name string, made func(temp string) error) error {
	temp := tempPrefix + rand.Text()
	if err := made(temp); err != nil {
		_ = unix.Unlinkat(dir, temp, 0)
		return err
	}
	err := unix.Renameat(dir, temp, dir, name)
	// Two names of one file stay two, rename(2): the temporary one, too.
	_ = unix.Unlinkat(dir, temp, 0)
	return err
}
