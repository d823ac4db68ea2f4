package e2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// typist is a person at a terminal at which sunaba runs.
type typist struct {
	t      *testing.T
	cmd    *exec.Cmd
	screen *os.File     // the terminal's other side
	line   *os.File     // the terminal itself, kept open to look at its modes
	modes  string       // as stty writes them
	seen   bytes.Buffer // all that ever came
	at     int          // up to where it was looked for
	done   chan struct{}
	over   bool // all that it will ever write is in seen
}

// theEnd is what a test itself writes to a terminal when the command there has
// ended: the kernel hands on what was written before, at its leisure, and this
// comes behind it.
const theEnd = "\x00the command has ended\x00"

// sit starts sunaba at a terminal of 40 rows and 100 columns. Files in redirect
// take the place of the terminal: 0 to 2.
func sit(t *testing.T, u harness.User, redirect map[int]*os.File, args ...string) *typist {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), lifetime)
	t.Cleanup(cancel)
	return sitWith(t, harness.Command(ctx, t, u, args...), redirect)
}

// sitWith starts any command there.
func sitWith(t *testing.T, cmd *exec.Cmd, redirect map[int]*os.File) *typist {
	t.Helper()
	screen, line, err := host.OpenPTY(box.WindowSize{Rows: 40, Cols: 100})
	if err != nil {
		t.Skipf("no terminal can be had here: %v", err)
	}
	p := &typist{t: t, cmd: cmd, screen: screen, line: line, done: make(chan struct{})}
	p.modes = p.stty()
	files := []*os.File{line, line, line}
	for i, f := range redirect {
		files[i] = f
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = files[0], files[1], files[2]
	if p.cmd.SysProcAttr == nil {
		p.cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	p.cmd.ExtraFiles = []*os.File{line}
	p.cmd.SysProcAttr.Setsid, p.cmd.SysProcAttr.Setctty, p.cmd.SysProcAttr.Ctty = true, true, 3
	p.cmd.Env = append(p.cmd.Env, "TERM=xterm-256color")
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
		if _, err := line.WriteString(theEnd); err != nil && !errors.Is(err, syscall.EIO) { // EIO: the other side is closed, at the end of a test
			t.Errorf("cannot write behind the command: %v", err)
		}
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		screen.Close() // nobody reads, and nobody is to wait for that
		<-p.done
		line.Close()
	})
	return p
}

// stty returns all modes of the terminal.
func (p *typist) stty() string {
	p.t.Helper()
	cmd := exec.Command("stty", "-g")
	cmd.Env, cmd.Stdin = []string{"PATH=/usr/bin:/bin"}, p.line
	out, err := cmd.Output()
	if err != nil {
		p.t.Fatal(err)
	}
	return string(out)
}

// sees waits until text is on the screen, after what was seen before. A command
// that has ended without it fails the test at once, with all that it said.
func (p *typist) sees(text string) {
	p.t.Helper()
	for from := p.at; ; {
		if i := bytes.Index(p.seen.Bytes()[from:], []byte(text)); i >= 0 {
			p.at = from + i + len(text)
			return
		}
		if p.over {
			p.t.Fatalf("%q was never on the screen, and the command has ended (%v)\nafter: %q\nbefore: %q", text, p.cmd.ProcessState, p.seen.Bytes()[p.at:], p.seen.Bytes()[:p.at])
		}
		from = max(p.at, p.seen.Len()-len(text))
		if err := p.read(); err != nil {
			p.t.Fatalf("%q was never on the screen: %v\nafter: %q\nbefore: %q", text, err, p.seen.Bytes()[p.at:], p.seen.Bytes()[:p.at])
		}
	}
}

// read waits for what comes next to the screen, which may be the end of all.
func (p *typist) read() error {
	buf := make([]byte, 32<<10)
	_ = p.screen.SetReadDeadline(time.Now().Add(patience))
	n, err := p.screen.Read(buf)
	p.seen.Write(buf[:n])
	if i := bytes.LastIndex(p.seen.Bytes(), []byte(theEnd)); i >= 0 {
		p.seen.Truncate(i)
		<-p.done
		p.over = true
		return nil
	}
	return err
}

func (p *typist) types(keys string) {
	p.t.Helper()
	if _, err := p.screen.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

// ends waits for sunaba's end.
func (p *typist) ends() {
	p.t.Helper()
	for !p.over {
		if err := p.read(); err != nil {
			p.t.Fatalf("the command does not end: %v\nthe screen: %q", err, p.seen.String())
		}
	}
}

// leaves waits for sunaba's end, checks that the terminal is as it was, and
// returns all that was ever on it.
func (p *typist) leaves(code int) string {
	p.t.Helper()
	p.ends()
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.t.Errorf("exit code %d (%v), want %d; the screen: %q", got, p.cmd.ProcessState, code, p.seen.String())
	}
	if now := p.stty(); now != p.modes {
		p.t.Errorf("the terminal's modes are %s, they were %s", now, p.modes)
	}
	return p.seen.String()
}
