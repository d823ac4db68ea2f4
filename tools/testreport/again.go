package main

import (
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// Who has failed at most so many tests of a whole run may have them looked at
// again, and each has to pass so often then: one that takes minutes fewer times,
// but not fewer than twice.
const (
	fewTests = 2
	manyRuns = 5
	fewRuns  = 2
	runsTime = 4 * time.Minute
)

// again runs what failed once more, alone, and takes for unsteady, not for
// failed, what passes each time. Unsteady is said loudly, after all
// of what the test said as it failed: it is a defect of the test or of what it
// tests, which strikes one run in many, and somebody has to find it; but it does
// not tell anything about the change that is being checked.
//
// It does so only if one or two tests failed, each of a package that may allows,
// and nothing else went wrong: no package that did not build, no panic, no time-out.
// Packages that attack a wall are not allowed by the Makefile: a wall that holds five
// times of six is none.
func again(first result, may *regexp.Regexp, try func(test) error, w io.Writer) result {
	if len(first.broken) > 0 || len(first.tops) == 0 || len(first.tops) > fewTests {
		return first
	}
	for _, t := range first.tops {
		if !may.MatchString(t.pkg) {
			return first
		}
	}
	var unsteady []string
	for _, t := range first.tops {
		n := 0
		for began := time.Now(); n < fewRuns || n < manyRuns && time.Since(began) < runsTime; n++ {
			if err := try(t); err != nil {
				fmt.Fprintf(w, "%s %s fails alone, too, after it passed %d times: %v\n", t.pkg, t.name, n, err)
				return first
			}
		}
		unsteady = append(unsteady, fmt.Sprintf("UNSTEADY %s %s: it failed beside other tests, as above, and passed %d times of %d alone; find out why", t.pkg, t.name, n, n))
	}
	fmt.Fprintln(w, strings.Join(unsteady, "\n"))
	first.passed, first.failed, first.tops = first.passed+first.failed, 0, nil
	return first
}

// goTest runs one test in a process of its own. That it was run is read in what
// it says: a test that is not there, or skips, does not pass.
func goTest(t test, env []string) error {
	cmd := exec.Command("go", "test", "-count=1", "-timeout=10m", "-v", "-run", "^"+regexp.QuoteMeta(t.name)+"$", t.pkg)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if err == nil && !strings.Contains(string(out), "\n--- PASS: "+t.name+" ") {
		err = fmt.Errorf("it did not run")
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}
