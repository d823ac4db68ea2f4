package daemon

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
	"github.com/sunaba-dev/sunaba/internal/host/hostfs"
)

// Unpack makes what a tar stream holds below a folder, which is made if it is
// missing. Names that leave the folder are errors, and no link is followed on
// the way to a name, so nothing outside is touched. Devices and pipes are left
// out. When the stream breaks off, what was complete stays.
func (f files) Unpack(_ context.Context, stream *connect.ClientStream[pb.UnpackRequest]) (*connect.Response[pb.UnpackResponse], error) {
	if !stream.Receive() {
		return nil, broken("unpack", stream.Err())
	}
	p := string(stream.Msg().Path)
	own, err := f.args.owner(stream.Msg().User)
	if err == nil {
		err = checkPath(p)
	}
	u := &unpacker{slots: f.slots, own: own, root: -1}
	if err == nil {
		f.slots.do(func() {
			if _, err = makeDirs(p, 0o755, own); err == nil {
				u.root, err = handle(unix.AT_FDCWD, p, unix.O_DIRECTORY)
			}
		})
	}
	if err != nil {
		return nil, failed("unpack to", p, err)
	}
	defer unix.Close(u.root)
	if err := u.unpack(&received{stream: stream, rest: stream.Msg().Tar}); err != nil {
		if serr := stream.Err(); serr != nil {
			return nil, broken("unpack to "+shown(p), serr)
		}
		return nil, failed("unpack to", p, err)
	}
	res := connect.NewResponse(&pb.UnpackResponse{Files: u.files, Bytes: u.bytes})
	res.Trailer().Set(SkippedTrailer, strconv.Itoa(u.skipped))
	return res, nil
}

// received is the bytes of the stream.
type received struct {
	stream *connect.ClientStream[pb.UnpackRequest]
	rest   []byte
}

func (r *received) Read(b []byte) (int, error) {
	for len(r.rest) == 0 {
		if !r.stream.Receive() {
			if err := r.stream.Err(); err != nil {
				return 0, err
			}
			return 0, io.EOF
		}
		r.rest = r.stream.Msg().Tar
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

type unpacker struct {
	slots        slots
	own          owner
	root         int // a handle of the folder
	files, bytes uint64
	skipped      int
}

func (u *unpacker) unpack(r io.Reader) error {
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.Copy(io.Discard, r) // what is padding, too, is taken
			return err
		}
		if err != nil {
			return wrong("cannot read the archive: %v", err)
		}
		name, err := insideName(h.Name)
		if err == nil && name != "" {
			err = u.member(name, h, tr)
		}
		if err != nil {
			if _, ok := errors.AsType[*connect.Error](err); !ok {
				err = connect.NewError(codeOf(err), fmt.Errorf("cannot make %s: %w", shown(h.Name), err))
			}
			return err
		}
	}
}

// insideName is a member's name, clean; empty is the folder itself.
func insideName(name string) (string, error) {
	for strings.HasPrefix(name, "./") {
		name = strings.TrimLeft(name[2:], "/")
	}
	name = strings.TrimRight(name, "/")
	if name == "" || name == "." {
		return "", nil
	}
	if err := hostfs.CheckName(name); err != nil {
		return "", wrong("cannot unpack %s: %v", shown(name), err)
	}
	return name, nil
}

// member makes one member.
func (u *unpacker) member(name string, h *tar.Header, r io.Reader) (err error) {
	dir, base := -1, ""
	u.slots.do(func() { dir, base, err = u.parent(name) })
	if err != nil {
		return err
	}
	mode := uint32(h.Mode & 0o777)
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse:
		return u.file(dir, base, name, mode, r) // which closes dir
	case tar.TypeDir:
		u.slots.do(func() {
			if _, err = makeDirAt(dir, base, mode, u.own); errors.Is(err, unix.EEXIST) {
				err = folderAt(dir, base)
			}
		})
	case tar.TypeSymlink:
		u.slots.do(func() {
			err = replace(dir, base, func(temp string) error {
				if err := unix.Symlinkat(h.Linkname, dir, temp); err != nil || !u.own.change {
					return err
				}
				return unix.Fchownat(dir, temp, u.own.uid, u.own.gid, unix.AT_SYMLINK_NOFOLLOW)
			})
		})
		u.files++
	case tar.TypeLink:
		u.slots.do(func() { err = u.link(dir, base, h.Linkname) })
		u.files++
	default:
		u.skipped++
	}
	unix.Close(dir)
	return err
}

// parent opens the folder of a member, making what is missing.
func (u *unpacker) parent(name string) (dir int, base string, err error) {
	parts := strings.Split(name, "/")
	dir, err = unix.Openat(u.root, ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for _, part := range parts[:len(parts)-1] {
		if err != nil {
			break
		}
		if _, merr := makeDirAt(dir, part, 0o755, u.own); merr != nil && !errors.Is(merr, unix.EEXIST) {
			unix.Close(dir)
			return -1, "", merr
		}
		next, nerr := stepInto(dir, part)
		unix.Close(dir)
		dir, err = next, nerr
	}
	return dir, parts[len(parts)-1], err
}

// stepInto opens a folder in another, not a link to one.
func stepInto(dir int, name string) (int, error) {
	return retry(func() (int, error) {
		return unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
}

// folderAt is nil if a name is a folder's.
func folderAt(dir int, name string) error {
	fd, err := stepInto(dir, name)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// file makes a regular file. It closes dir.
func (u *unpacker) file(dir int, base, name string, mode uint32, r io.Reader) error {
	var w *writer
	var err error
	u.slots.do(func() {
		at := &place{dir: dir, name: base}
		var st unix.Stat_t
		if unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT != unix.S_IFLNK {
			at.st = &st
		}
		w, err = newWriter(at, name, u.own, wish{mode: mode})
	})
	if err != nil {
		return err
	}
	defer w.abort()
	buf := make([]byte, most)
	for {
		n, rerr := r.Read(buf)
		if n > 0 {
			u.slots.do(func() { _, err = w.Write(buf[:n]) })
			if err != nil {
				return err
			}
			u.bytes += uint64(n)
		}
		if errors.Is(rerr, io.EOF) {
			break
		}
		if rerr != nil {
			return wrong("cannot read the archive: %v", rerr)
		}
	}
	u.slots.do(func() { _, err = w.commit() })
	u.files++
	return err
}

// link makes a second name of a member that came before.
func (u *unpacker) link(dir int, base, target string) error {
	name, err := insideName(target)
	if err != nil || name == "" {
		return wrong("cannot link to %s: it is outside", shown(target))
	}
	from, fromBase, err := u.parent(name)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	var st unix.Stat_t
	if err := unix.Fstatat(from, fromBase, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return wrong("cannot link to %s: it is %s", shown(target), kindName(st.Mode))
	}
	return replace(dir, base, func(temp string) error { return unix.Linkat(from, fromBase, dir, temp, 0) })
}
