package process

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

func TestAnEmptyRunHasWrittenNothing(t *testing.T) {
	tier := newTier(t)
	res, _ := run(t, tier, spec(), "true")
	if res.Usage.Written != 0 {
		t.Errorf("true wrote %d bytes", res.Usage.Written)
	}
	res, _ = run(t, tier, spec(), "head -c 1000000 /dev/zero > /workspace/f")
	if w := res.Usage.Written; w < 1000000 || w > 1100000 {
		t.Errorf("a program that wrote 1000000 bytes wrote %d", w)
	}
}

// The time namespace is entered by what a program of the box executes, whichever
// thread of the cell built the rest.
func TestProgramsHaveATimeNamespaceOfTheBoxesOwn(t *testing.T) {
	tier := newTier(t)
	b, err := tier.Create(t.Context(), spec())
	if err != nil {
		t.Fatal(err)
	}
	defer gone(t, tier, b)
	host, err := os.Readlink("/proc/self/ns/time")
	if err != nil {
		t.Fatal(err)
	}
	first := ""
	for i := range 5 {
		var out bytes.Buffer
		if _, err := b.Run(t.Context(), box.Command{Argv: []string{"readlink", "/proc/self/ns/time", "/proc/self/ns/time_for_children"}}, box.Streams{Stdout: &out}); err != nil {
			t.Fatal(err)
		}
		own, children, _ := strings.Cut(strings.TrimSpace(out.String()), "\n")
		if i == 0 {
			first = own
		}
		if !strings.HasPrefix(own, "time:[") || own == host || own != first || children != own {
			t.Errorf("program %d is in %q, its children in %q; the first was in %q, the host is in %q", i, own, children, first, host)
		}
	}
}

// The cell has what threads it needs from the start: whatever it does later, a
// program finds room for exactly as many tasks as before.
func TestTheCellGetsNoMoreThreads(t *testing.T) {
	tier := newTier(t)
	s := spec()
	s.Limits.Processes = 20
	b, err := tier.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer gone(t, tier, b)
	threads := func() int {
		dir, err := os.ReadDir("/proc/" + pidOf(b) + "/task")
		if err != nil {
			t.Fatal(err)
		}
		return len(dir)
	}
	before := threads()
	if want := int(b.(*pbox).cell.Tasks); before != want {
		t.Errorf("the cell has %d threads and says %d", before, want)
	}
	done := make(chan error)
	for range 8 {
		go func() {
			for range 20 {
				if _, err := b.Run(t.Context(), box.Command{Argv: []string{"true"}}, box.Streams{}); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if after := threads(); after != before {
		t.Errorf("the cell had %d threads and has %d", before, after)
	}
}

// What runs on in the background has no caller to be told: the box ends it.
func TestMemoryIsBoundedBetweenRuns(t *testing.T) {
	tier := newTier(t)
	b, err := tier.Create(t.Context(), spec())
	if err != nil {
		t.Fatal(err)
	}
	defer gone(t, tier, b)
	start := box.Command{Argv: []string{"sh", "-c", `setsid python3 -c 'import time; time.sleep(0.3); x=bytearray(512<<20); time.sleep(600)' >/dev/null 2>&1 &`}}
	if _, err := b.Run(t.Context(), start, box.Streams{}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		all, err := os.ReadDir("/proc/" + pidOf(b) + "/root/proc")
		if err != nil {
			t.Fatal(err)
		}
		others := 0
		for _, e := range all {
			if n := e.Name(); strings.Trim(n, "0123456789") == "" && n != "1" {
				others++
			}
		}
		if others == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d programs run on", others)
		}
	}
}

// What became of one run is not told of the next.
func TestEachRunHasItsOwnAccount(t *testing.T) {
	tier := newTier(t)
	b, err := tier.Create(t.Context(), spec())
	if err != nil {
		t.Fatal(err)
	}
	defer gone(t, tier, b)
	for _, c := range []struct {
		code  string
		cause box.Cause
		limit string
	}{
		{"import os, time\ntry:\n  while True:\n    if os.fork() == 0: time.sleep(600)\nexcept OSError: " + holdTasks(tier) + "\nos.kill(-1, 9)\nos.kill(os.getpid(), 9)", box.Signaled, "max_processes"},
		{"pass", box.Exited, ""},
		{"x = bytearray(512 << 20)\nimport time; time.sleep(60)", box.OutOfMemory, "memory"},
		{"pass", box.Exited, ""},
	} {
		input := newTold()
		res, err := b.Run(t.Context(), box.Command{Argv: []string{"python3", "-c", c.code}}, box.Streams{Stdin: input, OnLimit: input.hear})
		if err != nil {
			t.Fatal(err)
		}
		if res.Cause == box.Lost && c.limit == "" {
			return // in control groups of version 2 the kernel ended the whole box
		}
		var limits []string
		for _, l := range res.Limits {
			limits = append(limits, l.Limit)
		}
		if res.Cause != c.cause || strings.Join(limits, " ") != c.limit {
			t.Errorf("%s: ended by %s, limits %v, want %s and %q", c.code, res.Cause, limits, c.cause, c.limit)
		}
	}
}
