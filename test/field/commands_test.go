package field

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
)

// A background command was gone when its user came back two minutes later.
func TestALimitThatWasNotAskedForIsVisibleAndZeroIsNone(t *testing.T) {
	eachTier(t, func(c *client) {
		b := c.make(nil)
		if p := c.start(b, "sleep 100", nil); p.TimeoutSec != 60 {
			c.t.Errorf("the limit in force is said to be %v s", p.TimeoutSec)
		}
		if p := c.start(b, "sleep 100", map[string]any{"timeout_sec": 0}); p.TimeoutSec != 0 {
			c.t.Errorf("no limit was asked for, and there is one of %v s", p.TimeoutSec)
		}
		e := c.exec(b, "trap '' TERM; sleep 100", map[string]any{"timeout_sec": 0.3})
		if e.Cause != "deadline" || !e.TimedOut || e.ExitCode != nil || !strings.Contains(e.Message, "0.3 s (timeout_sec)") {
			c.t.Errorf("%+v", e)
		}
	})
}

// A command that was started before is found again by number and by tag, with
// all that it wrote.
func TestAProgramIsFoundAgainAfterTheConnectionIsGone(t *testing.T) {
	eachTier(t, func(c *client) {
		b := c.make(nil)
		p := c.start(b, "i=0; while [ $i -lt 40 ]; do echo line $i; i=$((i+1)); sleep 0.02; done; exit 5", map[string]any{"tag": "job", "timeout_sec": 0})
		var got bytes.Buffer
		last, n := "", 0
		for _, path := range []string{fmt.Sprint(b, "/processes/", p.PID, "/output"), b + "/processes/tag:job/output"} {
			if err := c.stream(c.t.Context(), "GET", path, last, nil, func(e event) bool {
				if e.Name == "stdout" {
					got.Write(e.bytes())
					last = e.ID
					n++
				}
				if e.Name == "end" && (e.Data.ExitCode == nil || *e.Data.ExitCode != 5) {
					c.t.Errorf("end %+v", e.Data)
				}
				return n != 7 // the first is cut
			}); err != nil {
				c.t.Fatal(err)
			}
			n = 100
		}
		var want strings.Builder
		for i := range 40 {
			fmt.Fprintln(&want, "line", i)
		}
		if got.String() != want.String() {
			c.t.Errorf("got %q", got.String())
		}
	})
}

// After reconnecting, output stopped at about 8 KB: whatever its size, and however
// often the stream is cut, every byte comes once.
func TestAStreamThatIsCutAgainAndAgainGivesEveryByteOnce(t *testing.T) {
	eachTier(t, func(c *client) {
		b := c.make(nil)
		const size = 3_000_000
		p := c.start(b, fmt.Sprintf(`python3 -c 'import sys
for i in range(%d): sys.stdout.write("%%07d\n" %% i)'`, size/8), map[string]any{"timeout_sec": 0})
		var got []byte
		last, ended := "", false
		for cuts := 0; !ended && cuts < 100; cuts++ {
			taken := 0
			if err := c.stream(c.t.Context(), "GET", fmt.Sprint(b, "/processes/", p.PID, "/output"), last, nil, func(e event) bool {
				switch e.Name {
				case "stdout":
					if e.Data.At != int64(len(got)) {
						c.t.Fatalf("cut %d: at %d, had %d", cuts, e.Data.At, len(got))
					}
					got = append(got, e.bytes()...)
					taken += len(e.bytes())
					last = e.ID
				case "end":
					ended = true
				case "error":
					c.t.Fatalf("%+v", e.Data)
				}
				return taken < 200_000
			}); err != nil {
				c.t.Fatal(err)
			}
		}
		if len(got) != size {
			c.t.Fatalf("%d bytes of %d", len(got), size)
		}
		for i := range size / 8 {
			if string(got[i*8:i*8+8]) != fmt.Sprintf("%07d\n", i) {
				c.t.Fatalf("line %d is %q", i, got[i*8:i*8+8])
			}
		}
	})
}

// Output arrived only at the end.
func TestOutputComesAsItIsWritten(t *testing.T) {
	eachTier(t, func(c *client) {
		b := c.make(nil)
		first, told := false, ""
		if err := c.stream(c.t.Context(), "POST", b+"/exec", "", map[string]any{"command": []string{"python3", "-c", "print('first'); import time; time.sleep(3000)"}, "timeout_sec": 0}, func(e event) bool {
			if e.Name == "stdout" {
				told += string(e.bytes())
			}
			first = told == "first\n"
			if e.Name == "end" {
				c.t.Errorf("it ended before its output came: %+v", e.Data)
			}
			return !first // and the caller goes away
		}); err != nil || !first {
			c.t.Fatal(err, first)
		}
		// A caller that goes away ends its foreground program.
		within(c.t, "the program ends", func() bool {
			return c.exec(b, "pgrep -f 'time.sleep[(]3000' || true", nil).Stdout == ""
		})
	})
}

