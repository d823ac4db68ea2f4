package contexts_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func nodeSteps() []step {
	return []step{
		{code: "const x = 41"},
		{code: "x + 1", value: text("42")},
		{code: "let y = 1; y += x; y", value: text("42")},
		{code: "const x = 5; x", value: text("5")}, // made again, as in a console
		{code: "undefined"},
		{code: "null", value: text("null")},
		{code: "console.log('out'); console.error('err')", stdout: "out\n", stderr: "err\n"},
		{code: "function f(n) { if (!n) throw new RangeError('no n'); return 1 / n }\nclass A { get a() { return 1 } }"},
		{code: "f(2) + new A().a", value: text("1.5")},
		{code: "f(0)", outcome: raised, name: "RangeError", says: "no n", traceback: "~RangeError: no n|~at f (cell-8:1|~at cell-10:1:1"},
		{code: "let let = 1", outcome: raised, name: "SyntaxError", says: "~let", traceback: "~SyntaxError"},
		{code: "if (", outcome: raised, name: "SyntaxError", says: "~Unexpected", traceback: "~SyntaxError"},
		{code: "nope", outcome: raised, name: "ReferenceError", says: "nope is not defined", traceback: "~cell-13:1:1"},
		{code: "throw 'größe'", outcome: raised, name: "Uncaught", says: "'größe'", traceback: "~größe"},
		{code: "const t = await new Promise(r => setTimeout(() => r('slept'), 10)); t", value: text("'slept'")},
		{code: "await Promise.reject(new TypeError('late'))", outcome: raised, name: "TypeError", says: "late", traceback: "~TypeError: late"},
		{code: "Promise.resolve(5)", value: text("Promise { 5 }")},
		{code: "const fs = require('fs'); require('./mod.js').three", value: text("3")},
		{code: "const os = await import('node:os'); typeof os.cpus", value: text("'function'")},
		{code: "import path, { sep as separator } from 'node:path'\nimport * as url from 'node:url';\n[path.sep, separator, typeof url.parse]", value: text("[ '/', '/', 'function' ]")},
		{code: "(await import('./mod.js')).default.three", value: text("3")},
		{code: "{a: 1, b: [2]}", value: text("{ a: 1, b: [ 2 ] }")},
		{code: "new Map([['k', {deep: {er: {est: 1}}}]])", value: text("~Map(1)")},
		{code: "10n ** 20n", value: text("100000000000000000000n")},
		{code: "Symbol('s')", value: text("Symbol(s)")},
		{code: "-0", value: text("-0")},
		{code: "display('shown', {'text/html': '<b>x</b>', 'application/json': {a: 1}}); display(7)",
			shown: []forms{{"text/plain": "'shown'", "text/html": "<b>x</b>", "application/json": `{"a":1}`}, text("7")}},
		{code: "({ [Symbol.for('Jupyter.display')]() { return {'image/png': Buffer.from('89504e470d0a1a0a', 'hex'), 'text/markdown': '*m*'} } })",
			value: forms{"image/png": "PNG", "text/markdown": "*m*", "text/plain": "~Symbol(Jupyter.display)"}},
		{code: "require('child_process').execSync('echo child; echo broken >&2').toString()", stderr: "broken\n", value: text(`'child\n'`)},
		{code: "require('child_process').spawnSync('echo', ['straight'], {stdio: 'inherit'}).status", stdout: "straight\n", value: text("0")},
		{code: "fs.writeFileSync('loop', ''); for (;;) { try { for (;;); } catch {} }", during: interruptAt("loop"), outcome: interrupted, name: "Interrupted", says: "~interrupted"},
		{code: "x", value: text("5")},
		{code: "console.log('begin'); await new Promise(() => {})", request: within(3 * time.Second), stdout: "begin\n", outcome: timedOut, name: "Interrupted", says: "~interrupted"},
		{code: "await 1; for (;;);", request: within(300 * time.Millisecond), outcome: timedOut, name: "Interrupted", says: "~interrupted"},
		{code: "setTimeout(() => { for (;;); }, 5); await new Promise(() => {})", request: within(300 * time.Millisecond), outcome: timedOut, name: "Interrupted", says: "~interrupted"},
		{code: "x", value: text("5")},
		// What was given up leaves nothing that a garbage collection could stumble over.
		{code: "await new Promise(() => {})", request: within(50 * time.Millisecond), outcome: timedOut, name: "Interrupted", says: "~interrupted"},
		{code: "setTimeout(() => { throw Error('gone') }, 5); await new Promise(() => {})", outcome: raised, name: "Error", says: "gone", traceback: "~gone"},
		{code: "require('v8').setFlagsFromString('--expose-gc'); const gc = require('vm').runInNewContext('gc'); gc(); await 1; gc(); x", value: text("5")},
		{code: "setTimeout(() => { throw new Error('in a timer') }, 5); await new Promise(() => {})", outcome: raised, name: "Error", says: "in a timer", traceback: "~in a timer"},
		{code: "for (let i = 0; i < 2000; i++) console.log('y'.repeat(9999))", request: atMost(20000), stdout: strings.Repeat(strings.Repeat("y", 9999)+"\n", 2), dropped: 2000*10000 - 20000},
		{code: "function deep(n) { return deep(n + 1) }; deep(0)", outcome: raised, name: "RangeError", says: "Maximum call stack size exceeded", traceback: "~RangeError"},
		{code: "Error('a value')", value: text("~Error: a value")},
		{code: "console.log('last words'); process.exit(7)", stdout: "last words\n", outcome: died, detail: "the interpreter has exited with status 7"},
		{restart: true, code: "typeof x", value: text("'undefined'")},
		{code: "process.kill(process.pid, 'SIGSEGV'); for (;;);", outcome: died, detail: "~signal 11"},
		{restart: true, code: "1 + 1", value: text("2")},
	}
}

func TestFortyCellsOfJavaScript(t *testing.T) {
	needs(t, "node")
	s := serve(t)
	if err := os.WriteFile(filepath.Join(s.dir, "mod.js"), []byte("exports.three = 3"), 0o644); err != nil {
		t.Fatal(err)
	}
	n := s.open("javascript")
	if !strings.HasPrefix(n.about.Kernel, "node ") {
		t.Errorf("the kernel is %q", n.about.Kernel)
	}
	n.session(nodeSteps())
}
