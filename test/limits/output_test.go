package limits

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
)

func TestOutputLimitIsExactAndShared(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		const both = `head -c 60000 /dev/zero | tr "\0" a; head -c $0 /dev/zero | tr "\0" b >&2`
		flags := func(n string) []string {
			return []string{"--max-output", "100000", "--", "sh", "-c", both, n}
		}
		e := run(t, p, flags("40000")...)
		e.exited(t)
		if e.StdoutBytes != 60000 || e.StderrBytes != 40000 || e.Truncated {
			t.Errorf("exactly the limit: %d and %d bytes, truncated %v", e.StdoutBytes, e.StderrBytes, e.Truncated)
		}
		// The last byte may be counted after the program's own end.
		for range 3 {
			e = run(t, p, flags("40001")...)
			e.check(t, box.OutputLimit, 247, ended("max_output", "output counter"))
			// Either stream may be read first, so either may lose the byte.
			if !e.Truncated || e.Stdout == nil || e.Stderr == nil || len(*e.Stdout)+len(*e.Stderr) != 100000 {
				t.Errorf("one byte more: truncated %v, %d and %d bytes kept", e.Truncated, len(e.StdoutClean), len(e.StderrClean))
			}
		}
	})
}

// Output is complete, however soon the program ends after it.
func TestOutputIsCompleteAtTheEnd(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		for range 10 {
			e := python(t, p, `
import os, sys
b = (b"0123456789abcde\n" * 57600)[:900000]
while b:
    b = b[os.write(1, b):]
os._exit(0)`)
			e.exited(t)
			if len(e.stdout()) != 900000 || e.Truncated {
				t.Fatalf("%d of 900000 bytes came, truncated %v", len(e.stdout()), e.Truncated)
			}
		}
	})
}

// A slow reader gets everything, even what is still in the pipes when the
// program has long ended.
func TestSlowReaderLosesNothing(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		l := start(t, p, "--", "sh", "-c", `echo up; head -c 150000 /dev/zero | tr "\0" a; echo end >&2`)
		l.up(t)
		time.Sleep(time.Second)
		if got := l.wait(t, 0); len(got) != 150000 {
			t.Errorf("%d of 150000 bytes came", len(got))
		}
		if !strings.HasPrefix(l.errs.String(), "end\n") { // what is weak follows
			t.Errorf("stderr is %q", l.errs.String())
		}
	})
}

// A reader that does not read holds nothing open once the run is stopped.
func TestReaderThatDoesNotReadCannotHoldTheRun(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		side(t, "at a deadline", func(t *testing.T) {
			l := start(t, p, "--timeout", "10", "--grace", "0", "--max-output", "1g", "--", "sh", "-c", `echo up; exec yes`)
			l.up(t)
			l.over(t, 90*time.Second)
			l.wait(t, 244)
		})
		side(t, "at a signal", func(t *testing.T) {
			l := start(t, p, "--max-output", "1g", "--", "sh", "-c", `echo up; exec yes`)
			l.up(t)
			time.Sleep(100 * time.Millisecond)
			l.signal(t, os.Interrupt)
			l.over(t, 90*time.Second)
			l.wait(t, 250)
		})
		side(t, "but may pause for longer than the idle time", func(t *testing.T) {
			l := start(t, p, "--idle", "8", "--", "sh", "-c", `echo up; head -c 300000 /dev/zero`)
			l.up(t)
			time.Sleep(12 * time.Second)
			if got := l.wait(t, 0); len(got) != 300000 {
				t.Errorf("%d of 300000 bytes came", len(got))
			}
		})
		side(t, "that has gone", func(t *testing.T) {
			l := start(t, p, "--timeout", "60", "--", "sh", "-c", `echo up; exec yes`)
			l.up(t)
			l.pipe.Close()
			l.wait(t, 250)
		})
	})
}

