package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
)

// event is one line of test2json's output (go doc test2json).
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
}

// test is a test of a package; "" is the package itself.
type test struct{ pkg, name string }

// top is the test that a subtest is part of.
func (t test) top() test {
	name, _, _ := strings.Cut(t.name, "/")
	return test{t.pkg, name}
}

// result is what a run of tests came to.
type result struct {
	passed, failed, skipped int
	tops                    []test   // those that failed, without their subtests
	broken                  []string // packages that failed by more than by tests that say so: no build, a panic, a time-out
}

func (r result) ok() bool { return r.failed == 0 && len(r.broken) == 0 && r.passed > 0 }

// String is the closing line.
func (r result) String() string {
	failed := r.failed
	if failed == 0 {
		failed = len(r.broken) // a package that did not build has no failed test
	}
	return fmt.Sprintf("%d passed, %d failed, %d skipped", r.passed, failed, r.skipped)
}

// run runs a command and reads what it says. What its end tells beyond that is not
// lost: a command that was killed, or that failed for no test, has not tested all.
func run(command, env []string, w io.Writer) result {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env, cmd.Stderr = env, w
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(w, "cannot run tests:", err)
		return result{broken: []string{command[0]}}
	}
	sum := read(out, w)
	if err := cmd.Wait(); err != nil && (sum.ok() || cmd.ProcessState.ExitCode() != 1) {
		fmt.Fprintf(w, "cannot say that all was tested: %s: %v\n", command[0], err)
		sum.broken = append(sum.broken, command[0])
	}
	return sum
}

// read copies a digest of r to w, and counts.
func read(r io.Reader, w io.Writer) (sum result) {
	output := map[test]string{}
	skips := map[string][]string{}
	named := map[string]bool{} // packages of which a test failed
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.Action == "" {
			fmt.Fprintln(w, lines.Text())
			continue
		}
		k := test{e.Package, e.Test}
		switch {
		case e.Action == "build-output":
			fmt.Fprint(w, e.Output)
		case e.Action == "output":
			output[k] += e.Output
		case e.Test != "" && e.Action == "pass":
			sum.passed++
			delete(output, k)
		case e.Test != "" && e.Action == "skip":
			sum.skipped++
			skips[e.Package] = append(skips[e.Package], e.Test+": "+reason(output[k]))
			delete(output, k)
		case e.Test != "" && e.Action == "fail":
			sum.failed++
			named[e.Package] = true
			if !slices.Contains(sum.tops, k.top()) {
				sum.tops = append(sum.tops, k.top())
			}
			fmt.Fprint(w, output[k])
			if strings.Contains(output[k], "\npanic: ") || strings.HasPrefix(output[k], "panic: ") {
				named[e.Package] = false // what would have run after it did not
			}
			delete(output, k)
		case e.Action == "fail":
			whole := named[e.Package]
			for left, text := range output { // a panic or a time-out leaves tests without an end
				if left.pkg == e.Package {
					whole = whole && left.name == "" && !strings.Contains(text, "panic: ")
					fmt.Fprint(w, text)
					delete(output, left)
				}
			}
			if !whole {
				sum.broken = append(sum.broken, e.Package)
			}
		case e.Action == "pass":
			fmt.Fprintf(w, "ok\t%s\t%.1fs\n", e.Package, e.Elapsed)
			delete(output, k)
		}
		if e.Test == "" && (e.Action == "pass" || e.Action == "fail") {
			for _, s := range skips[e.Package] {
				fmt.Fprintf(w, "\tskipped %s\n", s)
			}
		}
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(w, "cannot read test output:", err)
		sum.broken = append(sum.broken, "the output")
	}
	return sum
}

// reason finds the text of t.Skip in a skipped test's output.
func reason(out string) string {
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "---") {
			return line
		}
	}
	return "no reason given"
}
