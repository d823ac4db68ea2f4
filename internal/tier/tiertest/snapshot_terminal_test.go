package tiertest

import (
	"fmt"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
)

// A program on a terminal is on a terminal of the copy's: with its size and modes, what
// is typed, and who is in its foreground.
func TestATerminalGoesOnInCopies(t *testing.T) {
	p := newPlace(t, box.TierGvisor)
	made := memorySpec()
	b := p.create(t, made)
	g := use(t, b)
	pr, err := g.Start(t.Context(), box.ProcessSpec{Command: box.Command{
		Argv: []string{"bash", "--norc", "--noediting"}, Env: []string{"PATH=/usr/bin:/bin", "PS1=$ ", "TERM=vt100"}, TTY: &box.WindowSize{Rows: 33, Cols: 99},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var at int64
	typed := func(t *testing.T, g box.Guest, at int64, line, want string) int64 {
		t.Helper()
		if _, err := g.Input(t.Context(), box.ProcessRef{PID: pr.PID}, box.Input{At: at, Data: []byte(line)}); err != nil {
			t.Fatal(err)
		}
		says(t, g, pr.PID, want)
		return at + int64(len(line))
	}
	at = typed(t, g, at, "stty -echo; x=kept; echo size=$(stty size)\n", "size=33 99\r\n")
	at = typed(t, g, at, "sh -c 'echo begun; exec sleep 1000'\n", "begun\r\n") // who says so is in the foreground
	leave(t, g)
	s := p.copyMemory(t, b)
	boxes := []box.Lasting{b, p.restore(t, made, s), p.restore(t, made, s)}
	for i, c := range boxes {
		g, at := use(t, c), at
		size := box.WindowSize{Rows: uint16(40 + i), Cols: 80}
		if err := g.Resize(t.Context(), box.ProcessRef{PID: pr.PID}, size); err != nil {
			t.Errorf("box %d: %v", i, err)
		}
		at = typed(t, g, at, "\x03", "begun\r\n\r\n$ ") // SIGINT to the foreground
		at = typed(t, g, at, fmt.Sprintf("echo $x %d $(stty size) $(stty -a | grep -o -- '-echo ') $(tty)\n", i), fmt.Sprintf("kept %d %d 80 -echo /dev/pts/0\r\n", i, 40+i))
		typed(t, g, at, "exit 7\n", "exit\r\n")
		if end, _ := ended(t, g, pr.PID); end.Cause != box.Exited || end.ExitCode != 7 {
			t.Errorf("box %d: %+v", i, end)
		}
		again, err := g.Start(t.Context(), box.ProcessSpec{Command: box.Command{Argv: []string{"sh", "-c", "test -t 0 && stty size"}, Env: []string{"PATH=/usr/bin:/bin"}, TTY: &box.WindowSize{Rows: 5, Cols: 6}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, out := ended(t, g, again.PID); out != "5 6\r\n" {
			t.Errorf("box %d: a new terminal: %q", i, out)
		}
		p.destroy(t, c)
	}
	p.empty(t)
}
