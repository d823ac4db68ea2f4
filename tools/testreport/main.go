// Command testreport turns the output of `go test -json` on its standard input
// into a page that can be read: one line a package, the output of what failed,
// every skip with its reason, and the count as the last line.
//
// It exits 1 if anything failed, and if no test ran at all: a green run that
// tested nothing is a failure.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// event is one line of test2json's output (go doc test2json).
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
}

func main() {
	if !report(os.Stdin, os.Stdout) {
		os.Exit(1)
	}
}

// report copies a digest of r to w and says whether tests ran and all passed.
func report(r io.Reader, w io.Writer) bool {
	type key struct{ pkg, test string }
	output := map[key]string{}
	skips := map[string][]string{}
	var passed, failed, skipped, badPackages int
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.Action == "" {
			fmt.Fprintln(w, lines.Text())
			continue
		}
		k := key{e.Package, e.Test}
		switch {
		case e.Action == "build-output":
			fmt.Fprint(w, e.Output)
		case e.Action == "output":
			output[k] += e.Output
		case e.Test != "" && e.Action == "pass":
			passed++
			delete(output, k)
		case e.Test != "" && e.Action == "skip":
			skipped++
			skips[e.Package] = append(skips[e.Package], e.Test+": "+reason(output[k]))
			delete(output, k)
		case e.Test != "" && e.Action == "fail":
			failed++
			fmt.Fprint(w, output[k])
			delete(output, k)
		case e.Action == "fail":
			badPackages++
			for left, text := range output { // a panic or a time-out leaves tests without an end
				if left.pkg == e.Package {
					fmt.Fprint(w, text)
					delete(output, left)
				}
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
		badPackages++
	}
	if failed == 0 && badPackages > 0 {
		failed = badPackages // a package that did not build has no failed test
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	return failed == 0 && passed > 0
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
