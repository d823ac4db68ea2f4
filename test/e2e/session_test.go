package e2e

import (
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// A program that says that it is there and waits for a signal. It looks for one
// again and again: one that comes just before pause(2) would not end that.
const waits = `python3 -c 'import time; print("rea" + "dy", flush=True); [time.sleep(.05) for _ in iter(int, 1)]'`

func TestAShellIsAtHome(t *testing.T) {
	harness.EachUserAndTier(t, func(t *testing.T, u harness.User) {
		harness.NothingLeft(t)
		p := sit(t, u, nil, "run", "--", "bash")
		p.sees("$ ")
		p.types("test -t 0 && test -t 1 && test -t 2 && echo a-ter''minal\r")
		p.sees("a-terminal\r\n")
		p.types("stty size; echo TERM is $TERM; echo direct''ly > /dev/tty\r")
		p.sees("40 100\r\n")
		p.sees("TERM is screen-256color\r\n")
		p.sees("directly\r\n")
		p.types("tty; echo by-na''me > /dev/stderr\r")
		if u.IsTrusting() { // gVisor's has no name
			p.sees("/dev/pts/0\r\n")
		}
		p.sees("by-name\r\n")
		p.types("echo abX\x7fc$((1+1))\r") // line editing
		p.sees("abc2\r\n")

		// Keys become signals for what is in the foreground.
		p.types(waits + "\r")
		p.sees("ready\r\n")
		p.types("\x03")
		p.sees("KeyboardInterrupt")
		p.sees("$ ")
		p.types("echo code $?\r")
		p.sees("code 130\r\n")
		p.types(waits + "\r")
		p.sees("ready\r\n")
		p.types("\x1a")
		p.sees("Stopped")
		p.types("bg; kill %1; wait; echo gon''e\r")
		p.sees("gone\r\n")
		p.types(waits + "\r")
		p.sees("ready\r\n")
		p.types("\x1a")
		p.sees("Stopped")
		p.types("kill -9 %%; disown -a; exit 42\r")
		p.leaves(42)
	})
}

func TestAShellEndsWithItsInput(t *testing.T) {
	harness.EachUserAndTier(t, func(t *testing.T, u harness.User) {
		harness.NothingLeft(t)
		p := sit(t, u, nil, "run", "-t", "--", "bash", "--norc")
		p.sees("$ ")
		p.types("\x04")
		p.leaves(0)
	})
}

func TestTheSizeFollowsTheTerminal(t *testing.T) {
	harness.EachUserAndTier(t, func(t *testing.T, u harness.User) {
		harness.NothingLeft(t)
		p := sit(t, u, nil, "run", "--", "bash")
		p.sees("$ ")
		p.types(`python3 -c 'import os, signal, time
signal.signal(signal.SIGWINCH, lambda *_: print("size", *os.get_terminal_size(), flush=True))
print("rea" + "dy", flush=True)
while True: time.sleep(.05)'` + "\r")
		p.sees("ready\r\n")
		if err := host.ResizePTY(p.screen, box.WindowSize{Rows: 50, Cols: 132}); err != nil {
			t.Fatal(err)
		}
		p.sees("size 132 50\r\n")
		p.types("\x1c") // Ctrl-\
		p.sees("Quit")
		p.sees("$ ")
		p.types("exit\r")
		p.leaves(131)
	})
}

func TestALineIsEditedByTheTerminal(t *testing.T) {
	harness.NothingLeft(t)
	p := sit(t, harness.Users()[0], nil, "run", "-t", "--", "sh", "-c", "echo ready; cat; echo end")
	p.sees("ready\r\n")
	p.types("aü\x7fb\x17whole\r") // delete a character of two bytes, then the word
	p.sees("whole\r\n")           // the echo
	p.sees("whole\r\n")           // the line, when it is done
	p.types("\x04")
	p.sees("end\r\n")
	if out := p.leaves(0); strings.Contains(out, "\xc3\r") {
		t.Errorf("half a character is left: %q", out)
	}
}

func TestASecondInterruptEndsTheBox(t *testing.T) {
	harness.EachUserAndTier(t, func(t *testing.T, u harness.User) {
		harness.NothingLeft(t)
		p := sit(t, u, nil, "run", "--timeout", "600", "-t", "--", "python3", "-c", `import signal, time
signal.signal(signal.SIGINT, lambda *_: print("inter" + "rupted", flush=True))
print("rea" + "dy", flush=True)
while True: time.sleep(.05)`)
		p.sees("ready\r\n")
		p.types("\x03")
		p.sees("interrupted\r\n") // the first is the program's
		p.types("\x03\x03")       // however long that took
		if out := p.leaves(250); !strings.HasSuffix(out, "\nsunaba: the run was ended: canceled\r\n") && !strings.Contains(out, "canceled\r\nsunaba: not firm") {
			t.Errorf("the screen ends with %q", out)
		}
	})
}

func TestTheTerminalIsRestoredWhateverHappens(t *testing.T) {
	harness.EachUserAndTier(t, func(t *testing.T, u harness.User) {
		for name, c := range map[string]struct {
			code int
			end  func(p *typist)
		}{
			"terminated": {250, func(p *typist) { _ = p.cmd.Process.Signal(syscall.SIGTERM) }},
			"hung up":    {250, func(p *typist) { _ = p.cmd.Process.Signal(syscall.SIGHUP) }},
			"box killed": {251, func(p *typist) { kill(p.t, runnerOf(p.t, p.cmd.Process.Pid)) }},
			"exited":     {7, func(p *typist) { p.types("\x04") }},
		} {
			t.Run(name, func(t *testing.T) {
				harness.NothingLeft(t)
				// The program changes what it can: modes, the screen, colours.
				p := sit(t, u, nil, "run", "-t", "--", "sh", "-c",
					`stty -icanon -echo; stty sane; printf '\033[?1049h\033[?25l\033[31m\033[4h\033(0ready\n'; cat; exit 7`)
				p.sees("ready\r\n")
				c.end(p)
				out := p.leaves(c.code)
				for _, undo := range []string{"\x1b[?1049l", "\x1b[?25h", "\x1b[m", "\x1b[4l", "\x1b(B"} {
					if !strings.Contains(out[strings.Index(out, "ready"):], undo) {
						t.Errorf("%q is not on the screen: %q", undo, out)
					}
				}
			})
		}
	})
}

func TestASessionShowsWhatItMayNotDo(t *testing.T) {
	harness.NothingLeft(t)
	p := sit(t, harness.Users()[0], nil, "run", "-t", "--", "printf",
		`\033]0;title\a \033[31mred\033[0m \033]52;c;aGk=\a \033[c \033[6n \033P$q\033\\ \033[21t \302\2330m \u202e \U000e0041 end`)
	p.sees(`end`)
	out := p.leaves(0)
	for _, want := range []string{"\x1b[31mred\x1b[0m", `\x1b]0;title` + "\a", `\x1b]52;c;aGk=` + "\a", `\x1b[c`, `\x1b[6n`, `\x1bP$q`, `\x1b[21t`, `\u{9b}0m`, `\u{202e}`, `\u{e0041}`} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not on the screen: %q", want, out)
		}
	}
	for _, bad := range []string{"\x1b]", "\x1bP", "\x1b[c", "\x1b[6n", "\u009b", "\u202e", "\U000e0041"} {
		if strings.Contains(out, bad) {
			t.Errorf("%q reached the screen: %q", bad, out)
		}
	}
}

