package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sunaba-dev/sunaba/test/harness"
)

// TestLastingScripts runs testdata/lasting/*.txtar against a daemon. Beside the
// commands of the other scripts there are
//
//	keep NAME                    the last standard output becomes the variable NAME
//	json PATH=VALUE ...          as report, of a document that is none
//
// and `sunaba box create` makes boxes of the tier under test, if not from a
// snapshot. The condition [copies] is whether boxes here can be copied, [forks]
// whether with what runs in them, [volumes] whether there are volumes.
func TestLastingScripts(t *testing.T) {
	harness.EachUserAndTier(t, func(t *testing.T, u harness.User) {
		harness.NothingLeft(t)
		d := harness.StartServer(t, u)
		bin := wrappers(t, u)
		line := fmt.Sprintf(`[ "$1" != run ] || { shift; set -- run %[1]s "$@"; }
case "$*" in *--snapshot*) ;; "box create"*) shift 2; set -- box create %[1]s "$@";; esac
exec %[2]s/as %[3]s "$@"`, strings.Join(u.Flags(), " "), bin, harness.Binary(t))
		if err := os.WriteFile(filepath.Join(bin, "sunaba"), []byte("#!/bin/sh\n"+line+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		cmds := commands()
		cmds["keep"] = func(ts *testscript.TestScript, _ bool, args []string) {
			ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
		}
		cmds["json"] = func(ts *testscript.TestScript, _ bool, args []string) {
			dec := json.NewDecoder(strings.NewReader(ts.ReadFile("stdout")))
			dec.UseNumber()
			var doc any
			ts.Check(dec.Decode(&doc))
			for _, a := range args {
				if err := check(doc, a); err != nil {
					ts.Fatalf("%s: %v", a, err)
				}
			}
		}
		root := harness.Dir(t, u)
		t.Run("scripts", func(t *testing.T) {
			testscript.Run(t, testscript.Params{
				Dir: "testdata/lasting", WorkdirRoot: root, RequireUniqueNames: true, Cmds: cmds,
				Condition: func(cond string) (bool, error) {
					switch cond {
					case "copies": // an ordinary user's files of tier process are in memory
						return !u.IsTrusting() || u.Trusting() == harness.Root.Trusting(), nil
					case "volumes": // mounting one takes a loop device
						return u.Trusting() == harness.Root.Trusting(), nil
					case "forks": // what runs in tier process is the host kernel's
						return !u.IsTrusting(), nil
					}
					return false, fmt.Errorf("there is no condition %q", cond)
				},
				Setup: func(env *testscript.Env) error {
					env.Setenv("PATH", bin+":/usr/local/bin:/usr/bin:/bin")
					env.Setenv("SUNABA_SERVER", d.URL)
					env.Setenv("SUNABA_API_KEY", d.Key)
					env.Setenv("KEY", d.Key)
					env.Setenv("HOME", "/nonexistent")
					return giveTree(u, env.WorkDir)
				},
			})
		})
	})
}

func TestShellIsATerminalOfItsOwn(t *testing.T) {
	harness.EachUserAndTier(t, func(t *testing.T, u harness.User) {
		harness.NothingLeft(t)
		d := harness.StartServer(t, u)
		in := func(args ...string) *typist {
			ctx, cancel := context.WithTimeout(context.Background(), lifetime)
			t.Cleanup(cancel)
			cmd := harness.Command(ctx, t, u, args...)
			cmd.Env = append(cmd.Env, "SUNABA_SERVER="+d.URL, "SUNABA_API_KEY="+d.Key)
			return sitWith(t, cmd, nil)
		}
		cmd := harness.Command(t.Context(), t, u, append([]string{"box", "create"}, u.Flags()...)...)
		cmd.Env = append(cmd.Env, "SUNABA_SERVER="+d.URL, "SUNABA_API_KEY="+d.Key)
		id := strings.TrimSpace(output(t, cmd))
		p := in("box", "shell", id)
		p.sees("$ ")
		p.types("stty size; tty\r")
		p.sees("40 100")
		p.sees("/dev/")
		p.types("sh -c \"echo re''ady; exec sleep 600\"\r")
		p.sees("ready\r\n") // before that, the shell may be changing modes
		p.types("\x03")
		p.sees("$ ")
		p.types("printf '\\033]0;title\\a'; exit 9\r")
		if out := p.leaves(9); strings.Contains(out, "\x1b]0;") {
			t.Errorf("a title reached the screen: %q", out)
		}
		if modes := p.stty(); modes != p.modes {
			t.Errorf("the terminal is left as %s, it was %s", modes, p.modes)
		}
		// What is no terminal's is cleaned for one.
		p = in("box", "exec", id, "--", "/usr/bin/printf", `\033[31mred \302\2330m\n`)
		p.sees(`\x1b[31mred \u{9b}0m`)
		p.leaves(0)
	})
}

// However a client goes, its program goes with it, unless it is left to itself.
func TestExecEndsWithItsClient(t *testing.T) {
	harness.EachUserAndTier(t, func(t *testing.T, u harness.User) {
		harness.NothingLeft(t)
		d := harness.StartServer(t, u)
		sunaba := func(args ...string) *exec.Cmd {
			cmd := harness.Command(t.Context(), t, u, args...)
			cmd.Env = append(cmd.Env, "SUNABA_SERVER="+d.URL, "SUNABA_API_KEY="+d.Key)
			return cmd
		}
		id := strings.TrimSpace(output(t, sunaba(append([]string{"box", "create"}, u.Flags()...)...)))
		var list struct {
			Processes []struct {
				PID   int
				Cause string
			}
		}
		processes := func() int {
			list.Processes = nil
			if err := json.Unmarshal([]byte(output(t, sunaba("box", "ps", "-o", "json", id))), &list); err != nil {
				t.Fatal(err)
			}
			return len(list.Processes)
		}
		for n, end := range []os.Signal{syscall.SIGKILL, syscall.SIGTERM, os.Interrupt} {
			cmd := sunaba("box", "exec", id, "--", "sh", "-c", "trap '' TERM INT HUP; sleep 600")
			var errs bytes.Buffer // to be read when it has ended
			cmd.Stderr = &errs
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				_ = cmd.Wait()
				close(ended)
			}()
			if err := await(ended, func() bool { return processes() == n+1 }); errors.Is(err, errEnded) {
				t.Fatalf("its client has ended (%v) before the program ran: %s", cmd.ProcessState, errs.String())
			} else if err != nil {
				t.Fatalf("the program does not run: %v; %+v", err, list)
			}
			_ = cmd.Process.Signal(end)
			<-ended
			// It is asked for at once; a busy machine takes its time.
			if err := await(nil, func() bool { processes(); return list.Processes[n].Cause != "" }); err != nil {
				t.Fatalf("after %v of its client the program runs on: %v; %+v", end, err, list)
			}
			if code := cmd.ProcessState.ExitCode(); end != syscall.SIGKILL && code != 250 {
				t.Errorf("%v: exit code %d, want 250: %s", end, code, errs.String())
			}
		}
	})
}

// output runs a command to its end, which must be a success, and returns its
// standard output.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("%q: %v\n%s%s", cmd.Args[1:], err, out, exit.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
