package daemon

import (
	"context"
	"errors"
	"strings"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
)

// files is the service of that name.
type files struct{ *agent }

func (f files) Stat(_ context.Context, r *connect.Request[pb.StatRequest]) (*connect.Response[pb.StatResponse], error) {
	p := string(r.Msg.Path)
	var e *pb.Entry
	err := checkPath(p)
	if err == nil {
		f.slots.do(func() { e, err = stat(p, r.Msg.Follow, r.Msg.Attributes) })
	}
	if err != nil {
		return nil, failed("look at", p, err)
	}
	return connect.NewResponse(&pb.StatResponse{Entry: e}), nil
}

func stat(p string, follow, attributes bool) (*pb.Entry, error) {
	flags := unix.O_NOFOLLOW
	if follow {
		flags = 0
	}
	fd, err := handle(unix.AT_FDCWD, p, flags)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	e := entry(p, &st)
	if e.Kind == pb.Kind_KIND_LINK {
		l, err := readLink(fd, "")
		if err != nil {
			return nil, err
		}
		e.Link = []byte(l)
	}
	if attributes && (e.Kind == pb.Kind_KIND_FILE || e.Kind == pb.Kind_KIND_DIR) {
		if e.Attributes, err = readAttributes(fdPath(fd)); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// Bounds of extended attributes; the kernel's own are 64 KiB for a value and for
// all names, xattr(7).
const (
	attributePrefix = "user."
	maxAttributes   = 256 << 10
)

// readAttributes returns a file's attributes of the user's class. A store that
// has none is no error.
func readAttributes(p string) (map[string][]byte, error) {
	names := make([]byte, 64<<10)
	n, err := unix.Listxattr(p, names)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all, size := map[string][]byte{}, 0
	value := make([]byte, 64<<10)
	for name := range strings.SplitSeq(string(names[:n]), "\x00") {
		if !strings.HasPrefix(name, attributePrefix) {
			continue
		}
		n, err := unix.Getxattr(p, name, value)
		if errors.Is(err, unix.ENODATA) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		if size += len(name) + n; size > maxAttributes {
			return nil, connect.NewError(connect.CodeResourceExhausted, errors.New("cannot return its attributes: there are too many"))
		}
		all[strings.ToValidUTF8(name, "\ufffd")] = append([]byte(nil), value[:n]...)
	}
	return all, nil
}
