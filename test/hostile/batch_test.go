package hostile

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// answer is one line of stage.py: before a case, without Out, and after it.
type answer struct {
	ID      string
	Out     *string
	Witness map[string]any
}

// TestAttacksAreContained runs the cases that leave their box standing, a file
// of them in a box.
func TestAttacksAreContained(t *testing.T) {
	all := groups(t)
	for _, p := range places() {
		t.Run(string(p.tier)+"/"+string(p.user), func(t *testing.T) {
			harness.NothingLeft(t)
			for _, name := range slices.Sorted(maps.Keys(all)) {
				if cases := shared(p, all[name]); len(cases) > 0 {
					t.Run(name, func(t *testing.T) { batch(t, p, cases) })
				}
			}
		})
	}
}

// shared are those of the cases that are due and share a box.
func shared(p place, cases []Case) []Case {
	return slices.DeleteFunc(slices.Clone(cases), func(c Case) bool { return !c.due(p.tier) || c.is("alone") })
}

// batch runs cases that share a box.
func batch(t *testing.T, p place, cases []Case) {
	n := settle(t, p)
	c := release(t, p.user)
	input, secret := order(t, p.user, c, cases, "box")
	args := append([]string{harness.Binary(t), "run", "-o", "json"}, flags(p.tier)...)
	cmd := careless(t, p.user, c, append(args, "--timeout", "900", "--max-output", "8m", "--max-processes", "64",
		"--input", input, "--copy", file("stage.py"), "--", python, "stage.py")...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	var rep box.Report
	if bad := json.Unmarshal(out, &rep); bad != nil || err != nil {
		t.Fatalf("cannot run box: %v, %v: %.2000s %.2000s", err, bad, out, errs.String())
	}
	if rep.Cause != box.Exited || rep.Stdout == nil || rep.Tier != p.tier {
		t.Errorf("the box of tier %s ended by %s: %.2000s", rep.Tier, rep.Cause, rep.StderrClean)
	}
	if strings.Contains(string(out), c.Secret) {
		t.Error("the box has found the canary")
	}
	got := read(t, rep.StdoutClean, secret, "sunaba", len(cases))
	for _, k := range cases {
		want := k.want(p.tier, p.user)
		if !fits(want, got[k.Name]) || want == "/.*/" {
			t.Errorf("%s: got %q, want %q", k.Name, got[k.Name], want)
		}
	}
	n.leave(t)
}

// read takes the answers out of stage.py's output and judges the witnesses.
func read(t *testing.T, text, secret, host string, want int) map[string]string {
	t.Helper()
	got := map[string]string{}
	var before answer
	for line := range strings.Lines(text) {
		var a answer
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Errorf("cannot read %.200q: %v", line, err)
			continue
		}
		if a.Witness["secret"] != secret || a.Witness["here"] != true || host != "" && a.Witness["host"] != host {
			t.Errorf("%s: the witness says %v", a.ID, a.Witness)
		}
		if a.Out == nil {
			before = a
			continue
		}
		if before.ID == "" || !reflect.DeepEqual(before.Witness, a.Witness) {
			t.Errorf("%s: the witness before says %v, after %v", a.ID, before.Witness, a.Witness)
		}
		got[a.ID] = *a.Out
	}
	if len(got) != want {
		t.Errorf("%d cases answered, not %d; the last was %q", len(got), want, before.ID)
	}
	return got
}

// TestControlsSucceed runs the same attacks where no box is.
func TestControlsSucceed(t *testing.T) {
	all := groups(t)
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		c := release(t, u)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			t.Run(name, func(t *testing.T) {
				outside(t, u, c, all[name], "control")
				if u == harness.Ordinary {
					outside(t, u, c, all[name], "bare")
				}
			})
		}
	})
}

// outside runs the cases that have a control of the kind, as a child of a
// careless caller and nothing more, or in namespaces of their own.
func outside(t *testing.T, u harness.User, c canaries, cases []Case, kind string) {
	t.Helper()
	cases = slices.DeleteFunc(slices.Clone(cases), func(k Case) bool {
		v, ok := k.of(kind, "", u)
		return !ok || v == "-" || k.is("alone") || k.get("needs") != "" || !long && k.is("long")
	})
	if len(cases) == 0 {
		return
	}
	input, secret := order(t, u, c, cases, kind)
	argv := []string{python, file("stage.py")}
	if kind == "bare" {
		// A shell is PID 1, for the attacks on that.
		argv = []string{"/usr/bin/unshare", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--net", "--ipc", "--uts", "--cgroup", "--mount-proc",
			"/bin/sh", "-c", python + " " + file("stage.py") + "; exit $?"}
	}
	cmd := careless(t, u, c, argv...)
	cmd.Dir = filepath.Dir(input)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", kind, err, errs.String())
	}
	got := read(t, string(out), secret, "", len(cases))
	for _, k := range cases {
		want, _ := k.of(kind, "", u)
		heard := got[k.Name]
		switch {
		case want != "reached" && !fits(want, heard):
			t.Errorf("%s of %s: got %q, want %q", kind, k.Name, heard, want)
		case want == "reached" && absent(heard):
			t.Logf("%s of %s: this host does not have it", kind, k.Name)
		case want == "reached" && fits(k.want(box.TierProcess, u), heard):
			t.Errorf("%s of %s: %q, as in a box: nothing is shown", kind, k.Name, heard)
		}
	}
}

// absent reports whether an outcome says that this kernel or host does not have
// something.
func absent(e string) bool {
	return slices.Contains([]string{"ENOSYS", "EAFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT", "absent", "ENOENT", "empty folder", "empty"}, e)
}

// neighbour is a box that works while others are attacked.
type neighbour struct {
	say  func(t *testing.T, word string)
	stop func(t *testing.T)
}

// settle starts a neighbour. It keeps a file, a folder in shared memory and a
// process, and echoes.
func settle(t *testing.T, p place) *neighbour {
	t.Helper()
	cmd := harness.Command(t.Context(), t, p.user, append(append([]string{"run"}, flags(p.tier)...), "--timeout", "7200", "--", "sh", "-c",
		`echo mine > kept; mkdir /dev/shm/kept; sleep 10000 & echo up
		while read line; do test "$(cat kept)" = mine && test -d /dev/shm/kept && kill -0 $! && echo "$line"; done; exit 3`)...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs strings.Builder
	cmd.Stdout, cmd.Stderr = w, &errs
	err = cmd.Start()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
		out.Close()
	})
	hear := func(t *testing.T, word string) {
		t.Helper()
		buf := make([]byte, len(word)+1)
		if _, err := readFull(out, buf); err != nil || string(buf) != word+"\n" {
			t.Fatalf("the neighbour said %q, not %q (%v): %s", buf, word, err, errs.String())
		}
	}
	hear(t, "up")
	return &neighbour{
		say: func(t *testing.T, word string) {
			t.Helper()
			if _, err := in.Write([]byte(word + "\n")); err != nil {
				t.Fatalf("the neighbour is gone: %v: %s", err, errs.String())
			}
			hear(t, word)
		},
		stop: func(t *testing.T) {
			t.Helper()
			in.Close()
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != 3 {
				t.Errorf("the neighbour ended with %d, not 3: %s", code, errs.String())
			}
		},
	}
}

// leave asks the neighbour whether all is well, and ends it.
func (n *neighbour) leave(t *testing.T) {
	t.Helper()
	n.say(t, "still here")
	n.stop(t)
}

func readFull(f *os.File, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var m int
		m, err = f.Read(buf[n:])
		n += m
	}
	if n == len(buf) {
		err = nil
	}
	return n, err
}
