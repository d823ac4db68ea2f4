package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// sleeper is one way to have boxes that do nothing.
type sleeper struct {
	name, what string
	start      func(ctx context.Context, n int) (end func() error, err error)
}

// sleepers are the peers in the form in which their boxes stay.
func (s *setup) sleepers(usable []peer) []sleeper {
	sleep := []string{"sleep", "infinity"}
	var all []sleeper
	for _, p := range usable {
		switch {
		case strings.HasPrefix(p.name, "docker run, no"):
			all = append(all, detached(p.name, append([]string{"docker", "-H", dockerSocket}, s.docker.argv("run", "-d", "--network", "none")(sleep)[1:]...), []string{"docker", "-H", dockerSocket, "rm", "-f"}))
		case strings.HasPrefix(p.name, "podman"):
			all = append(all, detached(p.name, s.podman.argv("run", "-d")(sleep), slices.Concat([]string{"podman"}, s.podman.global(), []string{"rm", "-f", "-t", "0"})))
		case p.name == nameRunc || p.name == "crun run":
			all = append(all, s.sleepingOCI(p, strings.Fields(p.name)[0], sleep))
		case p.name == nameExec:
			all = append(all, sleeper{"sunaba gvisor, base, boxes of one process", "through the Go API, as a daemon would hold them", s.live.sleeping})
		case p.argv == nil || p.silent || strings.HasPrefix(p.name, "docker") || p.name == "bare exec":
		default:
			all = append(all, foreground(p, sleep))
		}
	}
	return all
}

// foreground is a peer whose process lives as long as its box.
func foreground(p peer, program []string) sleeper {
	return sleeper{p.name, "with the process that waits for it", func(context.Context, int) (func() error, error) {
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		defer null.Close()
		cmd, done, err := p.command(program, null)
		if err != nil {
			return nil, err
		}
		defer done()
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		return func() error {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			kill := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
			defer kill.Stop()
			_ = cmd.Wait() // ended by a signal, as it was asked to
			return nil
		}, nil
	}}
}

// detached is a peer that starts a box, says its name, and ends.
func detached(name string, start, remove []string) sleeper {
	return sleeper{name, "with its daemon's growth", func(context.Context, int) (func() error, error) {
		out, err := output(nil, start[0], start[1:]...)
		if err != nil {
			return nil, err
		}
		id := strings.TrimSpace(out)
		return func() error { return exec1(nil, remove[0], append(slices.Clone(remove[1:]), id)...) }, nil
	}}
}

// sleepingOCI is a container without anybody who waits for it.
func (s *setup) sleepingOCI(p peer, runtime string, program []string) sleeper {
	return sleeper{p.name, "detached, nobody waits for it", func(_ context.Context, n int) (func() error, error) {
		args := p.argv(program)
		id := args[len(args)-1]
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		defer null.Close()
		args = append(args[:len(args)-1:len(args)-1], "-d", id)
		cmd, done, err := peer{argv: func([]string) []string { return args }}.command(nil, null)
		if err != nil {
			return nil, err
		}
		defer done()
		if err := cmd.Run(); err != nil {
			return nil, err
		}
		return func() error { return exec1(nil, runtime, "--root", "/run/"+runtime+"-bench", "delete", "-f", id) }, nil
	}}
}

func (l *live) sleeping(ctx context.Context, _ int) (func() error, error) {
	b, err := create(ctx, l.tier)
	if err != nil {
		return nil, err
	}
	return func() error { return b.Destroy(ctx) }, nil
}

// held is what one idle box holds.
type held struct {
	sleeper
	each int64 // bytes
	err  error
}

// idle starts n boxes of each peer and looks at what the enclosure holds more.
func idle(ctx context.Context, a account, sleepers []sleeper, n int, log io.Writer) ([]held, error) {
	const settle = 3 * time.Second // the kernel adds its counters up every two
	var all []held
	for _, s := range sleepers {
		fmt.Fprintf(log, "\rbench: idle %-40s", s.name)
		<-time.After(settle)
		before, err := a.held()
		if err != nil {
			return nil, err
		}
		h := held{sleeper: s}
		var ends []func() error
		for i := range n {
			end, err := s.start(ctx, i)
			if err != nil {
				h.err = err
				break
			}
			ends = append(ends, end)
		}
		<-time.After(settle)
		after, err := a.held()
		if err != nil {
			return nil, err
		}
		h.each = (after - before) / int64(n)
		for _, end := range ends {
			h.err = errors.Join(h.err, end())
		}
		all = append(all, h)
	}
	fmt.Fprintln(log)
	return all, ctx.Err()
}
