package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// template is what the daemon of the benchmark keeps prepared.
const templates = `templates:
  - name: numpy
    size: 2
    sandbox: {runtime: gvisor, image: base}
    warm_up:
      - {language: python, code: "import numpy"}
  - name: cold
    size: 0
    sandbox: {runtime: gvisor, image: base}
    warm_up:
      - {language: python, code: "import numpy"}
`

// reusing is a request for a warm box with the limits of all peers.
func reusing(tier string) map[string]any {
	return map[string]any{"sandbox": map[string]any{
		"runtime": tier, "trust": "trusted", "image": "base", "lifecycle": map[string]any{"reuse": true, "pool_size": 3},
	}}
}

// peers are ways to run a program through the daemon: each makes a box and runs
// the program in it, and destroys the box when the time was taken.
func (s *service) peers() []peer {
	return []peer{
		{name: nameWarmProcess, what: "`POST /v1/boxes` with `lifecycle.reuse` and the first exec in it, over a connection that is open; the pool is full again before the next", call: s.warm("process"), ready: s.full("process"), absent: s.absent},
		{name: nameWarmGvisor, what: "likewise", call: s.warm("gvisor"), ready: s.full("gvisor"), absent: s.absent},
		{name: nameRestored, what: "a box of a template in which numpy was imported, made when it is asked for, and the first cell that uses it", call: s.like("cold", "restored"), ready: s.prepared("cold"), only: []string{nameNumpy}, absent: s.absent},
		{name: nameTemplate, what: "the same from a pool", call: s.like("numpy", "warm"), ready: s.prepared("numpy"), only: []string{nameNumpy}, absent: s.absent},
	}
}

func (s *service) warm(tier string) func(context.Context, []string, *os.File) (func() error, error) {
	return func(ctx context.Context, program []string, out *os.File) (func() error, error) {
		m, err := s.create(ctx, "", reusing(tier))
		if err != nil {
			return nil, err
		}
		return func() error { return s.destroy(ctx, m) }, s.exec(ctx, m, program, out)
	}
}

func (s *service) like(template, start string) func(context.Context, []string, *os.File) (func() error, error) {
	return func(ctx context.Context, program []string, out *os.File) (func() error, error) {
		m, err := s.create(ctx, start, map[string]any{"template": template})
		if err != nil {
			return nil, err
		}
		code := strings.TrimPrefix(program[len(program)-1], "import numpy; ")
		return func() error { return s.destroy(ctx, m) }, s.code(ctx, m, code, out)
	}
}

// full waits until two warm boxes of a tier are there, of those without a template.
func (s *service) full(tier string) func(context.Context) error {
	return func(ctx context.Context) error {
		has := func(line string) bool {
			return strings.Contains(line, `tier="`+tier+`",template="",state="ready"}`) && strings.HasSuffix(line, " 3")
		}
		if s.sees(ctx, has) {
			return nil
		}
		if _, err := s.asked(ctx, tier); err != nil {
			return err
		}
		return s.until(ctx, "3 warm boxes of tier "+tier, has)
	}
}

// asked has the daemon keep warm boxes of a tier.
func (s *service) asked(ctx context.Context, tier string) (made, error) {
	m, err := s.create(ctx, "", reusing(tier))
	if err != nil {
		return m, err
	}
	return m, s.destroy(ctx, m)
}

// prepared waits until a template can be used, and its pool is full.
func (s *service) prepared(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		if name == "numpy" {
			return s.until(ctx, "2 copies of the template", func(line string) bool {
				return strings.Contains(line, `template="numpy`) && strings.Contains(line, `state="ready"}`) && strings.HasSuffix(line, " 2")
			})
		}
		for end := time.Now().Add(time.Minute); ; {
			m, err := s.create(ctx, "restored", map[string]any{"template": name})
			if err == nil {
				return s.destroy(ctx, m)
			}
			if time.Now().After(end) || !strings.Contains(err.Error(), "being prepared") {
				return err
			}
			<-time.After(200 * time.Millisecond)
		}
	}
}

// sees reports whether a line of the daemon's metrics is as wanted.
func (s *service) sees(ctx context.Context, ok func(line string) bool) bool {
	text, err := s.metrics(ctx)
	if err != nil {
		return false
	}
	for line := range strings.Lines(text) {
		if ok(strings.TrimSpace(line)) {
			return true
		}
	}
	return false
}

func (s *service) until(ctx context.Context, what string, ok func(line string) bool) error {
	for end := time.Now().Add(time.Minute); !s.sees(ctx, ok); <-time.After(10 * time.Millisecond) {
		if time.Now().After(end) || ctx.Err() != nil {
			return errors.Join(fmt.Errorf("cannot wait for %s", what), ctx.Err())
		}
	}
	return nil
}
