package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"
)

// sample is one run of one peer.
type sample struct {
	wall time.Duration // from before the fork until the end was waited for
	cpu  time.Duration // of everything in the enclosure, until it settled
	peak int64         // bytes above what was held before
}

// start prepares a peer's process for a program.
func (p peer) command(program []string, out *os.File) (*exec.Cmd, func(), error) {
	argv := p.argv(program)
	exe := argv[0]
	if !bytes.ContainsRune([]byte(exe), '/') {
		var err error
		if exe, err = find(exe); err != nil {
			return nil, nil, err
		}
	}
	cmd := exec.Command(exe, argv[1:]...)
	cmd.Env = append(childEnv(), p.env...)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = out, out
	closeFile := func() {}
	if p.file != "" {
		f, err := os.Open(p.file)
		if err != nil {
			return nil, nil, err
		}
		cmd.ExtraFiles, closeFile = []*os.File{f}, func() { f.Close() }
	}
	return cmd, closeFile, nil
}

// once runs a program and returns the time it took.
func (p peer) once(ctx context.Context, program []string, out *os.File) (time.Duration, error) {
	if p.call != nil {
		start := time.Now()
		after, err := p.call(ctx, program, out)
		took := time.Since(start)
		if err == nil {
			err = after()
		}
		return took, err
	}
	cmd, done, err := p.command(program, out)
	if err != nil {
		return 0, err
	}
	defer done()
	start := time.Now()
	err = cmd.Run()
	return time.Since(start), err
}

// check runs a program once and looks at what it says: a peer that fails fast
// is no fast peer.
func (p peer) check(ctx context.Context, s scratch, w workload) error {
	out, err := os.OpenFile(s.path("said"), os.O_CREATE|os.O_TRUNC|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	if p.ready != nil {
		if err := p.ready(ctx); err != nil {
			return err
		}
	}
	_, err = p.once(ctx, w.argv, out)
	said := make([]byte, 4096)
	n, rerr := out.ReadAt(said, 0)
	if rerr != nil && !errors.Is(rerr, io.EOF) {
		return rerr
	}
	text := bytes.ReplaceAll(said[:n], []byte("\r\n"), []byte("\n"))
	if err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(text))
	}
	if string(text) != w.says && !p.silent {
		return fmt.Errorf("it says %q, not %q", text, w.says)
	}
	return nil
}

// measure runs a program with the accounts around it.
func (p peer) measure(ctx context.Context, a account, program []string, null *os.File) (sample, error) {
	if p.ready != nil {
		if err := p.ready(ctx); err != nil {
			return sample{}, err
		}
	}
	before, err := a.resetPeak()
	if err != nil {
		return sample{}, err
	}
	cpu, err := a.cpu()
	if err != nil {
		return sample{}, err
	}
	var s sample
	if s.wall, err = p.once(ctx, program, null); err != nil {
		return s, err
	}
	// Daemons and the kernel clear up after the end; that is part of the bill.
	settle := 50 * time.Millisecond
	if s.wall > 200*time.Millisecond {
		settle = 150 * time.Millisecond
	}
	<-time.After(settle)
	after, err := a.cpu()
	if err != nil {
		return s, err
	}
	peak, err := a.peak()
	s.cpu, s.peak = after-cpu, peak-before
	return s, err
}

// results are the samples of a workload: peer, then round.
type results struct {
	w       workload
	samples map[string]map[int]sample
	failed  map[string]int
	reasons map[string]error
}

// walls returns a peer's times by round, in milliseconds.
func (r *results) walls(name string) map[int]float64 {
	out := map[int]float64{}
	for round, s := range r.samples[name] {
		out[round] = ms(s.wall)
	}
	return out
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// latency runs every peer once in each round, in random order.
func latency(ctx context.Context, a account, peers map[string][]peer, rounds int, log io.Writer) (map[string]*results, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	type turn struct {
		p peer
		r *results
	}
	all := map[string]*results{}
	var turns []turn
	for _, w := range workloads() {
		r := &results{w: w, samples: map[string]map[int]sample{}, failed: map[string]int{}, reasons: map[string]error{}}
		all[w.name] = r
		for _, p := range peers[w.name] {
			r.samples[p.name] = map[int]sample{}
			turns = append(turns, turn{p, r})
		}
	}
	for round := -1; round < rounds; round++ { // the first one warms up
		rand.Shuffle(len(turns), func(i, j int) { turns[i], turns[j] = turns[j], turns[i] })
		for _, t := range turns {
			s, err := t.p.measure(ctx, a, t.r.w.argv, null)
			switch {
			case ctx.Err() != nil:
				return nil, context.Cause(ctx)
			case err != nil:
				t.r.failed[t.p.name]++
				t.r.reasons[t.p.name] = err
			case round >= 0:
				t.r.samples[t.p.name][round] = s
			}
		}
		fmt.Fprintf(log, "\rbench: round %d of %d ", round+1, rounds)
	}
	fmt.Fprintln(log)
	return all, nil
}

// rate is how many runs a peer made in a pass.
type rate struct {
	runs, failed int64
	took         time.Duration
	cpu          time.Duration
}

// throughput lets two workers run each peer for a while, in passes.
func throughput(ctx context.Context, a account, peers map[string][]peer, passes int, each time.Duration, log io.Writer) (map[string]map[string][]rate, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	all := map[string]map[string][]rate{}
	type turn struct {
		p peer
		w workload
	}
	var turns []turn
	for _, w := range general() {
		all[w.name] = map[string][]rate{}
		for _, p := range peers[w.name] {
			turns = append(turns, turn{p, w})
		}
	}
	for pass := range passes {
		rand.Shuffle(len(turns), func(i, j int) { turns[i], turns[j] = turns[j], turns[i] })
		for _, t := range turns {
			cpu, err := a.cpu()
			if err != nil {
				return nil, err
			}
			var r rate
			var runs, failed atomic.Int64
			start := time.Now()
			var wg sync.WaitGroup
			for range workers {
				wg.Go(func() {
					for ctx.Err() == nil && time.Since(start) < each {
						if _, err := t.p.once(ctx, t.w.argv, null); err != nil {
							failed.Add(1)
						} else {
							runs.Add(1)
						}
					}
				})
			}
			wg.Wait()
			after, err := a.cpu()
			if err != nil {
				return nil, err
			}
			r.runs, r.failed, r.took, r.cpu = runs.Load(), failed.Load(), time.Since(start), after-cpu
			all[t.w.name][t.p.name] = append(all[t.w.name][t.p.name], r)
		}
		fmt.Fprintf(log, "\rbench: pass %d of %d ", pass+1, passes)
	}
	fmt.Fprintln(log)
	return all, ctx.Err()
}

const workers = 2
