package main

import (
	"context"
	"errors"
	"flag"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

func logsFlags(fs *flag.FlagSet, b *boxCall) { fs.BoolVar(&b.follow, "f", false, "") }

// pid reads the second argument.
func (b *boxCall) pid() (box.ProcessRef, error) {
	n, err := strconv.Atoi(b.args[1])
	if err != nil || n < 1 {
		return box.ProcessRef{}, box.Errorf(box.Invalid, "box", "cannot find process %q: that is no number of one", b.args[1]).WithHint("`sunaba box ps %s` lists them", b.args[0])
	}
	return box.ProcessRef{PID: n}, nil
}

// errCaughtUp ends a look at a program that goes on.
var errCaughtUp = errors.New("caught up")

func boxLogs(ctx context.Context, b *boxCall) (int, error) {
	_, g, err := b.guest(ctx)
	if err != nil {
		return 0, err
	}
	p, err := b.pid()
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s, end := newScreen(b.format == "json", false, cancel)
	var quiet *time.Timer // nil until something has come
	var first time.Time   // when it had
	shown := 0            // bytes
	defer func() {
		if quiet != nil {
			quiet.Stop()
		}
	}()
	err = g.Follow(ctx, p, box.Positions{Stdout: -1, Stderr: -1}, func(e box.ProcessEvent) error {
		shown += len(e.Data)
		switch {
		case b.follow:
		case e.Kind == box.EventBeat:
			return errCaughtUp // all that was kept has come
		case quiet == nil:
			quiet, first = time.AfterFunc(logsTime, func() { cancel(errCaughtUp) }), time.Now()
		case shown > logsBytes || e.Kind != box.EventEnd && time.Since(first) > logsMost:
			return errCaughtUp
		default:
			quiet.Reset(logsTime)
		}
		return s.event(e)
	})
	s.close()
	switch {
	case errors.Is(err, errCaughtUp) || errors.Is(context.Cause(ctx), errCaughtUp):
		end = nil
	case s.failed() != nil:
		return exitCanceled, nil
	case err != nil:
		return 0, err
	}
	if b.format == "json" {
		if end == nil {
			d := s.document(box.End{})
			d["cause"] = "running"
			return 0, b.show(d, nil)
		}
		return 0, b.show(s.document(*end), nil)
	}
	return 0, nil
}

// logsTime is how long logs waits for more of what a running program has written
// already. It begins when some of that has come: from the call on, a busy host would
// make it show nothing, and call that all. Of a program that has written nothing the
// next beat tells.
const logsTime = time.Second

// A program that never rests for so long would have it wait, and show, for ever. It ends
// also after logsMost from the first that came, and after more than is kept of both
// streams: 4 MiB each, with room.
const (
	logsMost  = 5 * time.Second
	logsBytes = 9 << 20
)

func killFlags(fs *flag.FlagSet, b *boxCall) { fs.StringVar(&b.signal, "s", "TERM", "") }

func boxKill(ctx context.Context, b *boxCall) (int, error) {
	_, g, err := b.guest(ctx)
	if err != nil {
		return 0, err
	}
	p, err := b.pid()
	if err != nil {
		return 0, err
	}
	signals := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP,
		"QUIT": syscall.SIGQUIT, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT}
	n, known := signals[strings.TrimPrefix(strings.ToUpper(b.signal), "SIG")]
	if !known {
		i, err := strconv.Atoi(b.signal)
		if err != nil || i < 1 || i > 64 {
			return 0, box.Errorf(box.Invalid, "kill", "cannot send %q: it is no signal", b.signal)
		}
		n = syscall.Signal(i)
	}
	return 0, g.Signal(ctx, p, int(n), true)
}
