package contexts_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
)

// drawn is what a cell prints.
func (n *notebook) drawn(code string) string {
	n.t.Helper()
	got := n.run(code)
	if got.stdout == "" || got.stderr != "" || len(got.failures) > 0 {
		n.t.Fatalf("it told %+v", got)
	}
	return strings.TrimSpace(got.stdout)
}

// draws are cells that print random numbers, by language.
func draws() map[string]string {
	return map[string]string{
		"python":     "import random\nprint(random.random(), random.getrandbits(64))",
		"javascript": "console.log(Math.random(), Math.random())",
		"bash":       "echo $RANDOM $RANDOM $RANDOM",
	}
}

func entropy(b byte) []byte { return bytes.Repeat([]byte{b}, 64) }

// Two copies of one interpreter are two that were seeded alike: then they draw the
// same numbers, or this shows nothing.
func TestCopiesThatAreRenewedDrawNumbersOfTheirOwn(t *testing.T) {
	for language, code := range draws() {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			needs(t, map[string]string{"python": "python3", "javascript": "node", "bash": "bash"}[language])
			one, other := serve(t).open(language), serve(t).open(language)
			one.drawn(code) // what it needs is imported
			other.drawn(code)
			one.s.Renew(entropy(1))
			other.s.Renew(entropy(1))
			a, b := one.drawn(code), other.drawn(code)
			if a != b {
				t.Fatalf("seeded alike they draw %s and %s", a, b)
			}
			one.s.Renew(entropy(2))
			other.s.Renew(entropy(3))
			c, d := one.drawn(code), other.drawn(code)
			if c == d || c == a || d == a {
				t.Errorf("renewed they draw %s and %s, after %s", c, d, a)
			}
		})
	}
}

func TestTwoInterpretersOfOneBoxAreRenewedDifferently(t *testing.T) {
	needs(t, "bash")
	s := serve(t)
	one, other := s.open("bash"), s.open("bash")
	s.s.Renew(entropy(1))
	if a, b := one.drawn(draws()["bash"]), other.drawn(draws()["bash"]); a == b {
		t.Errorf("both draw %s", a)
	}
}

func TestNumpysNumbersAreRenewed(t *testing.T) {
	needsModules(t, "numpy")
	n := serve(t).open("python")
	const code = "import numpy\nprint(numpy.random.rand(3))"
	n.drawn(code)
	var got []string
	for _, b := range []byte{1, 1, 2} {
		n.s.Renew(entropy(b))
		got = append(got, n.drawn(code))
	}
	if got[0] != got[1] || got[0] == got[2] {
		t.Errorf("it draws %q", got)
	}
}

// A cell that runs keeps its numbers; the next one has new ones.
func TestAnInterpreterThatRunsACellIsRenewedBeforeTheNextOne(t *testing.T) {
	needs(t, "python3")
	n := serve(t).open("python")
	n.drawn("import random, time, os\nprint(1)")
	busy := n.start(&pb.RunRequest{Cell: "busy", Code: "random.seed(7)\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint(random.random())"})
	n.becomes(pb.Context_STATE_BUSY, longest)
	n.s.Renew(entropy(1))
	if err := os.WriteFile(filepath.Join(n.dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := <-busy; got.stdout != "0.32383276483316237\n" { // what Python draws first for 7
		t.Errorf("a cell that ran drew %q", got.stdout)
	}
	a := n.drawn("print(random.random())")
	n.s.Renew(entropy(1))
	if b := n.drawn("print(random.random())"); a != b {
		t.Errorf("the next one drew %s, where %s was due", a, b)
	}
}

// OpenSSL's generator lies in the process, and is copied with it.
func TestPythonsSSLIsGivenFreshEntropy(t *testing.T) {
	needs(t, "python3")
	n := serve(t).open("python")
	n.drawn("import ssl\ngot = []\nssl.RAND_add = lambda b, n: got.append((len(b), n))\nprint(1)")
	n.s.Renew(entropy(1))
	if got := n.drawn("print(got)"); got != "[(64, 64.0)]" {
		t.Errorf("it was given %s", got)
	}
}

// Node's cannot be given any: what it draws is mixed with the kernel's, and what
// it had ready is thrown away.
func TestNodesRandomBytesAreMixedWithTheKernels(t *testing.T) {
	needs(t, "node")
	n := serve(t).open("javascript")
	n.drawn(`const fs = require('fs'), crypto = require('crypto'), read = fs.readSync;
		let calls = 0; fs.readSync = (f, b) => { calls++; b.fill(0xff); return b.length };
		crypto.randomUUID(); crypto.randomInt(9); crypto.randomBytes(8); console.log(calls)`)
	if got := n.drawn("console.log(calls)"); got != "0" {
		t.Errorf("the kernel was asked %s times before", got)
	}
	n.s.Renew(entropy(1))
	if got := n.drawn("console.log(calls)"); got != "2" {
		t.Errorf("%s stores of random numbers were filled anew, want that of UUIDs and that of integers", got)
	}
	for i, code := range []string{"crypto.randomBytes(8)", "globalThis.crypto.getRandomValues(new Uint8Array(8))", "crypto.randomFillSync(Buffer.alloc(16), 8)",
		"await new Promise(done => crypto.randomBytes(8, (e, b) => done(b)))", "await new Promise(done => crypto.randomFill(Buffer.alloc(16), 8, (e, b) => done(b)))"} {
		if got := n.drawn("calls = 0; let v" + string(rune('a'+i)) + " = " + code + "; console.log(calls)"); got != "1" {
			t.Errorf("%s asked the kernel %s times", code, got)
		}
	}
	// Where it was written, the bytes are others; what is before stays.
	if got := n.drawn("console.log(vc.subarray(0, 8).every(b => b === 0), vc.subarray(8).some(b => b !== 0), ve.subarray(0, 8).every(b => b === 0))"); got != "true true true" {
		t.Errorf("it wrote %s", got)
	}
}

func TestMathRandomLooksAsItAlwaysDid(t *testing.T) {
	needs(t, "node")
	n := serve(t).open("javascript")
	got := n.drawn(`const all = Array.from({length: 100000}, Math.random), mean = all.reduce((a, b) => a + b) / all.length;
		const d = Object.getOwnPropertyDescriptor(Math, 'random');
		console.log(Math.random.name, Math.random.length, d.enumerable, 'prototype' in Math.random,
			all.every(x => x >= 0 && x < 1), Math.abs(mean - 0.5) < 0.02, new Set(all).size)`)
	if got != "random 0 false false true true 100000" {
		t.Errorf("it says %s", got)
	}
}
