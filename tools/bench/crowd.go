package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// crowd is what many boxes of the daemon's cost.
type crowd struct {
	forks []forked
	held  []density
	lives []lifeRate
}

// forked is the time of one fork into n copies.
type forked struct {
	n    int
	took time.Duration
	err  error
}

// density is what each of n idle boxes holds.
type density struct {
	tier string
	n    int
	each int64 // bytes
	err  error
}

// lifeRate is how many boxes were made, used and destroyed.
type lifeRate struct {
	tier  string
	boxes int
	took  time.Duration
	cpu   time.Duration
	err   error
}

// crowded measures forks, idle boxes and whole lives, each once per pass.
func (s *service) crowded(ctx context.Context, a account, boxes, passes int, each time.Duration, log io.Writer) crowd {
	var c crowd
	if s.absent != "" || boxes == 0 {
		return c
	}
	for range passes {
		for _, n := range []int{10, 100} {
			fmt.Fprintf(log, "\rbench: fork into %-20d", n)
			f := forked{n: n}
			f.took, f.err = s.fork(ctx, n)
			c.forks = append(c.forks, f)
		}
	}
	for _, tier := range []string{"process", "gvisor"} {
		fmt.Fprintf(log, "\rbench: %d idle boxes of tier %-10s", boxes, tier)
		d := density{tier: tier, n: boxes}
		d.each, d.err = s.idle(ctx, a, tier, boxes)
		c.held = append(c.held, d)
		for range passes {
			c.lives = append(c.lives, s.lives(ctx, a, tier, each))
		}
	}
	fmt.Fprintln(log)
	return c
}

// fork makes n copies of a box with an interpreter, and destroys them.
func (s *service) fork(ctx context.Context, n int) (took time.Duration, err error) {
	m, err := s.create(ctx, "", map[string]any{"template": "numpy"})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.destroy(ctx, m)) }()
	var out struct {
		Forks []struct {
			Box   *made `json:"box"`
			Error any   `json:"error"`
		} `json:"forks"`
	}
	start := time.Now()
	if err := s.call(ctx, "POST", "/v1/boxes/"+m.ID+"/fork", map[string]any{"count": n}, &out); err != nil {
		return 0, err
	}
	took = time.Since(start)
	for _, f := range out.Forks {
		if f.Box == nil {
			err = fmt.Errorf("a copy failed: %v", f.Error)
			continue
		}
		err = errors.Join(err, s.destroy(ctx, *f.Box))
	}
	return took, err
}

// plain is a request for a box of 64 MiB, so that many fit.
func plain(tier string) map[string]any {
	return map[string]any{"sandbox": map[string]any{
		"runtime": tier, "trust": "trusted", "image": "base", "resource_limits": map[string]any{"memory": "64m", "disk": "16m", "cpu": "0.1"},
	}}
}

// idle is what one of n boxes holds in which a program was run.
func (s *service) idle(ctx context.Context, a account, tier string, n int) (each int64, err error) {
	const settle = 3 * time.Second // the kernel adds its counters up every two
	<-time.After(settle)
	before, err := a.held()
	if err != nil {
		return 0, err
	}
	var all []made
	defer func() {
		for _, m := range all {
			err = errors.Join(err, s.destroy(ctx, m))
		}
	}()
	for range n {
		m, err := s.create(ctx, "cold", plain(tier))
		if err != nil {
			return 0, err
		}
		all = append(all, m)
	}
	<-time.After(settle)
	after, err := a.held()
	return (after - before) / int64(n), err
}

// lives makes boxes, runs a program in each, and destroys them, by two workers.
func (s *service) lives(ctx context.Context, a account, tier string, each time.Duration) lifeRate {
	r := lifeRate{tier: tier}
	cpu, err := a.cpu()
	if err != nil {
		r.err = err
		return r
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	start := time.Now()
	for range workers {
		all.Go(func() {
			for ctx.Err() == nil && time.Since(start) < each {
				m, err := s.create(ctx, "cold", plain(tier))
				if err == nil {
					err = errors.Join(s.exec(ctx, m, []string{"true"}, io.Discard), s.destroy(ctx, m))
				}
				mu.Lock()
				r.boxes++
				r.err = errors.Join(r.err, err)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	r.took = time.Since(start)
	after, err := a.cpu()
	r.cpu, r.err = after-cpu, errors.Join(r.err, err)
	return r
}
