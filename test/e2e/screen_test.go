package e2e

import (
	"io"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/test/harness"
)

func TestATerminalIsShownWhatItWouldObey(t *testing.T) {
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		harness.NothingLeft(t)
		const hostile = `\033]0;title\a\033[31mred \302\2330m \u202e \U000e0041 \r end\n`
		for _, to := range []string{"", " >&2"} {
			p := sit(t, u, nil, "run", "--", "sh", "-c", `/usr/bin/printf '`+hostile+`'`+to)
			p.sees("end\r\n")
			out := p.leaves(0)
			if want := `\x1b]0;title\x07\x1b[31mred \u{9b}0m \u{202e} \u{e0041} \r end`; !strings.Contains(out, want) {
				t.Errorf("the screen shows %q", out)
			}
			if bad := regexp.MustCompile("\x1b[^[]|\x1b\\[[^K]|\a|\u009b|\u202e|\U000e0041").FindString(out); bad != "" {
				t.Errorf("%q reached the screen: %q", bad, out)
			}
		}
	})
}

func TestErrorsShowNamesSafely(t *testing.T) {
	p := sit(t, harness.Users()[0], nil, "run", "x\x1b]0;title\a\u202e.py")
	p.sees(`sunaba: cannot find file x\x1b]0;title\x07\u{202e}.py`)
	p.leaves(240)
}

func TestInterruptEndsARunAtATerminal(t *testing.T) {
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		harness.NothingLeft(t)
		p := sit(t, u, nil, "run", "--timeout", "600", "--", "sh", "-c", "trap '' INT; echo ready; sleep 500; sleep 500")
		p.sees("ready\r\n")
		p.types("\x03")
		if out := p.leaves(250); !strings.Contains(out, "\r\nsunaba: the run was ended: canceled\r\n") {
			t.Errorf("the screen shows %q", out)
		}
	})
}

func TestInterruptBeforeTheProgramRuns(t *testing.T) {
	harness.NothingLeft(t)
	// A session takes the terminal only when its program runs: before that one
	// key is enough, and after it the second one does it. In between the first may
	// end a program that has not come to its trap: that was typed too late.
	for end := time.Now().Add(patience); ; {
		p := sit(t, harness.Users()[0], nil, "run", "--timeout", "600", "-t", "--", "sh", "-c", "trap '' INT; read x")
		if err := await(p.done, func() bool { return firstOf(p.cmd.Process.Pid) != 0 }); err != nil {
			t.Fatalf("no box was found: %v", err)
		}
		p.types("\x03\x03\x03")
		p.ends()
		if late := p.cmd.ProcessState.ExitCode() == 128+int(syscall.SIGINT); !late || time.Now().After(end) {
			p.leaves(250)
			return
		}
	}
}

func TestProgressIsShownAndTakenAway(t *testing.T) {
	harness.NothingLeft(t)
	// Only standard error is the terminal.
	in, feed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer feed.Close()
	p := sit(t, harness.Users()[0], map[int]*os.File{0: in}, "run", "--", "sh", "-c", "read x; echo done; read x")
	in.Close()
	p.sees("s] running") // after a second or more
	io.WriteString(feed, "\n")
	p.sees("\r\x1b[Kdone\r\n") // it gives way
	p.sees("s] running")       // and comes back
	feed.Close()
	out := p.leaves(1)
	if strings.Contains(out, "[0s]") {
		t.Errorf("it came before a second had passed: %q", out)
	}
	if i := strings.LastIndex(out, "running"); !strings.Contains(out[i:], "\r\x1b[K") {
		t.Errorf("it is left on the screen: %q", out)
	}
}

func TestProgressIsForTerminalsOnly(t *testing.T) {
	harness.NothingLeft(t)
	r := harness.Run(t, harness.Users()[0], "run", "--", "sh", "-c", "sleep 1.6; echo done")
	if r.Stdout != "done\n" || strings.Contains(r.Stderr, "running") {
		t.Errorf("stdout %q, stderr %q", r.Stdout, r.Stderr)
	}
	// Nor does it get into a session.
	p := sit(t, harness.Users()[0], nil, "run", "-t", "--", "sh", "-c", "echo one; sleep 1.6; echo two")
	p.sees("two\r\n")
	if out := p.leaves(0); strings.Contains(out, "running") || !strings.Contains(out, "one\r\ntwo\r\n") {
		t.Errorf("the screen shows %q", out)
	}
}

func TestOneStreamMayBeATerminal(t *testing.T) {
	harness.NothingLeft(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	const both = `printf '\033]0;out\a\n'; printf '\033]0;err\a\n' >&2`
	p := sit(t, harness.Users()[0], map[int]*os.File{1: w}, "run", "--", "sh", "-c", both)
	w.Close()
	p.sees(`\x1b]0;err\x07`)
	out, err := io.ReadAll(r)
	if err != nil || string(out) != "\x1b]0;out\a\n" {
		t.Errorf("the pipe got %q, %v", out, err)
	}
	p.leaves(0)
}

func TestARunInTheBackgroundDoesNotStop(t *testing.T) {
	harness.NothingLeft(t)
	// Reading from the terminal would stop it, and its clock with it.
	p := sitWith(t, shell(t, harness.Users()[0], `exec bash -m -c '"$0" run -- sh -c "cat; echo done" & wait $!; echo code $?' "$0"`), nil)
	p.sees("done\r\n")
	p.sees("code 0\r\n")
	p.leaves(0)
}