// The run ends with the program, not with whoever else holds its output.
func TestBackgroundChildDoesNotHoldTheRun(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		for _, code := range []string{
			`sleep 999 & echo done`,
			`setsid sleep 999 & echo done`,
			`(trap "" TERM HUP; while :; do sleep 1; done) & echo done`,
		} {
			e := shell(t, p, code, "--timeout", "110")
			e.exited(t)
			if e.stdout() != "done\n" || e.Usage.WallSeconds > 60 {
				t.Errorf("%s: %q after %gs", code, e.stdout(), e.Usage.WallSeconds)
			}
		}
		// One that finishes its line is heard. It has a tenth of a second for that: it
		// is up before, and has nothing to do but to hand the line on.
		e := run(t, p, "--", "bash", "-c", `exec > >(cat); echo in two lines,; sleep 1; echo through a pipe`)
		e.exited(t)
		if e.stdout() != "in two lines,\nthrough a pipe\n" {
			t.Errorf("output through another process: %q", e.stdout())
		}
		// One that has endlessly much to say is cut off. It may have reached
		// the limit before the program's end: that is then the cause.
		e = shell(t, p, `(sleep 0.3; exec yes) & (sleep 0.3; exec yes >&2) & sleep 0.3; echo done`, "--timeout", "110", "--max-output", "20m")
		if e.Cause != box.Exited && e.Cause != box.OutputLimit || e.Usage.WallSeconds > 60 {
			t.Errorf("ended by %s after %gs", e.Cause, e.Usage.WallSeconds)
		}
	})
}

func TestInputThatIsNotRead(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		big := strings.Repeat("x", 100<<20)
		for code, want := range map[string]string{
			`echo done`:                             "done\n", // never reads
			`head -c 5; exec 0<&-; echo; echo done`: "xxxxx\ndone\n",
			`head -c 3000000 | wc -c`:               "3000000\n",
		} {
			e := pipeIn(t, p, big, "--", "sh", "-c", code)
			e.exited(t)
			if e.stdout() != want {
				t.Errorf("%s: %q", code, e.stdout())
			}
		}
		e := pipeIn(t, p, "", "--", "sh", "-c", `wc -c`)
		e.exited(t)
		if e.stdout() != "0\n" {
			t.Errorf("empty input: %q", e.stdout())
		}
	})
}

func pipeIn(t *testing.T, p place, stdin string, args ...string) end {
	t.Helper()
	return p.ended(t, harness.RunIn(t, p.user, "/", stdin, p.run(append([]string{"-o", "json"}, args...)...)...), args)
}

// The front holds no more of the output than it has to, in either form.
func TestEndlessOutputDoesNotGrowTheFront(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		for _, format := range []string{"text", "json"} {
			quiet := peak(t, p, 0, "-o", format, "--", "sh", "-c", `head -c 5000 /dev/zero | tr "\0" a`)
			loud := peak(t, p, 247, "-o", format, "--", "yes")
			if grown := loud - quiet; grown >= 8<<10 {
				t.Errorf("-o %s: `yes` made the front grow by %d KiB, from %d", format, grown, quiet)
			}
		}
	})
}

// peak is the most memory that the front ever held, in KiB: VmHWM, read while
// it lives. Its output goes through a pipe of one page, so that it cannot end,
// with more than that to say, before we have looked.
func peak(t *testing.T, p place, code int, args ...string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := harness.Command(ctx, t, p.user, p.run(args...)...)
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	const setPipeSize = 1031 // F_SETPIPE_SZ, fcntl(2)
	if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, w.Fd(), setPipeSize, 4096); errno != 0 {
		t.Fatal(errno)
	}
	cmd.Stdout = w
	err = cmd.Start()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	most := 0
	buf := make([]byte, 4096)
	for {
		n, err := out.Read(buf)
		most = max(most, highWater(cmd))
		if n == 0 || err != nil {
			break
		}
	}
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("%v ended with %d, want %d", args, got, code)
	}
	return most
}

func highWater(cmd *exec.Cmd) int {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/status")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(b) {
		if f := strings.Fields(string(line)); len(f) == 3 && f[0] == "VmHWM:" {
			n, _ := strconv.Atoi(f[1])
			return n
		}
	}
	return 0
}