// A stream ended with an invented exit code 0 while the program ran.
func TestAnEndThatNobodySawIsNeverASuccess(t *testing.T) {
	eachTier(t, func(c *client) {
		b := c.make(nil)
		ctx, cancel := context.WithTimeout(c.t.Context(), patience)
		defer cancel()
		begun := make(chan struct{})
		done := make(chan error, 1)
		var seen []string
		go func() {
			done <- c.stream(ctx, "POST", b+"/exec", "", map[string]any{"shell": "echo begun; sleep 3000", "timeout_sec": 0}, func(e event) bool {
				seen = append(seen, e.Name)
				switch e.Name {
				case "stdout":
					close(begun)
				case "end":
					c.t.Errorf("an end was told: %+v", e.Data)
				}
				return true
			})
		}()
		select {
		case <-begun:
		case err := <-done:
			c.t.Fatal(err, seen)
		}
		c.Must("DELETE", b, nil, nil)
		if err := <-done; ctx.Err() != nil {
			c.t.Errorf("no end of the stream in %v: %v", patience, seen)
		} else if err == nil && (len(seen) == 0 || seen[len(seen)-1] != "error") {
			c.t.Errorf("the stream ended as if all were well: %v", seen)
		}
		// Two of its kind: the time limit of a box, and a box that dies by itself.
	})
}

// A detached command never returned; a background child that keeps the output
// open must not keep its parent's end.
func TestWhatRunsInTheBackgroundDoesNotHoldTheCaller(t *testing.T) {
	eachTier(t, func(c *client) {
		b := c.make(nil)
		// Who waits for the child waits until the time limit, which is told.
		e := c.exec(b, "sleep 3000 & echo started", map[string]any{"timeout_sec": 60})
		if e.Stdout != "started\n" || e.Cause != "exited" {
			c.t.Errorf("%+v", e)
		}
		// It may not have come to its program yet: a shell is what it is before.
		if e = c.exec(b, "until pgrep -f '^sleep 3000' >/dev/null; do sleep 0.1; done; echo there", map[string]any{"timeout_sec": 100}); e.Stdout != "there\n" {
			c.t.Errorf("the child is gone: %+v", e)
		}
	})
}

// Memory was out, and the box was gone or the exit code was 0 or 137: the program
// is ended, told as that, and the box is there.
func TestOutOfMemoryIsTheProgramsEndAndIsToldAsThat(t *testing.T) {
	eachTier(t, func(c *client) {
		b := c.make(nil)
		other := c.start(b, "sleep 3000", map[string]any{"timeout_sec": 0})
		for range 2 {
			e := c.exec(b, `python3 -c 'a=[]
while 1: a.append(bytearray(1<<20))'`, map[string]any{"timeout_sec": 100})
			if e.Cause != "outofmemory" {
				c.t.Errorf("%+v", e)
			}
		}
		if e := c.exec(b, "echo alive", nil); e.Stdout != "alive\n" {
			c.t.Errorf("%+v", e)
		}
		if p := c.process(b, other.PID); p.End != nil {
			c.t.Errorf("another program ended with it: %+v", p.End)
		}
		i := c.inspect(b)
		if len(i.Limits) == 0 || i.Limits[0].Limit != "memory" {
			c.t.Errorf("the box does not say that memory was met: %+v", i)
		}
	})
}

// Ctrl-C, Ctrl-Z and resizing were broken in the safe mode.
func TestATerminalIsOne(t *testing.T) {
	eachTier(t, func(c *client) {
		b := c.make(nil)
		p := c.start(b, "trap 'echo got INT' INT; trap 'stty size' WINCH; stty size; while :; do sleep 0.1; done", map[string]any{"tty": map[string]any{"rows": 30, "cols": 100}, "timeout_sec": 0})
		path := fmt.Sprint(b, "/processes/", p.PID)
		var all strings.Builder
		stage := 0
		ctx, cancel := context.WithTimeout(c.t.Context(), patience)
		defer cancel()
		if err := c.stream(ctx, "GET", path+"/output", "", nil, func(e event) bool {
			all.Write(e.bytes())
			switch s := all.String(); {
			case stage == 0 && strings.Contains(s, "30 100"):
				stage = 1
				c.Must("POST", path+"/resize", map[string]any{"rows": 40, "cols": 120}, nil)
			case stage == 1 && strings.Contains(s, "40 120"):
				stage = 2
				c.Must("POST", path+"/input", map[string]any{"at": 0, "data": "\x03"}, nil)
			case stage == 2 && strings.Contains(s, "got INT"):
				stage = 3
				c.Must("POST", path+"/signal", map[string]any{"signal": "KILL", "group": true}, nil)
			}
			return true
		}); err != nil || stage != 3 {
			c.t.Errorf("%v, stage %d, %q", err, stage, all.String())
		}
	})
}
