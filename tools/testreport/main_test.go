package main

import (
	"strings"
	"testing"
)

func TestReportPassesOnlyWhenTestsRanAndNoneFailed(t *testing.T) {
	for _, c := range []struct {
		name, in, want string
		ok             bool
	}{
		{"pass", `{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Elapsed":1.5}`, "ok\tp\t1.5s\n1 passed, 0 failed, 0 skipped\n", true},
		{"fail", `{"Action":"output","Package":"p","Test":"TestA","Output":"a_test.go:1: broken\n"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p"}`, "a_test.go:1: broken\n0 passed, 1 failed, 0 skipped\n", false},
		{"skip says why", `{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:3: no cgroups\n"}
{"Action":"skip","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestB"}
{"Action":"pass","Package":"p"}`, "ok\tp\t0.0s\n\tskipped TestA: a_test.go:3: no cgroups\n1 passed, 0 failed, 1 skipped\n", true},
		{"build failure", `{"Action":"build-output","ImportPath":"p","Output":"p.go:1: syntax error\n"}
{"Action":"fail","Package":"p"}`, "p.go:1: syntax error\n0 passed, 1 failed, 0 skipped\n", false},
		{"time-out leaves a test open", `{"Action":"output","Package":"p","Test":"TestA","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"p"}`, "panic: test timed out\n0 passed, 1 failed, 0 skipped\n", false},
		{"nothing ran", ``, "0 passed, 0 failed, 0 skipped\n", false},
		{"not json", "go: cannot find module", "go: cannot find module\n0 passed, 0 failed, 0 skipped\n", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			if ok := report(strings.NewReader(c.in), &out); ok != c.ok || out.String() != c.want {
				t.Errorf("got %v and\n%s\nwant %v and\n%s", ok, out.String(), c.ok, c.want)
			}
		})
	}
}
