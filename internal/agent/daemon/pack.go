package daemon

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
)

// SkippedTrailer is the trailer of Pack and Unpack that counts what was left out:
// what is none of folder, file and link, and what could not be read.
const SkippedTrailer = "Sunaba-Skipped"

// Pack sends what lies at a path as tar. Of a folder that is what is in it, by
// names relative to it; of a file, the file. A file with several names comes
// once for each.
func (f files) Pack(ctx context.Context, r *connect.Request[pb.PackRequest], stream *connect.ServerStream[pb.PackResponse]) error {
	p := string(r.Msg.Path)
	if err := checkPath(p); err != nil {
		return err
	}
	out := &sender{ctx: ctx, send: stream.Send, left: r.Msg.MostBytes, most: r.Msg.MostBytes}
	k := &packer{slots: f.slots, out: out, tw: tar.NewWriter(out)}
	err := k.pack(p)
	if err == nil {
		err = k.tw.Close()
	}
	if err == nil {
		err = out.flush()
	}
	stream.ResponseTrailer().Set(SkippedTrailer, strconv.Itoa(k.skipped))
	return failed("pack", p, err)
}

// sender collects bytes for the stream, up to a bound.
type sender struct {
	ctx        context.Context
	send       func(*pb.PackResponse) error
	buf        []byte
	left, most uint64
}

func (s *sender) Write(b []byte) (int, error) {
	if err := s.fits(int64(len(b))); err != nil {
		return 0, err
	}
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	s.left -= uint64(len(b))
	s.buf = append(s.buf, b...)
	if len(s.buf) < chunk {
		return len(b), nil
	}
	return len(b), s.flush()
}

// fits refuses what goes beyond the bound.
func (s *sender) fits(n int64) error {
	if n > 0 && uint64(n) > s.left {
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("cannot pack it into %d bytes", s.most))
	}
	return nil
}

func (s *sender) flush() error {
	if len(s.buf) == 0 {
		return nil
	}
	err := s.send(&pb.PackResponse{Tar: s.buf})
	s.buf = s.buf[:0]
	return err
}

type packer struct {
	slots   slots
	out     *sender
	tw      *tar.Writer
	skipped int
}

func (k *packer) pack(p string) error {
	var st unix.Stat_t
	var dir, file *os.File
	var err error
	k.slots.do(func() {
		if dir, err = openDir(unix.AT_FDCWD, p, 0); errors.Is(err, unix.ENOTDIR) {
			file, err = openFile(p, &st)
		}
	})
	switch {
	case err != nil:
		return err
	case file != nil:
		defer file.Close()
		return k.contents(file, path.Base(p), &st)
	}
	return k.folder(dir, "", 0)
}

// folder packs what is in a folder, which it closes.
func (k *packer) folder(dir *os.File, rel string, depth int) error {
	defer dir.Close()
	if depth > maxDepth {
		return wrong("cannot pack folders in each other deeper than %d", maxDepth)
	}
	for {
		var some []string
		var err error
		k.slots.do(func() { some, err = dir.Readdirnames(batch) })
		for _, name := range some {
			if err := k.one(dir, name, path.Join(rel, name), depth); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || err == nil && len(some) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// one packs what has a name in a folder. What cannot be read is counted, not
// fatal; so is what is gone meanwhile.
func (k *packer) one(dir *os.File, name, rel string, depth int) error {
	at := int(dir.Fd())
	var st unix.Stat_t
	var link string
	var f *os.File
	var err error
	k.slots.do(func() {
		if err = unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			f, err = openDir(at, name, unix.O_NOFOLLOW)
		case unix.S_IFLNK:
			link, err = readLink(at, name)
		case unix.S_IFREG:
			f, err = openAt(at, name, &st)
		default:
			err = errSkip
		}
	})
	if lacking(err) {
		return err
	}
	if err != nil {
		k.skipped++
		return nil
	}
	h := header(rel, &st)
	switch {
	case link != "":
		h.Typeflag, h.Linkname = tar.TypeSymlink, link
		return k.tw.WriteHeader(h)
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		h.Typeflag, h.Name = tar.TypeDir, rel+"/"
		if err := k.tw.WriteHeader(h); err != nil {
			f.Close()
			return err
		}
		return k.folder(f, rel, depth+1)
	}
	defer f.Close()
	return k.contents(f, rel, &st)
}

// errSkip is for what a tar has no place for.
var errSkip = errors.New("skipped")

// openAt opens a regular file in a folder and fills in what it is.
func openAt(at int, name string, st *unix.Stat_t) (*os.File, error) {
	fd, err := handle(at, name, unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return reopen(fd, name, st)
}

func header(rel string, st *unix.Stat_t) *tar.Header {
	return &tar.Header{Name: rel, Mode: int64(st.Mode & 0o777), ModTime: time.Unix(st.Mtim.Unix()), Format: tar.FormatPAX}
}

// contents packs a file as long as it was when it was opened: what is missing by
// then comes as NUL bytes, so that the stream stays whole.
func (k *packer) contents(f *os.File, rel string, st *unix.Stat_t) error {
	h := header(rel, st)
	h.Typeflag, h.Size = tar.TypeReg, st.Size
	if err := k.out.fits(h.Size); err != nil {
		return err // before the first of its bytes: it may be sparse, and endless
	}
	if err := k.tw.WriteHeader(h); err != nil {
		return err
	}
	buf := make([]byte, most)
	for left, ended := st.Size, false; left > 0; {
		n := int(min(left, most))
		if !ended {
			var got int
			k.slots.do(func() { got, _ = f.Read(buf[:n]) })
			if ended = got == 0; !ended {
				n = got
			}
		}
		if ended {
			clear(buf)
		}
		if _, err := k.tw.Write(buf[:n]); err != nil {
			return err
		}
		left -= int64(n)
	}
	return nil
}
