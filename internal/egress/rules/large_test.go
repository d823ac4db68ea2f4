package rules

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// large is a policy that is as long as a file may be, made of entries.
func large(entry func(i int) string) string {
	var b strings.Builder
	b.WriteString("version: 1\nhosts:\n")
	for i := range MaxHosts {
		e := entry(i)
		if b.Len()+len(e) > 1<<20 {
			break
		}
		b.WriteString(e)
	}
	return b.String()
}

func several(n int, f func(i int) string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(f(i))
	}
	return b.String()
}

// busy is how long this process has computed: other work on the machine does not count.
func busy(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Whoever may send a policy must not be able to keep the daemon, or the gateway that
// all boxes share, busy for long, nor to fill its memory with what is wrong.
func TestAPolicyIsCheckedInTheTimeAndSpaceOfItsText(t *testing.T) {
	for name, text := range map[string]string{
		"equal entries":       large(func(int) string { return "- {host: a.example.com, tls: splice}\n" }),
		"entries that differ": large(func(i int) string { return fmt.Sprintf("- {host: a.example.com, tls: splice, tx_bytes: %d}\n", i+1) }),
		"equal rules": large(func(i int) string {
			return fmt.Sprintf("- {host: a%d.example.com, port: 80, rules: [%s]}\n", i, strings.Repeat("{},", 256))
		}),
		"equal rules of one host": large(func(i int) string {
			return fmt.Sprintf("- {host: a.example.com, port: 80, rules: [%s]}\n", strings.Repeat("{},", 256))
		}),
		"as many rules as there may be": large(func(i int) string {
			if i >= maxAllRules/256 {
				return ""
			}
			return fmt.Sprintf("- {host: a%d.example.com, port: 80, rules: [%s]}\n", i, several(256, func(r int) string { return fmt.Sprintf("{paths: [/*/*/*/%x,/*/*/*/b%x]},", r, r) }))
		}),
		"rules that deny": large(func(i int) string {
			if i >= maxAllRules/256 {
				return ""
			}
			return fmt.Sprintf("- {host: a%d.example.com, port: 80, rules: [%s]}\n", i, several(128, func(r int) string {
				return fmt.Sprintf("{paths: [/*/*/*/%x]},{paths: [/*/*/*/b%x], decide: deny},", r, r)
			}))
		}),
		"many ports": large(func(i int) string {
			return fmt.Sprintf("- {host: \"*.a.example.com\", tls: splice, ports: [%s]}\n", several(31, func(j int) string { return fmt.Sprintf("%d,", 1000+i*31+j) }))
		}),
		"many ports that deny": large(func(i int) string {
			return fmt.Sprintf("- {host: a.example.com, ports: [%s], %s}\n", several(60, func(j int) string { return fmt.Sprintf("%d,", 1000+i/2*60+j) }), []string{"tls: splice", "decide: deny"}[i%2])
		}),
	} {
		t.Run(name, func(t *testing.T) {
			begin := busy(t)
			p, _, err := load("policy.yaml", []byte(text))
			if p != nil {
				_, err = Parse(p.JSON())
			}
			if took := busy(t) - begin; took > 30*time.Second { // it takes a hundredth, and took minutes
				t.Errorf("%d bytes were checked in %v (%.200v)", len(text), took, err)
			}
			if p != nil {
				if n := len(p.problems()); n > MaxHosts+maxAllRules {
					t.Errorf("%d things are told of it", n)
				}
			}
			t.Logf("%d bytes, %v, %v", len(text), (busy(t) - begin).Round(time.Millisecond), p != nil)
		})
	}
}

func TestRulesAndPathsHaveABoundInAll(t *testing.T) {
	full := func(rules, paths int) string {
		return large(func(i int) string {
			if i >= 16 {
				return ""
			}
			return fmt.Sprintf("- {host: a%d.example.com, port: 80, rules: [%s]}\n", i, several(rules, func(r int) string {
				return fmt.Sprintf("{paths: [%s]},", several(paths, func(p int) string { return fmt.Sprintf("/%x/%x,", r, p) }))
			}))
		})
	}
	if _, err := Load("f", []byte(full(256, 2))); err != nil {
		t.Errorf("the most that there may be: %.300v", err)
	}
	for name, text := range map[string]string{"rules": full(256, 1) + "- {host: b.example.com, port: 80, rules: [{}]}\n", "paths": full(256, 2)[:len(full(256, 2))-3] + "{paths: [/x, /y]}]}\n"} {
		if _, err := Load("f", []byte(text)); err == nil || strings.Count(err.Error(), "\n") != 0 {
			t.Errorf("one more of the %s: %.300v", name, err)
		}
	}
}

// A policy that is accepted can be handed to the gateway, though its text grows on the way.
func TestAPolicyThatIsAcceptedFitsIntoAMessage(t *testing.T) {
	for name, sign := range map[string]string{"fits": "a", "grows": "&"} {
		text := "version: 1\nhosts:\n"
		for i := range 31 {
			text += fmt.Sprintf("- {host: a%d.example.com, port: 80, rules: [%s]}\n", i, several(64, func(r int) string {
				return fmt.Sprintf("{paths: [/%d%s]},", r, strings.Repeat(sign, 350))
			}))
		}
		p, err := Load("policy.yaml", []byte(text))
		switch {
		case name == "fits" && err != nil:
			t.Errorf("%s: %v", name, err)
		case name == "fits" && len(p.JSON()) > MaxJSON, name == "grows" && err == nil:
			t.Errorf("%s: %d bytes are accepted", name, len(p.JSON()))
		case name == "grows" && !strings.Contains(err.Error(), "canonical form"):
			t.Errorf("%s: %.200v", name, err)
		}
	}
}

// A box can ask as often as it likes.
func TestANameIsJudgedInTheTimeOfThePolicy(t *testing.T) {
	p, err := Load("f", []byte(large(func(i int) string {
		if i >= 2000 {
			return ""
		}
		return fmt.Sprintf("- {host: %q, ports: [%s], %s}\n", []string{"*.a.example.com", "x.a.example.com"}[i%2],
			several(60, func(j int) string { return fmt.Sprintf("%d,", 1000+i/2*60+j) }), []string{"tls: splice", "decide: deny"}[i%2])
	})))
	if err != nil {
		t.Fatalf("%.300v", err)
	}
	begin := busy(t)
	for range 5 {
		if p.Name("x.a.example.com") || !p.Name("y.a.example.com") {
			t.Fatal("the denied name is answered, or the other one is not")
		}
	}
	if took := busy(t) - begin; took > time.Second { // it takes 20 ms, and took 5 s
		t.Errorf("ten names were judged in %v", took)
	}
}

func TestARequestIsJudgedInTheTimeOfItsPath(t *testing.T) {
	p, err := Load("f", []byte("version: 1\nhosts:\n- {host: a.example.com, port: 80, rules: [{methods: [\"*\"]}, "+
		several(255, func(r int) string {
			return fmt.Sprintf("{paths: [/%x/%s, /%xx/b/c/d/e], decide: deny},", r, strings.Repeat("a/", 100), r)
		})+"]}\n"))
	if err != nil {
		t.Fatalf("%.300v", err)
	}
	h, _ := p.Host("a.example.com", 80)
	begin := busy(t)
	for range 100 {
		if v := h.Request(Request{Method: "GET", Path: "/" + strings.Repeat("b/", 2000)}); !v.Allow {
			t.Fatal(v)
		}
	}
	if took := busy(t) - begin; took > time.Second { // it takes 50 ms, and took 8 s
		t.Errorf("a hundred requests were judged in %v", took)
	}
	if v := h.Request(Request{Method: "GET", Path: "/FEX/b/C/d/e"}); v.Allow {
		t.Errorf("a denied path in other letters: %+v", v)
	}
}
