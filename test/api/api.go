// Package api attacks those who read and write a box's files from outside, with
// what a program in the box can put in their way: links to the host's files,
// names that are swapped while they are resolved, pipes that nobody writes to,
// archives that lead somewhere else.
//
// The cases are data (testdata/cases.txtar) and say nothing of how the box is
// reached. Whoever offers a box's files to callers, in Go, over HTTP or on a
// command line, implements [Box] and passes all of them; [Over] does that for a
// box.Guest. Beside what a case says, three things hold in each: no call takes
// long, nothing that comes out has the secret of a file on the host, and that
// file and its folder are as they were.
package api

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// Box is a box as its user reaches it. An error's kind is that of box.KindOf.
// Paths are absolute.
type Box interface {
	// Shell runs a script in the working folder to its end and returns what it
	// printed.
	Shell(ctx context.Context, script string) (string, error)
	Read(ctx context.Context, path string) ([]byte, error)
	Write(ctx context.Context, path string, data []byte) error
	// Stat and List return names and what links say, as text in which everything
	// is that came.
	Stat(ctx context.Context, path string) (string, error)
	List(ctx context.Context, path string) (string, error)
	MakeDir(ctx context.Context, path string) error
	Move(ctx context.Context, from, to string) error
	Remove(ctx context.Context, path string) error
	Pack(ctx context.Context, path string) ([]byte, error)
	Unpack(ctx context.Context, path string, tar []byte) error
}

// Place is where cases run.
type Place struct {
	Box Box
	Dir string // the box's working folder, as the box names it
	// Walls is false for a box that sees the host's files: cases that need walls
	// are then left out.
	Walls bool
	// Rarely divides how often a step is done that is to be done many times; 0 is 1.
	Rarely int
}

// patience is how long one call may take: one that waits for what never comes takes
// longer, and any other much less, on a busy host, too.
const patience = time.Minute

// Run runs every case at a place that open opens for it.
func Run(t *testing.T, open func(*testing.T) Place) {
	for _, c := range cases(t) {
		t.Run(c.name, func(t *testing.T) { c.run(t, open(t)) })
	}
}

// host is what a case must not get at.
type host struct {
	dir, file, secret string
	before            os.FileInfo
}

func newHost(t *testing.T) host {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "sunaba-api-canary-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := host{dir: dir, file: filepath.Join(dir, "secret"), secret: rand.Text()}
	if err := errors.Join(os.Chmod(dir, 0o777), os.WriteFile(h.file, []byte(h.secret), 0o666), os.Chmod(h.file, 0o666)); err != nil {
		t.Fatal(err)
	}
	if h.before, err = os.Stat(h.file); err != nil {
		t.Fatal(err)
	}
	return h
}

// untouched fails if the host's file or its folder is not what it was.
func (h host) untouched(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir(h.dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder on the host has %v (%v)", entries, err)
	}
	now, err := os.Lstat(h.file)
	if err != nil || !os.SameFile(now, h.before) || now.Mode() != h.before.Mode() || !now.ModTime().Equal(h.before.ModTime()) {
		t.Errorf("the file on the host was touched (%v)", err)
	}
	if b, err := os.ReadFile(h.file); string(b) != h.secret {
		t.Errorf("the file on the host says %.100q (%v)", b, err)
	}
}

// run runs a case.
func (c *testCase) run(t *testing.T, p Place) {
	if c.walls && !p.Walls {
		t.Skip("this case is about the host's files, and this place is on the host: run it on a tier with walls")
	}
	h := newHost(t)
	fill := strings.NewReplacer("$DIR", p.Dir, "$HOSTDIR", h.dir, "$HOST", h.file)
	shell := func(script string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
		defer cancel()
		out, err := p.Box.Shell(ctx, fill.Replace(script))
		if err != nil {
			t.Fatalf("the script in the box fails: %v\n%s", err, script)
		}
		return out
	}
	if c.sh != "" {
		shell(c.sh)
	}
	if c.meanwhile != "" {
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() {
			defer close(over)
			_, _ = p.Box.Shell(ctx, fill.Replace("while :; do "+c.meanwhile+"; done"))
		}()
		defer func() { stop(); <-over }()
	}
	for _, s := range c.steps {
		for i := range max(1, s.times/max(1, p.Rarely)) {
			if !s.do(t, p.Box, fill, h.secret) {
				t.Errorf("(time %d of %d)", i+1, s.times)
				break
			}
		}
	}
	if c.after != "" {
		if got := shell(c.after); got != c.want {
			t.Errorf("afterwards the box says %.300q, want %.300q", got, c.want)
		}
	}
	if got := shell("echo alive"); got != "alive\n" {
		t.Errorf("the box says %q", got)
	}
	h.untouched(t)
}

// do makes a step's call and judges it.
func (s step) do(t *testing.T, b Box, fill *strings.Replacer, secret string) bool {
	t.Helper()
	args := make([]string, len(s.args))
	for i, a := range s.args {
		args[i] = fill.Replace(a)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	began := time.Now()
	out, err := s.call(ctx, b, args)
	took := time.Since(began)
	said := fmt.Sprint(string(out), err)
	switch {
	case took >= patience:
		t.Errorf("%s took %v: %v", s.text, took, err)
	case strings.Contains(said, secret):
		t.Errorf("%s gave the host's secret away", s.text)
	case s.kinds == nil && s.any && (err == nil || !slices.Contains([]box.Kind{box.Fault, box.Unavailable, box.Unusable}, box.KindOf(err))):
		return true // it lands inside, or it is refused
	case err == nil && s.kinds != nil && !s.any:
		t.Errorf("%s succeeded with %.200q, want it to be %v", s.text, out, s.kinds)
	case err != nil && s.kinds == nil:
		t.Errorf("%s fails: %v", s.text, err)
	case err != nil && !s.has(box.KindOf(err)):
		t.Errorf("%s is %s (%v), want %v", s.text, box.KindOf(err), err, s.kinds)
	case err == nil && s.want != nil && !bytes.Contains(out, []byte(fill.Replace(*s.want))):
		t.Errorf("%s gave %.300q, want %q in it", s.text, out, *s.want)
	default:
		return true
	}
	return false
}
