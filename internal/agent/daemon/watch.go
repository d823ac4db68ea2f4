package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
)

// watchMask is what is told of, inotify(7). A write is told as it happens.
const watchMask = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
	unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_EXCL_UNLINK

// maxWatches bounds what one call watches; the kernel has a bound, too.
const maxWatches = 8192

// Watch tells of changes below a path until the caller goes away. A reader that
// is slow makes the kernel's queue run over, which it is told: nothing is held
// here for it.
func (f files) Watch(ctx context.Context, r *connect.Request[pb.WatchRequest], stream *connect.ServerStream[pb.WatchResponse]) error {
	p := string(r.Msg.Path)
	if err := checkPath(p); err != nil {
		return err
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return failed("watch", p, err)
	}
	w := &watcher{fd: fd, f: os.NewFile(uintptr(fd), "inotify"), root: p, recursive: r.Msg.Recursive, paths: map[int]string{}, send: stream.Send}
	defer w.f.Close()
	f.slots.do(func() { err = w.add("", false) })
	if err == nil {
		err = w.beat()
	}
	if err == nil {
		stop := context.AfterFunc(ctx, func() { w.f.Close() })
		defer stop()
		err = w.run(ctx, f.slots)
	}
	return failed("watch", p, err)
}

type watcher struct {
	fd        int
	f         *os.File
	root      string
	recursive bool
	paths     map[int]string // by watch descriptor, relative to root
	found     []string       // what was in folders that came while we watch
	send      func(*pb.WatchResponse) error
}

func (w *watcher) beat() error {
	return w.send(&pb.WatchResponse{Event: &pb.WatchResponse_Beat{Beat: &pb.Beat{}}})
}

func (w *watcher) tell(rel string, what pb.Change_What) error {
	return w.send(&pb.WatchResponse{Event: &pb.WatchResponse_Change{Change: &pb.Change{Path: []byte(rel), What: what}}})
}

// add watches what has a relative name, and the folders below it. What is below
// a folder that came while we watch may have come before its watch: it is noted
// as found.
func (w *watcher) add(rel string, came bool) error {
	flags := uint32(watchMask)
	if rel != "" {
		flags |= unix.IN_DONT_FOLLOW | unix.IN_ONLYDIR
	}
	if len(w.paths) >= maxWatches {
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("cannot watch more than %d folders", maxWatches))
	}
	wd, err := retry(func() (int, error) { return unix.InotifyAddWatch(w.fd, path.Join(w.root, rel), flags) })
	if rel != "" && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENAMETOOLONG)) {
		return nil // gone again, or closed to us, or so deep that nothing reaches it
	}
	if err != nil {
		return err
	}
	w.paths[wd] = rel
	if !w.recursive {
		return nil
	}
	dir, err := openDir(unix.AT_FDCWD, path.Join(w.root, rel), 0)
	if lacking(err) {
		return err
	}
	if err != nil {
		return nil // a file, or gone, or closed to us
	}
	defer dir.Close()
	for {
		entries, err := dir.ReadDir(batch)
		for _, e := range entries {
			sub := path.Join(rel, e.Name())
			if came && len(w.found) < 16*batch {
				w.found = append(w.found, sub)
			}
			if e.IsDir() {
				if err := w.add(sub, came); err != nil {
					return err
				}
			}
		}
		if err != nil || len(entries) == 0 {
			return nil
		}
	}
}

// drop forgets the watches of a folder that was moved away, and below it.
func (w *watcher) drop(rel string) {
	for wd, p := range w.paths {
		if p == rel || strings.HasPrefix(p, rel+"/") {
			_, _ = unix.InotifyRmWatch(w.fd, uint32(wd))
			delete(w.paths, wd)
		}
	}
}

func (w *watcher) run(ctx context.Context, s slots) error {
	buf := make([]byte, 16<<10)
	for {
		_ = w.f.SetReadDeadline(time.Now().Add(beatTime))
		n, err := w.f.Read(buf)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, os.ErrDeadlineExceeded):
			err = w.beat()
		case err == nil:
			err = eachEvent(buf[:n], func(e event) error { return w.event(e, s) })
		}
		if errors.Is(err, errGone) {
			return connect.NewError(connect.CodeNotFound, fmt.Errorf("cannot watch %s any more: it is gone", shown(w.root)))
		}
		if err != nil {
			return err
		}
	}
}

// errGone says that what is watched is no more where it was.
var errGone = errors.New("gone")

func (w *watcher) event(e event, s slots) error {
	if e.mask&unix.IN_Q_OVERFLOW != 0 {
		return w.send(&pb.WatchResponse{Event: &pb.WatchResponse_Lost{Lost: &pb.Lost{}}})
	}
	at, known := w.paths[e.wd]
	if !known || strings.HasPrefix(e.name, tempPrefix) {
		return nil
	}
	if e.mask&unix.IN_IGNORED != 0 {
		delete(w.paths, e.wd)
		return nil
	}
	if e.mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_UNMOUNT) != 0 {
		if at == "" {
			return errGone
		}
		return nil // the folder above tells
	}
	rel := path.Join(at, e.name)
	folder := e.mask&unix.IN_ISDIR != 0
	for _, k := range kindsOfChange {
		if e.mask&k.mask == 0 {
			continue
		}
		if folder && k.mask == unix.IN_MOVED_FROM {
			w.drop(rel)
		}
		if err := w.tell(rel, k.what); err != nil {
			return err
		}
	}
	if !folder || !w.recursive || e.mask&(unix.IN_CREATE|unix.IN_MOVED_TO) == 0 {
		return nil
	}
	var err error
	s.do(func() { err = w.add(rel, true) })
	for _, p := range w.found {
		if err == nil {
			err = w.tell(p, pb.Change_WHAT_CREATE)
		}
	}
	if len(w.found) == 16*batch && err == nil { // there may be more
		err = w.send(&pb.WatchResponse{Event: &pb.WatchResponse_Lost{Lost: &pb.Lost{}}})
	}
	w.found = nil
	return err
}

//house:const a table
var kindsOfChange = []struct {
	mask uint32
	what pb.Change_What
}{
	{unix.IN_CREATE, pb.Change_WHAT_CREATE},
	{unix.IN_MOVED_TO, pb.Change_WHAT_CREATE}, // what had the name before, if anything, is no more
	{unix.IN_MODIFY, pb.Change_WHAT_WRITE},
	{unix.IN_ATTRIB, pb.Change_WHAT_CHMOD},
	{unix.IN_DELETE, pb.Change_WHAT_REMOVE},
	{unix.IN_MOVED_FROM, pb.Change_WHAT_RENAME},
}