func TestATerminalWithoutATypist(t *testing.T) {
	harness.EachUserAndTier(t, func(t *testing.T, u harness.User) {
		harness.NothingLeft(t)
		r := harness.RunIn(t, u, "/", "tty -s || echo none; stty size; echo $((40+2))\nexit 3\n", "run", "-t", "--", "bash")
		if r.Code != 3 || !strings.Contains(r.Stdout, "24 80\r\n42\r\n") {
			t.Errorf("exit code %d, %q\n%s", r.Code, r.Stdout, r.Stderr)
		}
		// The end of input is typed as a person does it.
		r = harness.RunIn(t, u, "/", "one\n", "run", "-t", "--", "sh", "-c", "cat; echo end")
		if r.Code != 0 || !strings.HasSuffix(r.Stdout, "end\r\n") {
			t.Errorf("exit code %d, %q\n%s", r.Code, r.Stdout, r.Stderr)
		}
		r = harness.RunIn(t, u, "/", "", "run", "-o", "json", "-t", "--", "sh", "-c", "test -t 1 && echo yes; echo also >&2")
		if _, err := document(r.Stdout); err != nil {
			t.Fatal(err)
		}
		if rep := r.JSON(t); rep.Stdout == nil || *rep.Stdout != "yes\r\nalso\r\n" || rep.Stderr == nil || *rep.Stderr != "" {
			t.Errorf("the report is %s", whole(rep))
		}
	})
}

func TestASessionWithItsOutputInAFile(t *testing.T) {
	harness.NothingLeft(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := sit(t, harness.Users()[0], map[int]*os.File{1: w}, "run", "-t", "--", "sh", "-c", `stty size; printf '\033]0;x\a\n'; read x; exit 9`)
	w.Close()
	out := make([]byte, len("40 100\r\n\x1b]0;x\a\r\n"))
	for n := 0; n < len(out); {
		k, err := r.Read(out[n:])
		if err != nil {
			t.Fatalf("the file got %q: %v; the screen: %q", out[:n], err, p.leaves(9))
		}
		n += k
	}
	if string(out) != "40 100\r\n\x1b]0;x\a\r\n" {
		t.Errorf("the file got %q", out)
	}
	p.types("\r")
	p.leaves(9)
}

func TestASessionHasRoomForOutput(t *testing.T) {
	harness.NothingLeft(t)
	u := harness.Users()[0]
	p := sit(t, u, nil, "run", "-t", "--", "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end")
	p.sees("end\r\n")
	p.leaves(0)
	p = sit(t, u, nil, "run", "--max-output", "1m", "-t", "--", "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end")
	p.leaves(247)
}

func TestAPersonAtATerminalHasTime(t *testing.T) {
	for want, args := range map[float64][]string{0: nil, 7: {"--timeout", "7"}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		p := sit(t, harness.Users()[0], map[int]*os.File{1: w}, append(append([]string{"run", "-o", "json"}, args...), "-t", "--", "true")...)
		w.Close()
		out, err := io.ReadAll(r)
		r.Close()
		p.leaves(0)
		if err != nil {
			t.Fatal(err)
		}
		if rep := (harness.Result{Stdout: string(out)}).JSON(t); rep.Policy.Limits.TimeoutSec != want {
			t.Errorf("%v: time limit is not %v: %s", args, want, whole(rep))
		}
	}
}
