package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/test/harness"
)

func TestOutputAndInputAreLive(t *testing.T) {
	harness.EachUserAndTier(t, func(t *testing.T, u harness.User) {
		harness.NothingLeft(t)
		p := start(t, u, "run", "--", "sh", "-c", "echo first; read x; echo got $x; read x || echo end")
		// Each step comes only after the one before was seen.
		if got := p.line(); got != "first" {
			t.Errorf("first line %q", got)
		}
		p.write("second\n")
		if got := p.line(); got != "got second" {
			t.Errorf("second line %q", got)
		}
		p.in.Close()
		if got := p.exits(0); got != "end\n" {
			t.Errorf("after the end of input: %q", got)
		}
	})
}

func TestStandardErrorIsLive(t *testing.T) {
	harness.EachUserAndTier(t, func(t *testing.T, u harness.User) {
		harness.NothingLeft(t)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		ctx, cancel := context.WithTimeout(t.Context(), lifetime)
		defer cancel()
		cmd := harness.Command(ctx, t, u, "run", "--", "sh", "-c", "echo oops >&2; read x; exit 5")
		cmd.Stderr = w
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		w.Close()
		got := make([]byte, 5)
		_, rerr := io.ReadFull(r, got)
		io.WriteString(in, "\n")
		rest, _ := io.ReadAll(r)
		_ = cmd.Wait()
		if rerr != nil || string(got) != "oops\n" || cmd.ProcessState.ExitCode() != 5 {
			t.Errorf("%q and %q, %v; %v", got, rest, rerr, cmd.ProcessState)
		}
	})
}

func TestBytesPassUnchanged(t *testing.T) {
	harness.EachUserAndTier(t, func(t *testing.T, u harness.User) {
		harness.NothingLeft(t)
		want := make([]byte, 10<<20)
		rand.NewChaCha8([32]byte{}).Read(want)
		r := harness.RunIn(t, u, "/", string(want), "run", "--max-output", "32m", "--", "cat")
		if r.Code != 0 || sha256.Sum256([]byte(r.Stdout)) != sha256.Sum256(want) {
			t.Errorf("exit code %d, %d of %d bytes came back\n%s", r.Code, len(r.Stdout), len(want), r.Stderr)
		}
		// What a terminal would obey is nothing to a pipe.
		const hostile = "\x1b]0;title\x07\x1b[31m\xff\x00\xc2\x9b\r\n"
		if r := harness.RunIn(t, u, "/", hostile, "run", "--", "tee", "/dev/stderr"); r.Stdout != hostile || !strings.HasPrefix(r.Stderr, hostile) {
			t.Errorf("stdout %q, stderr %q", r.Stdout, r.Stderr)
		}
	})
}

func TestInputMayBeMissing(t *testing.T) {
	harness.EachUserAndTier(t, func(t *testing.T, u harness.User) {
		harness.NothingLeft(t)
		for name, redirect := range map[string]string{"null": "</dev/null", "closed": "<&-", "file": "</etc/hostname"} {
			cmd := shell(t, u, `exec "$0" run -- wc -l `+redirect)
			var errs strings.Builder
			cmd.Stderr = &errs
			out, err := cmd.Output()
			want := "0\n"
			if name == "file" {
				want = "1\n"
			}
			if err != nil || string(out) != want {
				t.Errorf("%s: %q, %v\n%s", name, out, err, errs.String())
			}
		}
	})
}

// shell prepares a line of sh with the binary as $0, as u.
func shell(t *testing.T, u harness.User, line string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), lifetime)
	t.Cleanup(cancel)
	like := harness.Command(ctx, t, u)
	line = strings.Replace(line, `"$0" run `, `"$0" run `+strings.Join(u.Flags(), " ")+" ", 1)
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", line, harness.Binary(t))
	cmd.Env, cmd.SysProcAttr, cmd.Dir = like.Env, like.SysProcAttr, "/"
	return cmd
}

func TestInputThatNobodyReadsHoldsNothingUp(t *testing.T) {
	harness.EachUserAndTier(t, func(t *testing.T, u harness.User) {
		harness.NothingLeft(t)
		p := start(t, u, "run", "--", "sh", "-c", "exec <&-; echo closed")
		// The input stays open and full until after the end.
		go p.in.Write(bytes.Repeat([]byte{'x'}, 1<<20))
		if got := p.exits(0); got != "closed\n" {
			t.Errorf("output %q", got)
		}
	})
}

func TestABackgroundChildHoldsNothingUp(t *testing.T) {
	harness.EachUserAndTier(t, func(t *testing.T, u harness.User) {
		harness.NothingLeft(t)
		p := start(t, u, "run", "--timeout", "600", "--", "sh", "-c", "sleep 500 & echo started")
		if got := p.exits(0); got != "started\n" {
			t.Errorf("output %q", got)
		}
	})
}

func TestARunWhoseReaderLeavesEnds(t *testing.T) {
	harness.EachUserAndTier(t, func(t *testing.T, u harness.User) {
		harness.NothingLeft(t)
		p := start(t, u, "run", "--timeout", "600", "--", "sh", "-c", "echo first; while :; do echo more; sleep 0.01; done")
		p.line()
		p.outEnd.Close()
		<-p.done
		if c := p.cmd.ProcessState.ExitCode(); c != 250 {
			t.Errorf("exit code %d", c)
		}
		if !strings.Contains(p.errs.String(), "sunaba: the run was ended: nobody reads its output any more\n") {
			t.Errorf("standard error %q", p.errs.String())
		}
	})
}

func TestOutputThatCannotBeWrittenIsNoSuccess(t *testing.T) {
	harness.EachUserAndTier(t, func(t *testing.T, u harness.User) {
		harness.NothingLeft(t)
		for _, c := range []struct {
			flags, says string
			code        int
		}{
			{"", "no space left on device", 250},
			{"-o json", "cannot write report", 243},
		} {
			cmd := shell(t, u, `exec "$0" run `+c.flags+` -- echo hello >/dev/full`)
			var errs strings.Builder
			cmd.Stderr = &errs
			_ = cmd.Run()
			if got := cmd.ProcessState.ExitCode(); got != c.code || !strings.Contains(errs.String(), c.says) {
				t.Errorf("%q: exit code %d, %q", c.flags, got, errs.String())
			}
		}
	})
}

func TestMessagesBeginALineOfTheirOwn(t *testing.T) {
	harness.NothingLeft(t)
	r := harness.Run(t, harness.Users()[0], "run", "--", "sh", "-c", "printf half >&2; kill -9 $$")
	if !strings.HasPrefix(r.Stderr, "half\nsunaba: the program was ended by signal 9\n") {
		t.Errorf("standard error %q", r.Stderr)
	}
}
