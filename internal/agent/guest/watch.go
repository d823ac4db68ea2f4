package guest

import (
	"context"
	"errors"
	"io"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/agentpb"
)

// Watch implements box.Guest.
func (g *Guest) Watch(ctx context.Context, path string, recursive bool, fn func(box.Change) error) error {
	const op = "watch folder"
	if err := asked(op, path); err != nil {
		return err
	}
	told := false // that the watch stands
	var beats beats
	return resumed(ctx, g, op, fn, func(fn func(box.Change) error) error {
		s, err := hear(ctx, g, op, g.files.Watch, &agentpb.WatchRequest{Path: []byte(path), Recursive: recursive}, func() {})
		if err != nil {
			return err
		}
		defer s.close()
		return changes(s, &beats, &told, fn)
	})
}

// changes passes on what a watch tells. If it is one more, there may have been
// changes that none has seen.
func changes(s *listener[agentpb.WatchResponse], beats *beats, told *bool, fn func(box.Change) error) error {
	stands := false
	for {
		m, err := s.next()
		if errors.Is(err, io.EOF) {
			return box.Errorf(box.NotFound, s.op, "cannot %s: it is gone", s.op)
		}
		if err != nil {
			return err
		}
		var c box.Change
		switch e := m.Event.(type) {
		case *agentpb.WatchResponse_Beat:
			if !beats.ok() {
				return s.failed(lie("beats without a pause"))
			}
			if stands {
				continue
			}
			stands = true
			if *told {
				c.What = box.ChangeLost
			}
			*told = true
		case *agentpb.WatchResponse_Change:
			if !stands {
				return s.failed(lie("a change before the watch stood"))
			}
			if c, err = change(e.Change); err != nil {
				return s.failed(err)
			}
		case *agentpb.WatchResponse_Lost:
			c.What = box.ChangeLost
		default:
			return s.failed(lie("an event that is none"))
		}
		if err := fn(c); err != nil {
			return err
		}
	}
}

// change reads a change. The watched folder itself has an empty path.
func change(m *agentpb.Change) (box.Change, error) {
	c := box.Change{Path: string(m.Path)}
	if c.Path == "." {
		c.Path = ""
	}
	if c.Path != "" {
		if _, err := checkBelow(c.Path); err != nil {
			return c, err
		}
	}
	switch m.What {
	case agentpb.Change_WHAT_CREATE:
		c.What = box.ChangeCreate
	case agentpb.Change_WHAT_WRITE:
		c.What = box.ChangeWrite
	case agentpb.Change_WHAT_REMOVE:
		c.What = box.ChangeRemove
	case agentpb.Change_WHAT_RENAME:
		c.What = box.ChangeRename
	case agentpb.Change_WHAT_CHMOD:
		c.What = box.ChangeChmod
	default:
		return c, lie("an unknown change (%d)", m.What)
	}
	return c, nil
}
