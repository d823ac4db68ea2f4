package hostile

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// TestAttacksThatEndTheirBox runs the cases that have a box of their own. One
// neighbour lives through all of them.
func TestAttacksThatEndTheirBox(t *testing.T) {
	all := groups(t)
	for _, p := range places() {
		t.Run(string(p.tier)+"/"+string(p.user), func(t *testing.T) {
			harness.NothingLeft(t)
			n := settle(t, p)
			for _, name := range slices.Sorted(maps.Keys(all)) {
				for _, c := range all[name] {
					if c.is("alone") && c.due(p.tier) {
						t.Run(c.Name, func(t *testing.T) {
							alone(t, p, c)
							n.say(t, c.Name)
						})
					}
				}
			}
			n.stop(t)
		})
	}
}

// alone runs one case between two witnesses and compares how its box ended.
func alone(t *testing.T, p place, c Case) {
	secret := rand.Text()
	words := strings.Fields(c.get("flags"))
	if v, ok := c.of("flags", p.tier, p.user); ok {
		words = strings.Fields(v)
	}
	script := c.get("sh")
	argv := []string{"sh", "-c", fmt.Sprintf("echo %s\n%s\nhostile=$?\necho; echo %s\nexit $hostile", secret, script, secret)}
	if script == "" {
		argv = []string{python, "-c", fmt.Sprintf("secret = %q\nprint(secret, flush=True)\n%s\nprint('\\n' + secret)", secret, c.get("py"))}
	}
	// A deadline that comes before the attack has begun, or has got to the limit that
	// it is about, says nothing of it: where this host has much else to do, it comes
	// later.
	rep, code := runAlone(t, p, words, argv)
	wantHits, _ := c.of("hits", p.tier, p.user)
	for _, later := range []int{20, 80} {
		if rep.Cause == box.Deadline && rep.Policy.Limits.TimeoutSec < float64(later) &&
			(!strings.HasPrefix(rep.StdoutClean, secret+"\n") || !fits(wantHits, hitsOf(rep))) {
			t.Logf("the attack had not come to its limit at its deadline: again with %d seconds: %s", later, hitsOf(rep))
			rep, code = runAlone(t, p, slices.Concat(words, []string{"--timeout", fmt.Sprint(later)}), argv)
		}
	}
	text := rep.StdoutClean
	if !strings.HasPrefix(text, secret+"\n") {
		t.Errorf("there was no witness before: %.300q %v", text, rep.Error)
	}
	text = strings.TrimPrefix(text, secret+"\n")
	after, _ := c.of("after", p.tier, p.user)
	if body, ok := strings.CutSuffix(text, "\n"+secret+"\n"); ok == (after == "no") {
		t.Errorf("there was a witness after: %v, want %v: %.300q %.300q", ok, after != "no", text, rep.StderrClean)
	} else {
		text = body
	}
	expect := func(key, got string) {
		t.Helper()
		if want, _ := c.of(key, p.tier, p.user); !fits(want, got) {
			t.Errorf("%s is %.300q, want %.300q; stderr %.300q", key, got, want, rep.StderrClean)
		}
	}
	expect("cause", string(rep.Cause))
	expect("code", fmt.Sprint(code))
	expect("hits", hitsOf(rep))
	if _, ok := c.of("want", p.tier, p.user); ok {
		expect("want", text)
	}
	if rep.Tier != p.tier {
		t.Errorf("it ran in tier %s", rep.Tier)
	}
}

// hitsOf lists the limits that a run touched, in order.
func hitsOf(rep box.Report) string {
	var hits []string
	for _, h := range rep.LimitsHit {
		if h.Ended {
			hits = append(hits, h.Limit+" ended it")
		} else {
			hits = append(hits, h.Limit)
		}
	}
	slices.Sort(hits)
	return strings.Join(hits, " ")
}

// runAlone runs a program in a box of its own and returns the report, and the code
// of the command.
func runAlone(t *testing.T, p place, words, argv []string) (rep box.Report, code int) {
	t.Helper()
	args := slices.Concat([]string{"run", "-o", "json"}, flags(p.tier), []string{"--timeout", "200"}, words, []string{"--"}, argv)
	cmd := harness.Command(t.Context(), t, p.user, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &errs, 20*time.Second
	timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	start := time.Now()
	_ = cmd.Run()
	took := time.Since(start)
	if err := json.Unmarshal(out.Bytes(), &rep); err != nil {
		t.Fatalf("cannot read report after %v: %v: %.500s %.500s", took, err, out.String(), errs.String())
	}
	return rep, cmd.ProcessState.ExitCode()
}
