package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/cell"
	"github.com/sunaba-dev/sunaba/internal/agent/wire"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/blockfs"
	"github.com/sunaba-dev/sunaba/internal/host/cgroup"
	"github.com/sunaba-dev/sunaba/internal/tier/frame"
)

// adapter implements frame.Adapter.
type adapter struct{ b *pbox }

func (a adapter) Exec(cmd box.Command) (wire.Exec, error) {
	if cmd.User == box.UserRoot {
		return wire.Exec{}, box.Errorf(box.Unsupported, "run", "cannot run as root: a box of tier process has one user").
			WithHint("leave out user, or use tier gvisor, whose root has no power outside the box")
	}
	e := wire.Exec{Argv: cmd.Argv, Env: cmd.Env, Dir: cmd.Dir, TTY: cmd.TTY != nil}
	if !slices.ContainsFunc(e.Env, func(v string) bool { return strings.HasPrefix(v, "PATH=") }) {
		e.Env = append(slices.Clone(e.Env), "PATH="+a.b.path)
	}
	return e, nil
}

// Terminal implements frame.Terminals. Its ends come from the box, so that the
// side which the front reads and resizes is made sure of.
func (a adapter) Terminal(size box.WindowSize) (master, replica *os.File, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), frame.StartTimeout)
	defer cancel()
	ends, err := a.b.Conn.CallForFiles(ctx, 2, "terminal", size, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a terminal in the box: %w", err)
	}
	if !host.IsPTYMaster(ends[0]) {
		frame.CloseAll(ends)
		return nil, nil, errors.New("cannot make a terminal in the box: what came is none")
	}
	return ends[0], ends[1], nil
}

func (a adapter) NotStarted(cmd box.Command, err error) error {
	if errors.Is(err, wire.ErrTooLong) {
		return box.Errorf(box.Invalid, "run", "cannot run %q: its arguments and environment are too long", cmd.Argv[0])
	}
	return box.Errorf(box.Invalid, "run", "cannot run %q: %s", cmd.Argv[0], strings.TrimPrefix(err.Error(), "cannot execute "+cmd.Argv[0]+": "))
}

func (a adapter) Full() bool {
	sp, ok := a.b.space(accountWait)
	return ok && a.b.full(sp)
}

func (a adapter) Written() int64 {
	sp, ok := a.b.space(accountWait)
	if !ok {
		return 0
	}
	return a.b.written(sp)
}

// Touched reads the account of who counts what it refuses, the control group, and
// asks the watchdog for the rest.
func (a adapter) Touched(s cgroup.Stats) []box.LimitHit {
	var hits []box.LimitHit
	if s.PidsMax.N > a.b.told.Load() {
		a.b.refused.Store(s.PidsMax.N)
		hits = append(hits, box.LimitHit{Limit: "max_processes", Source: s.PidsMax.Source})
	}
	if a.b.held.Load() {
		return hits // what it touched before was told then
	}
	return append(hits, a.b.dog.look(accountWait)...)
}

// Run implements box.Box. A run whose store lost something has no result: the
// program believes to have written what is not there.
func (b *pbox) Run(ctx context.Context, cmd box.Command, st box.Streams) (box.Result, error) {
	res, err := b.Box.Run(ctx, cmd, st)
	b.told.Store(b.refused.Load())
	if err == nil {
		err = b.damage()
	}
	return res, err
}

// damage is an error if the store of a box is known to have lost something.
func (b *pbox) damage() error {
	if b.fs == nil {
		return nil // a tmpfs has its pages or refuses them
	}
	err := blockfs.Damage(b.fs)
	if be, ok := errors.AsType[*box.Error](err); ok {
		return be
	}
	return nil // this host cannot tell, which Weak says
}

// Collect implements box.Collector. The agent is one more program of the box,
// which has room for it when the others have ended.
func (b *pbox) Collect(ctx context.Context, root string, w io.Writer) (err error) {
	if err := b.Conn.Call(ctx, "end", struct{}{}, nil); err != nil {
		return fmt.Errorf("cannot read files of the box: %w", err)
	}
	if err := b.allow(cell.AgentTasks); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.allow(0)) }()
	b.dog.spare.Store(memoryOverhead)
	defer b.dog.spare.Store(0)
	if err := b.RunAgent(ctx, wire.Exec{File: cell.ArgvAgent}, nil, w, "collect", root, fmt.Sprint(b.Spec.Limits.Disk)); err != nil {
		return fmt.Errorf("cannot read files of the box: %w", err)
	}
	return b.damage()
}
