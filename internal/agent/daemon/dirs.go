package daemon

import (
	"context"
	"errors"
	"strings"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/hostfs"
)

// owner is who gets what is made. Without guest root it is who we are.
type owner struct {
	change   bool
	uid, gid int
}

func (a args) owner(user string) (owner, error) {
	cred, err := a.credential(user)
	switch {
	case err != nil:
		return owner{}, err
	case !a.root:
		return owner{}, nil
	case cred == nil:
		return owner{true, 0, 0}, nil
	}
	return owner{true, host.BoxUser, host.BoxUser}, nil
}

// of is the owner of what is there already, as far as we may choose.
func (o owner) of(st *unix.Stat_t) owner { return owner{o.change, int(st.Uid), int(st.Gid)} }

func (o owner) take(fd int) error {
	if !o.change {
		return nil
	}
	return unix.Fchown(fd, o.uid, o.gid)
}

// MakeDir implements Files.
func (f files) MakeDir(_ context.Context, r *connect.Request[pb.MakeDirRequest]) (*connect.Response[pb.MakeDirResponse], error) {
	p, mode := string(r.Msg.Path), r.Msg.Mode
	if mode == 0 {
		mode = 0o755
	}
	own, err := f.args.owner(r.Msg.User)
	if err == nil {
		err = checkPath(p)
	}
	if err == nil && mode&^0o1777 != 0 {
		err = wrong("cannot make %s with mode %#o: only permission bits may be set", shown(p), mode)
	}
	var made bool
	if err == nil {
		f.slots.do(func() {
			if r.Msg.Parents {
				made, err = makeDirs(p, mode, own)
			} else {
				made, err = makeOneDir(p, mode, own)
			}
		})
	}
	if err != nil {
		return nil, failed("make folder", p, err)
	}
	return connect.NewResponse(&pb.MakeDirResponse{Made: made}), nil
}

// makeOneDir makes the last folder of a path.
func makeOneDir(p string, mode uint32, own owner) (bool, error) {
	p = strings.TrimRight(p, "/")
	i := strings.LastIndexByte(p, '/')
	if i < 0 || p[i+1:] == "." || p[i+1:] == ".." {
		return false, isFolder(p + "/")
	}
	parent, err := handle(unix.AT_FDCWD, p[:i+1], unix.O_DIRECTORY)
	if err != nil {
		return false, err
	}
	defer unix.Close(parent)
	made, err := makeDirAt(parent, p[i+1:], mode, own)
	if errors.Is(err, unix.EEXIST) {
		return false, isFolder(p)
	}
	return made, err
}

// isFolder is nil if a path leads to a folder.
func isFolder(p string) error {
	fd, err := handle(unix.AT_FDCWD, p, unix.O_DIRECTORY)
	if errors.Is(err, unix.ENOTDIR) {
		return unix.EEXIST
	}
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// makeDirAt makes a folder in an open one.
func makeDirAt(parent int, name string, mode uint32, own owner) (bool, error) {
	if err := unix.Mkdirat(parent, name, 0o700); err != nil {
		return false, err
	}
	fd, err := retry(func() (int, error) {
		return unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return true, err
	}
	defer unix.Close(fd)
	if err := own.take(fd); err != nil {
		return true, err
	}
	return true, unix.Fchmod(fd, mode)
}

// makeDirs makes a folder and those above it that are missing, and reports
// whether it made the last one.
func makeDirs(p string, mode uint32, own owner) (made bool, err error) {
	for i := 1; i <= len(p); i++ {
		if i < len(p) && p[i] != '/' || p[i-1] == '/' {
			continue
		}
		m := uint32(0o755)
		if strings.Trim(p[i:], "/") == "" {
			m = mode
		}
		if made, err = makeOneDir(p[:i], m, own); err != nil {
			return false, err
		}
	}
	return made, nil
}

// Move implements Files.
func (f files) Move(_ context.Context, r *connect.Request[pb.MoveRequest]) (*connect.Response[pb.MoveResponse], error) {
	from, to := string(r.Msg.From), string(r.Msg.To)
	err := checkPath(from)
	if err == nil {
		err = checkPath(to)
	}
	if err == nil {
		var flags uint
		if !r.Msg.Replace {
			flags = unix.RENAME_NOREPLACE
		}
		f.slots.do(func() { err = unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, flags) })
	}
	if err != nil {
		return nil, failed("move "+shown(from)+" to", to, err)
	}
	return connect.NewResponse(&pb.MoveResponse{}), nil
}

// Remove implements Files.
func (f files) Remove(ctx context.Context, r *connect.Request[pb.RemoveRequest]) (*connect.Response[pb.RemoveResponse], error) {
	p := string(r.Msg.Path)
	err := checkPath(p)
	if err == nil {
		f.slots.do(func() { err = remove(ctx, p, r.Msg.All) })
	}
	if err != nil {
		return nil, failed("remove", p, err)
	}
	return connect.NewResponse(&pb.RemoveResponse{}), nil
}

func remove(ctx context.Context, p string, all bool) error {
	var st unix.Stat_t
	if err := unix.Lstat(p, &st); err != nil {
		return err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return unix.Unlink(p)
	case !all:
		return unix.Rmdir(p)
	}
	return hostfs.RemoveTree(ctx, p)
}
