package contexts_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
)

// pid is how a cell of each language tells its interpreter's number.
func pid(n *notebook) int {
	n.t.Helper()
	code := map[string]string{"python": "import os; print(os.getpid())", "javascript": "console.log(process.pid)", "bash": "echo $$"}
	out := n.run(code[n.about.Language]).stdout
	p, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		n.t.Fatalf("the interpreter's number is %q", out)
	}
	return p
}

func eachLanguage(t *testing.T, fn func(t *testing.T, language string)) {
	for language, program := range map[string]string{"python": "python3", "javascript": "node", "bash": "bash"} {
		t.Run(language, func(t *testing.T) {
			needs(t, program)
			fn(t, language)
		})
	}
}

// start runs a cell without waiting for it.
func (n *notebook) start(req *pb.RunRequest) <-chan *told {
	req.Context = n.id
	out := make(chan *told, 1)
	go func() {
		got, err := n.follow(n.t.Context(), req)
		if err != nil {
			n.t.Errorf("cell %s: %v", req.Cell, err)
		}
		out <- got
	}()
	return out
}

func (n *notebook) becomes(state pb.Context_State, limit time.Duration) *pb.Context {
	n.t.Helper()
	if !until(limit, func() bool { return n.now().State == state }) {
		n.t.Fatalf("the context is not %v within %v: %v", state, limit, n.now())
	}
	return n.now()
}

