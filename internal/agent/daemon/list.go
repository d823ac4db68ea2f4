package daemon

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"slices"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
)

// Bounds of a list.
const (
	maxEntries = 100_000
	maxDepth   = 64 // each level holds a descriptor
	batch      = 256
	batchBytes = 256 << 10
)

// List sends what is below a folder, by name in each folder, a folder before
// what is in it. Links are told and not followed. What cannot be read inside is
// told and not entered.
func (f files) List(ctx context.Context, r *connect.Request[pb.ListRequest], stream *connect.ServerStream[pb.ListResponse]) error {
	p := string(r.Msg.Path)
	if err := checkPath(p); err != nil {
		return err
	}
	l := &lister{
		files: f, ctx: ctx, send: stream.Send,
		left: int(min(r.Msg.Most, maxEntries)), clipped: r.Msg.Depth > maxDepth,
	}
	if r.Msg.Most == 0 {
		l.left = maxEntries
	}
	var dir *os.File
	var err error
	f.slots.do(func() { dir, err = openDir(unix.AT_FDCWD, p, 0) })
	if err == nil {
		err = l.folder(dir, p, int(min(max(r.Msg.Depth, 1), maxDepth)))
	}
	if err == nil {
		err = l.flush()
	}
	return failed("list", p, err)
}

type lister struct {
	files
	ctx   context.Context
	send  func(*pb.ListResponse) error
	left  int
	cut   bool // there is more than was sent
	batch []*pb.Entry
	bytes int
	// clipped says that more levels were wanted than can be held open.
	clipped bool
}

// openDir opens a folder to be read.
func openDir(at int, name string, flags int) (*os.File, error) {
	fd, err := retry(func() (int, error) {
		return unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK|unix.O_CLOEXEC|flags, 0)
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// lacking reports whether something failed for want of descriptors or memory,
// which is no property of a file: to leave it out would be a lie.
func lacking(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM)
}

// names reads at most n names, sorted, and whether there are more.
func names(dir *os.File, n int) (all []string, more bool, err error) {
	for len(all) <= n {
		some, err := dir.Readdirnames(batch)
		all = append(all, some...)
		if errors.Is(err, io.EOF) || err == nil && len(some) == 0 {
			break
		}
		if err != nil {
			return nil, false, err
		}
	}
	if more = len(all) > n; more {
		all = all[:n]
	}
	slices.Sort(all)
	return all, more, nil
}

// folder tells of a folder that it closes.
func (l *lister) folder(dir *os.File, p string, depth int) error {
	defer dir.Close()
	var all []string
	var more bool
	var err error
	l.slots.do(func() { all, more, err = names(dir, l.left) })
	if err != nil {
		return err
	}
	l.cut = l.cut || more
	for _, name := range all {
		if l.left == 0 {
			l.cut = true
			return nil
		}
		if err := l.ctx.Err(); err != nil {
			return err
		}
		var e *pb.Entry
		var sub *os.File
		l.slots.do(func() { e, sub, err = l.look(dir, name, path.Join(p, name), depth) })
		if errors.Is(err, unix.ENOENT) {
			continue // removed meanwhile
		}
		if err != nil {
			return err
		}
		l.left--
		if err := l.add(e); err != nil {
			if sub != nil {
				sub.Close()
			}
			return err
		}
		if sub != nil {
			if err := l.folder(sub, path.Join(p, name), depth-1); err != nil {
				return err
			}
		}
	}
	return nil
}

// look describes one name, and opens it if it is to be entered.
func (l *lister) look(dir *os.File, name, p string, depth int) (*pb.Entry, *os.File, error) {
	fd := int(dir.Fd())
	var st unix.Stat_t
	if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, nil, err
	}
	e := entry(p, &st)
	if e.Kind == pb.Kind_KIND_LINK {
		to, err := readLink(fd, name)
		if err != nil {
			return nil, nil, err
		}
		e.Link = []byte(to)
	}
	if e.Kind != pb.Kind_KIND_DIR || depth <= 1 {
		l.cut = l.cut || l.clipped && e.Kind == pb.Kind_KIND_DIR
		return e, nil, nil
	}
	sub, err := openDir(fd, name, unix.O_NOFOLLOW)
	if lacking(err) {
		return nil, nil, err
	}
	return e, sub, nil
}

func (l *lister) add(e *pb.Entry) error {
	l.batch = append(l.batch, e)
	if l.bytes += len(e.Path) + len(e.Link) + 64; len(l.batch) < batch && l.bytes < batchBytes {
		return nil
	}
	return l.flush()
}

func (l *lister) flush() error {
	m := &pb.ListResponse{Entries: l.batch, Cut: l.cut}
	l.batch, l.bytes = nil, 0
	return l.send(m)
}
