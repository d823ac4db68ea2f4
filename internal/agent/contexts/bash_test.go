package contexts_test

import (
	"strings"
	"testing"
	"time"
)

func status(s string) step { return step{outcome: raised, name: "ExitStatus", says: s} }

func (s step) of(code string) step { s.code = code; return s }

func bashSteps() []step {
	return []step{
		{code: "x=41"},
		{code: "echo $((x + 1))", stdout: "42\n"},
		{code: "echo out; echo err >&2", stdout: "out\n", stderr: "err\n"},
		{code: "f() { echo \"f: $1\"; return ${2:-0}; }"},
		{code: "f a", stdout: "f: a\n"},
		{code: "f b 4", stdout: "f: b\n", outcome: raised, name: "ExitStatus", says: "4"},
		status("1").of("false"),
		{code: "false; true"},
		status("3").of("(exit 3)"),
		{code: "mkdir -p a/b && cd a/b && pwd | sed 's|.*/a/|/a/|'", stdout: "/a/b\n"},
		{code: "basename \"$PWD\"; cd ../..", stdout: "b\n"},
		{code: "cat <<E\nhere $x\nE\ncat <<'E'\nliteral $x 'quotes' \"and\" \\\nE", stdout: "here 41\nliteral $x 'quotes' \"and\" \\\n"},
		{code: "for i in 1 2\ndo\n  echo \"it's $i\"\ndone", stdout: "it's 1\nit's 2\n"},
		{code: "if", stderr: "~syntax error", outcome: raised, name: "ExitStatus", says: "2"},
		{code: "echo 'unterminated", stderr: "~unexpected EOF", outcome: raised, name: "ExitStatus", says: "2"},
		{code: "echo $x", stdout: "41\n"},
		{code: "nosuchcommand", stderr: "~command not found", outcome: raised, name: "ExitStatus", says: "127"},
		{code: "set -u; echo $nope; echo not here", stderr: "~unbound variable", outcome: raised, name: "ExitStatus", says: "1"},
		{code: "case $- in *u*) echo still;; esac; set +u", stdout: "still\n"},
		{code: "set -o pipefail"},
		status("1").of("false | true"),
		{code: "set +o pipefail; shopt -s nullglob; echo [ /nothere/* ]", stdout: "[ ]\n"},
		{code: "a=(1 2 3); declare -A m=([k]=v); echo ${a[@]:1} ${m[k]}", stdout: "2 3 v\n"},
		{code: "echo ${a[0]} ${m[k]}", stdout: "1 v\n"},
		{code: "alias hi='echo alias'"},
		{code: "hi", stdout: "alias\n"},
		{code: "read line; echo \"[$line] $?\"", stdout: "[] 1\n"},
		{code: "export E=exported; sh -c 'echo $E'; sh -c 'ls /proc/self/fd | grep \"^[0-9]$\" | tr \"\\n\" \" \"'", stdout: "exported\n0 1 2 3 "},
		{code: "exec 5>five; echo to five >&5"},
		{code: "exec 5>&-; cat five", stdout: "to five\n"},
		{code: "{ sleep 0.05; echo done > late; } & wait; cat late", stdout: "done\n", stderr: "~[1]"},
		{code: "touch loop; while :; do :; done", during: interruptAt("loop"), stderr: "\n", outcome: interrupted},
		{code: "echo $x", stdout: "41\n"},
		{code: "echo begin; sleep 60; echo not here", request: within(3 * time.Second), stdout: "begin\n", stderr: "\n", outcome: timedOut},
		{code: "f c", stdout: "f: c\n"},
		{code: "yes yyyyyyyyy | head -c 20000000", request: atMost(20000), stdout: strings.Repeat("yyyyyyyyy\n", 2000), dropped: 20000000 - 20000},
		{code: "sh -c 'kill -KILL $$'", outcome: raised, name: "ExitStatus", says: "137"},
		{code: "printf 'größe \\xff\\n'", stdout: "größe \uFFFD\n"},
		{code: "trap 'echo bye' EXIT; set -e; true"},
		{code: "echo last words; false; echo not here", stdout: "last words\nbye\n", outcome: died, detail: "the interpreter has exited with status 1"},
		{restart: true, code: "echo \"[$x]\"", stdout: "[]\n"},
		{code: "exit 7", outcome: died, detail: "the interpreter has exited with status 7"},
		{restart: true, code: "kill -SEGV $$", outcome: died, detail: "~signal 11"},
		{restart: true, code: "echo again", stdout: "again\n"},
	}
}

func TestFortyCellsOfBash(t *testing.T) {
	needs(t, "bash")
	n := serve(t).open("bash")
	if !strings.HasPrefix(n.about.Kernel, "bash ") {
		t.Errorf("the kernel is %q", n.about.Kernel)
	}
	n.session(bashSteps())
}

func TestBashSaysNothingOfATerminalThatItHasNot(t *testing.T) {
	needs(t, "bash")
	n := serve(t).open("bash", "SHLVL=4")
	if got := n.run("yes | head -n 1"); got.stdout != "y\n" || got.stderr != "" {
		t.Errorf("it tells %v", got.events)
	}
}