func TestAnInterpreterKilledFromOutsideIsNoticedWithinTwoSeconds(t *testing.T) {
	eachLanguage(t, func(t *testing.T, language string) {
		n := serve(t).open(language)
		// While idle.
		inTime(t, func() time.Duration {
			if n.now().State == pb.Context_STATE_DEAD {
				n.restart()
			}
			if err := syscall.Kill(pid(n), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if c := n.becomes(pb.Context_STATE_DEAD, longest); !strings.Contains(c.Detail, "signal 9") {
				t.Errorf("the detail is %q", c.Detail)
			}
			return time.Since(began)
		})
		_, err := n.follow(t.Context(), &pb.RunRequest{Context: n.id, Cell: "after", Code: "1"})
		if connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "signal 9") {
			t.Errorf("a dead context answers a cell with %v", err)
		}
		_, err = n.client.Interrupt(t.Context(), connect.NewRequest(&pb.InterruptRequest{Context: n.id}))
		if connect.CodeOf(err) != connect.CodeFailedPrecondition {
			t.Errorf("a dead context answers an interrupt with %v", err)
		}
		// While a cell runs, and another waits.
		code := map[string]string{"python": "while True: pass", "javascript": "for (;;);", "bash": "while :; do :; done"}[language]
		tries := 0
		inTime(t, func() time.Duration {
			tries++
			n.restart()
			p := pid(n)
			busy := n.start(&pb.RunRequest{Cell: fmt.Sprint("busy", tries), Code: code})
			n.becomes(pb.Context_STATE_BUSY, longest)
			waits := n.start(&pb.RunRequest{Cell: fmt.Sprint("waits", tries), Code: code})
			n.queued(1)
			if err := syscall.Kill(p, syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if language == "bash" { // an interactive shell ignores SIGTERM
				syscall.Kill(p, syscall.SIGKILL)
			}
			began := time.Now()
			for _, c := range []<-chan *told{busy, waits} {
				got := <-c
				if got.end.GetOutcome() != died || !strings.Contains(got.end.Detail, "signal") {
					t.Errorf("the end is %v", got.end)
				}
			}
			return time.Since(began)
		})
	})
}

// inTime wants something to take two seconds at most. A host that has other things to
// do may be late, but not each of ten times.
func inTime(t *testing.T, once func() time.Duration) {
	t.Helper()
	var all []time.Duration
	for range 10 {
		took := once()
		if all = append(all, took); took <= 2*time.Second || t.Failed() {
			t.Logf("noticed after %v", all)
			return
		}
	}
	t.Errorf("noticed only after %v", all)
}

func TestAStoppedInterpreterIsEnded(t *testing.T) {
	needs(t, "bash")
	t.Parallel()
	n := serve(t).open("bash")
	if err := syscall.Kill(pid(n), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if c := n.becomes(pb.Context_STATE_DEAD, longest); !strings.Contains(c.Detail, "stopped") {
		t.Errorf("the detail is %q", c.Detail)
	}
}

func TestAnIdleInterpreterThatDoesNotAnswerIsEnded(t *testing.T) {
	needs(t, "python3")
	t.Parallel()
	n := serve(t).open("python", withoutIPython(t))
	// A thread that keeps the interpreter's lock, as a broken extension does, once the
	// cell has ended: while one runs, an interpreter is left alone.
	n.run("import ctypes, os, threading, time\ndef hold():\n    while not os.path.exists('go'): time.sleep(0.01)\n    ctypes.PyDLL(None).sleep(1200)\nthreading.Thread(target=hold).start()")
	if err := os.WriteFile(filepath.Join(n.dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if c := n.becomes(pb.Context_STATE_DEAD, longest); !strings.Contains(c.Detail, "does not answer") {
		t.Errorf("the detail is %q", c.Detail)
	}
}

func TestABusyInterpreterIsLeftAloneAndItsReaderHearsABeat(t *testing.T) {
	needs(t, "python3")
	t.Parallel()
	n := serve(t).open("python", withoutIPython(t))
	stream, err := n.client.Run(t.Context(), connect.NewRequest(&pb.RunRequest{Context: n.id, Cell: "c", Code: "import ctypes; ctypes.PyDLL(None).sleep(25)"}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	beats := 0
	var end *pb.CellEnd
	for stream.Receive() {
		if stream.Msg().GetBeat() != nil && stream.Msg().Number == 0 {
			beats++
		}
		end = stream.Msg().GetEnd()
	}
	if err := stream.Err(); err != nil || beats < 2 || end.GetOutcome() != pb.CellEnd_OUTCOME_OK || end.GetMillis() < 25000 { // five are due
		t.Errorf("%d beats, then %v, %v", beats, end, err)
	}
}

func TestACellThatDoesNotReactToAnInterruptEndsWithItsInterpreter(t *testing.T) {
	needs(t, "python3")
	t.Parallel()
	n := serve(t).open("python", withoutIPython(t))
	code := "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('deaf')\nwhile True: pass"
	const timeout = 5 * time.Second // by then it is deaf
	got := n.run(code, within(timeout))
	if got.end.Outcome != died || !strings.Contains(got.end.Detail, "did not react to an interrupt within 5s") || got.stdout != "deaf\n" {
		t.Errorf("the end is %v after %q", got.end, got.stdout)
	}
	if took := time.Duration(got.end.Millis) * time.Millisecond; took < timeout+5*time.Second {
		t.Errorf("it had %v to react", took-timeout)
	}
}

func TestAnInterruptReachesAChildThatTheInterpreterWaitsFor(t *testing.T) {
	for language, c := range map[string]struct{ program, code string }{
		"python":     {"python3", "import os\nos.system('touch there; exec sleep 600')"},
		"javascript": {"node", "require('child_process').spawnSync('sh', ['-c', 'touch there; exec sleep 600'])"},
	} {
		t.Run(language, func(t *testing.T) {
			needs(t, c.program)
			t.Parallel()
			n := serve(t).open(language)
			before := pid(n)
			cell := n.start(&pb.RunRequest{Cell: "c", Code: c.code})
			interruptAt("there")(n)
			if got := <-cell; got.end.Outcome == died {
				t.Errorf("the end is %v", got.end)
			}
			if after := pid(n); after != before {
				t.Error("the interpreter is another one")
			}
		})
	}
}

func TestAnInterruptAtTheVeryBeginningOfACellIsNotLost(t *testing.T) {
	eachLanguage(t, func(t *testing.T, language string) {
		n := serve(t).open(language)
		before := pid(n)
		code := map[string]string{
			"python":     "#%s\nimport time\ntime.sleep(600)",
			"javascript": "//%s\nawait new Promise(() => {})",
			"bash":       "#%s; touch half\nsleep 600",
		}[language]
		code = fmt.Sprintf(code, strings.Repeat("x", 500000))
		for range 20 {
			got := n.run(code, within(time.Millisecond))
			if got.end.Outcome != timedOut {
				t.Fatalf("the cell ends as %v", got.end)
			}
		}
		if after := pid(n); after != before {
			t.Error("the interpreter is another one")
		}
		if _, err := os.Stat(n.dir + "/half"); err == nil {
			t.Error("half of the cell was run")
		}
	})
}

// An interrupt that comes while the driver tells of something long, and a pipe holds
// only the beginning of that, is the cell's, and what is told stays whole.
func TestAnInterruptCutsNothingThatIsTold(t *testing.T) {
	for name, code := range map[string]string{
		"a value":        "while True: display('x' * 200000)",
		"from a thread":  "import threading\nt = [threading.Thread(target=lambda: [display('y' * 100000) for _ in range(5)]) for _ in range(3)]\n[x.start() for x in t]\n[x.join() for x in t]\nwhile True: display('x' * 200000)",
		"an error":       "raise KeyError('x' * 60000 + '%s' % ('y' * 200000))",
		"by many in one": "import os, signal, time\nfor i in range(40):\n    if not os.fork():\n        time.sleep(i / 100)\n        os.kill(os.getppid(), signal.SIGINT)\n        os._exit(0)\nwhile True: display('x' * 200000)",
	} {
		t.Run(name, func(t *testing.T) {
			needs(t, "python3")
			n := serve(t).open("python", withoutIPython(t))
			before := pid(n)
			for i := range 10 {
				got := n.run(code, within(time.Duration(100+37*i)*time.Millisecond))
				if got.end.Outcome == died {
					t.Fatalf("time %d: the cell ends as %v", i, got.end)
				}
			}
			if after := pid(n); after != before {
				t.Error("the interpreter is another one")
			}
		})
	}
}

func TestARestartEndsWhatRunsAndWhatWaits(t *testing.T) {
	needs(t, "bash")
	n := serve(t).open("bash")
	n.run("x=1")
	runs := n.start(&pb.RunRequest{Cell: "runs", Code: "sleep 61"})
	n.becomes(pb.Context_STATE_BUSY, longest)
	waits := n.start(&pb.RunRequest{Cell: "waits", Code: "echo not here"})
	n.queued(1)
	n.restart()
	for cell, want := range map[<-chan *told]string{runs: "the context was restarted", waits: "never run: the context was restarted"} {
		if got := <-cell; got.end.Outcome != died || !strings.Contains(got.end.Detail, want) || got.stdout != "" {
			t.Errorf("the end is %v, want %q", got.end, want)
		}
	}
	if got := n.run("echo [$x]"); got.stdout != "[]\n" || got.end.Count != 1 {
		t.Errorf("after the restart a cell tells %v", got.events)
	}
}

func TestAClosedContextLeavesNothingBehind(t *testing.T) {
	eachLanguage(t, func(t *testing.T, language string) {
		n := serve(t).open(language)
		p := pid(n)
		child := map[string]string{
			"python":     "import subprocess; c = subprocess.Popen(['sleep', '62']); print(c.pid)",
			"javascript": "const c = require('child_process').spawn('sleep', ['62']); console.log(c.pid)",
			"bash":       "sleep 62 & echo $!",
		}[language]
		c, err := strconv.Atoi(strings.TrimSpace(n.run(child).stdout))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.client.Close(t.Context(), connect.NewRequest(&pb.CloseRequest{Context: n.id})); err != nil {
			t.Fatal(err)
		}
		for _, p := range []int{p, c} {
			if !until(longest, func() bool { return gone(p) }) {
				t.Errorf("process %d is left", p)
			}
		}
		for what, err := range map[string]error{
			"run":       second(n.follow(t.Context(), &pb.RunRequest{Context: n.id, Cell: "x", Code: "1"})),
			"interrupt": second(n.client.Interrupt(t.Context(), connect.NewRequest(&pb.InterruptRequest{Context: n.id}))),
			"restart":   second(n.client.Restart(t.Context(), connect.NewRequest(&pb.RestartRequest{Context: n.id}))),
			"close":     second(n.client.Close(t.Context(), connect.NewRequest(&pb.CloseRequest{Context: n.id}))),
		} {
			if connect.CodeOf(err) != connect.CodeNotFound {
				t.Errorf("%s of a closed context says %v", what, err)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

// gone reports whether a process has ended; who reaps it is its parent's matter.
func gone(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(b), ") Z ")
}

func TestWhatCannotBeOpenedSaysWhy(t *testing.T) {
	s := serve(t)
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "bash"), []byte("#!/bin/sh\necho is broken >&2\nexit 9\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		req  *pb.OpenRequest
		code connect.Code
		says string
	}{
		"no such language":    {&pb.OpenRequest{Language: "cobol"}, connect.CodeInvalidArgument, `"cobol"`},
		"no such program":     {&pb.OpenRequest{Language: "python", Env: []string{"PATH=" + t.TempDir()}}, connect.CodeUnimplemented, "cannot find python"},
		"one that is broken":  {&pb.OpenRequest{Language: "bash", Env: []string{"PATH=" + broken}}, connect.CodeFailedPrecondition, "exited with status 9; it said: is broken"},
		"no such folder":      {&pb.OpenRequest{Language: "bash", Dir: "/nowhere"}, connect.CodeInvalidArgument, "/nowhere"},
		"a user that is none": {&pb.OpenRequest{Language: "bash", User: "root"}, connect.CodeFailedPrecondition, `user "root"`},
	} {
		_, err := s.client.Open(t.Context(), connect.NewRequest(c.req))
		if connect.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %v with %q", name, err, c.code, c.says)
		}
	}
}
