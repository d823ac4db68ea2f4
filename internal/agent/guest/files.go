package guest

import (
	"context"
	"errors"
	"io"
	pathpkg "path"
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/agentpb"
)

// asked refuses a path that no kernel would take, before the box is asked.
func asked(op string, paths ...string) error {
	for _, p := range paths {
		var why errLie
		if errors.As(checkPath(p), &why) {
			return refused(op, "%q is %s", cut(p, 100), string(why))
		}
	}
	return nil
}

// Stat implements box.Guest.
func (g *Guest) Stat(ctx context.Context, path string, follow bool) (box.Entry, error) {
	const op = "look at file"
	if err := asked(op, path); err != nil {
		return box.Entry{}, err
	}
	res, err := again(ctx, g, op, g.files.Stat, &agentpb.StatRequest{Path: []byte(path), Follow: follow, Attributes: true})
	if err != nil {
		return box.Entry{}, err
	}
	e, err := entry(res.Entry, path)
	if err == nil && follow && e.Kind == box.KindLink {
		err = lie("a link where one was to be followed")
	}
	if err != nil {
		return box.Entry{}, failed(ctx, op, err)
	}
	return e, nil
}

// List implements box.Guest.
func (g *Guest) List(ctx context.Context, path string, depth, most int) (entries []box.Entry, more bool, err error) {
	const op = "list folder"
	if err := asked(op, path); err != nil {
		return nil, false, err
	}
	if depth < 1 || depth > maxPath/2 || most < 1 || most > maxList {
		return nil, false, refused(op, "the depth is 1 to %d, and the number of entries 1 to %d", maxPath/2, maxList)
	}
	s, err := listen(ctx, g, op, g.files.List, &agentpb.ListRequest{Path: []byte(path), Depth: uint32(depth), Most: uint32(most)})
	if err != nil {
		return nil, false, err
	}
	defer s.close()
	var beats beats // messages that bring nothing
	told := 0       // bytes of names: a path in a hostile tree has 16 KiB
	for {
		m, err := s.next()
		if errors.Is(err, io.EOF) {
			return entries, more, nil
		}
		if err != nil {
			return nil, false, err
		}
		more = more || m.Cut
		if len(m.Entries) == 0 && !beats.ok() {
			return nil, false, s.failed(lie("messages without end that bring nothing"))
		}
		for _, one := range m.Entries {
			e, err := listed(one, path, depth)
			if err == nil && len(entries) == most {
				err = lie("more entries than were asked for")
			}
			if err != nil {
				return nil, false, s.failed(err)
			}
			if told += len(e.Path) + len(e.Link); told > maxTold {
				return entries, true, nil
			}
			entries = append(entries, e)
		}
	}
}

// listed reads an entry of a list, which is below path.
func listed(m *agentpb.Entry, path string, depth int) (box.Entry, error) {
	base := strings.TrimRight(path, "/") + "/"
	rel, below := strings.CutPrefix(string(m.GetPath()), base)
	if !below {
		// It may have shortened what was asked for ("/a//b").
		rel, below = strings.CutPrefix(string(m.GetPath()), strings.TrimRight(pathpkg.Clean(path), "/")+"/")
	}
	if !below {
		return box.Entry{}, lie("a path that is not below what was asked for")
	}
	names, err := checkBelow(rel)
	if err != nil {
		return box.Entry{}, err
	}
	if names > depth {
		return box.Entry{}, lie("a path that is deeper than what was asked for")
	}
	e, err := entry(m, base+rel)
	e.Attributes = nil
	return e, err
}

// entry reads an entry. Its path is what was asked for, whatever the agent says.
func entry(m *agentpb.Entry, path string) (box.Entry, error) {
	if m == nil {
		return box.Entry{}, lie("no entry")
	}
	e := box.Entry{Path: path, Mode: m.Mode & 0o7777, UID: m.Uid, GID: m.Gid, Modified: time.Unix(0, m.ModifiedUnixNanos).UTC()}
	switch m.Kind {
	case agentpb.Kind_KIND_FILE:
		e.Kind = box.KindFile
	case agentpb.Kind_KIND_DIR:
		e.Kind = box.KindDir
	case agentpb.Kind_KIND_LINK:
		e.Kind = box.KindLink
	case agentpb.Kind_KIND_OTHER:
		e.Kind = box.KindOther
	default:
		return e, lie("an unknown kind of file (%d)", m.Kind)
	}
	var err error
	if e.Size, err = count(m.Size, "a size"); err != nil {
		return e, err
	}
	if len(m.Link) > 0 && e.Kind != box.KindLink {
		return e, lie("a %s that says where it leads", e.Kind)
	}
	e.Link = string(m.Link)
	if err := checkText(e.Link, maxPath, "a link"); err != nil {
		return e, err
	}
	for name, value := range m.Attributes {
		// xattr(7): 255 bytes of name, 64 KiB of value.
		if !strings.HasPrefix(name, "user.") || len(value) > 64<<10 {
			return e, lie("an attribute that no file has")
		}
		if err := checkText(name, 255, "an attribute"); err != nil {
			return e, err
		}
	}
	e.Attributes = m.Attributes
	return e, nil
}

// MakeDir implements box.Guest.
func (g *Guest) MakeDir(ctx context.Context, path string, o box.MakeDirOptions) (bool, error) {
	const op = "make folder"
	if err := asked(op, path); err != nil {
		return false, err
	}
	res, err := call(ctx, g, op, g.files.MakeDir, &agentpb.MakeDirRequest{Path: []byte(path), Mode: o.Mode, Parents: o.Parents, User: string(o.User)})
	if err != nil {
		return false, err
	}
	return res.Made, nil
}

// Move implements box.Guest.
func (g *Guest) Move(ctx context.Context, from, to string, replace bool) error {
	const op = "move file"
	if err := asked(op, from, to); err != nil {
		return err
	}
	_, err := call(ctx, g, op, g.files.Move, &agentpb.MoveRequest{From: []byte(from), To: []byte(to), Replace: replace})
	return err
}

// Remove implements box.Guest.
func (g *Guest) Remove(ctx context.Context, path string, all bool) error {
	const op = "remove file"
	if err := asked(op, path); err != nil {
		return err
	}
	_, err := call(ctx, g.patient(), op, g.files.Remove, &agentpb.RemoveRequest{Path: []byte(path), All: all})
	return err
}

// Metrics implements box.Guest.
func (g *Guest) Metrics(ctx context.Context) (box.Metrics, error) {
	const op = "measure box"
	res, err := again(ctx, g, op, g.machine.Metrics, &agentpb.MetricsRequest{})
	if err != nil {
		return box.Metrics{}, err
	}
	m := box.Metrics{CPU: span(res.CpuMicros, time.Microsecond), Uptime: span(res.UptimeMillis, time.Millisecond)}
	if res.Processes > maxPID {
		return box.Metrics{}, failed(ctx, op, lie("%d processes", res.Processes))
	}
	m.Processes = int(res.Processes)
	for _, f := range []struct {
		to   *int64
		from uint64
	}{
		{&m.MemoryUsed, res.MemoryUsedBytes}, {&m.MemoryTotal, res.MemoryTotalBytes},
		{&m.DiskUsed, res.DiskUsedBytes}, {&m.DiskTotal, res.DiskTotalBytes},
		{&m.FilesUsed, res.FilesUsed}, {&m.FilesTotal, res.FilesTotal}, {&m.AgentResident, res.AgentRssBytes},
	} {
		if *f.to, err = count(f.from, "a measure"); err != nil {
			return box.Metrics{}, failed(ctx, op, err)
		}
	}
	return m, nil
}
