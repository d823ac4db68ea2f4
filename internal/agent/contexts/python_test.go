package contexts_test

import (
	"strings"
	"testing"
	"time"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
)

const (
	raised      = pb.CellEnd_OUTCOME_ERROR
	interrupted = pb.CellEnd_OUTCOME_INTERRUPTED
	timedOut    = pb.CellEnd_OUTCOME_TIMEOUT
	died        = pb.CellEnd_OUTCOME_DIED
)

func text(s string) forms { return forms{"text/plain": s} }

func within(d time.Duration) func(*pb.RunRequest) {
	return func(r *pb.RunRequest) { r.TimeoutMillis = uint64(d.Milliseconds()) }
}

func atMost(bytes uint64) func(*pb.RunRequest) {
	return func(r *pb.RunRequest) { r.OutputBytes = bytes }
}

// onePixel is a PNG, in Python.
const onePixel = `import base64
pixel = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
class Pixel:
    def _repr_png_(self): return pixel
    def __repr__(self): return "<pixel>"
`

func pythonSteps() []step {
	return []step{
		{code: "x = 41"},
		{code: "x + 1", value: text("42")},
		{code: "x += 1\nprint(x)\nx * 2", stdout: "42\n", value: text("84")},
		{code: "None"},
		{code: "x;"},
		{code: "import sys\nprint('out')\nprint('err', file=sys.stderr)", stdout: "out\n", stderr: "err\n"},
		{code: "def f(n):\n    return 1 / n\nf(1)", value: text("1.0")},
		{code: "f(0)", outcome: raised, name: "ZeroDivisionError", says: "division by zero", traceback: "~return 1 / n|~f(0)|~ZeroDivisionError: division by zero"},
		{code: "f(2)", value: text("0.5")},
		{code: "if True print(1)", outcome: raised, name: "SyntaxError", says: "~invalid syntax", traceback: "~if True print(1)|~SyntaxError"},
		{code: "nope", outcome: raised, name: "NameError", says: "name 'nope' is not defined", traceback: "~NameError"},
		{code: "raise ValueError('größe')", outcome: raised, name: "ValueError", says: "größe", traceback: "~größe"},
		{code: "import os, subprocess\nsubprocess.run(['echo', 'child'])\nos.write(1, b'raw\\n');", stdout: "child\nraw\n"},
		{code: "import ctypes\nctypes.CDLL(None).printf(b'from C\\n'); ctypes.CDLL(None).fflush(None)\nNone", stdout: "from C\n"},
		{code: "subprocess.run('echo broken >&2; exit 3', shell=True).returncode", stderr: "broken\n", value: text("3")},
		{code: onePixel + "Pixel()", value: forms{"image/png": "PNG", "text/plain": "<pixel>"}},
		{code: "display(Pixel())\ndisplay({'a': 1})", shown: []forms{{"image/png": "PNG", "text/plain": "<pixel>"}, text("{'a': 1}")}},
		{code: "class Rich:\n    def _repr_html_(self): return '<b>hi</b>'\n    def _repr_svg_(self): return '<svg/>'\n    def _repr_markdown_(self): return '**hi**'\n    def _repr_latex_(self): return '$x$'\n    def _repr_json_(self): return {'a': [1]}\n    def __repr__(self): return 'rich'\nRich()",
			value: forms{"text/html": "<b>hi</b>", "image/svg+xml": "<svg/>", "text/markdown": "**hi**", "text/latex": "$x$", "application/json": `{"a": [1]}`, "text/plain": "rich"}},
		{code: "class Bundle:\n    def _repr_mimebundle_(self, include=None, exclude=None): return {'text/html': '<i/>', 'application/vnd.test.v1+json': {'k': 1}, 'text/plain': 'b'}\nBundle()",
			value: forms{"text/html": "<i/>", "application/vnd.test.v1+json": `{"k": 1}`, "text/plain": "b"}},
		{code: "import asyncio\nawait asyncio.sleep(0.01)\ny = await asyncio.sleep(0, 'slept')\ny", value: text("'slept'")},
		{code: "async def g():\n    await asyncio.sleep(0)\n    raise KeyError('k')\nawait g()", outcome: raised, name: "KeyError", says: "'k'", traceback: "~raise KeyError('k')"},
		{code: "input('name? ')", outcome: raised, name: "RuntimeError", says: "~input()", traceback: "~RuntimeError"},
		{code: "open('loop', 'w').close()\nwhile True: pass", during: interruptAt("loop"), outcome: interrupted, name: "KeyboardInterrupt", traceback: "~KeyboardInterrupt"},
		{code: "x", value: text("42")},
		{code: "import time\nprint('begin')\ntime.sleep(60)", request: within(3 * time.Second), stdout: "begin\n", outcome: timedOut, name: "KeyboardInterrupt", traceback: "~time.sleep(60)"},
		{code: "x", value: text("42")},
		{code: "open('nap', 'w').close()\nawait asyncio.sleep(60)\nprint('late')", during: interruptAt("nap"), outcome: interrupted, name: "KeyboardInterrupt", traceback: "~KeyboardInterrupt"},
		{code: "await asyncio.sleep(0.05)"},
		{code: "print('é' * 30000)", request: atMost(1000), stdout: strings.Repeat("é", 500), dropped: 59001},
		{code: "import sys\nfor _ in range(2000): sys.stdout.write('y' * 9999 + '\\n')", request: atMost(20000), stdout: strings.Repeat(strings.Repeat("y", 9999)+"\n", 2), dropped: 2000*10000 - 20000},
		{code: "os.write(1, b'a\\xffb\\n')\nNone", stdout: "a\uFFFDb\n"},
		{code: "sys.exit(3)", outcome: raised, name: "SystemExit", says: "3", traceback: "~SystemExit"},
		{code: "exit()", outcome: raised, name: "SystemExit", says: "~", traceback: "~SystemExit"},
		{code: "pid = os.fork()\nif pid == 0:\n    print('in the child')\nelse:\n    os.waitpid(pid, 0)\nNone", stdout: "in the child\n"},
		{code: "def deep(n): return deep(n + 1)\ndeep(0)", outcome: raised, name: "RecursionError", says: "~maximum recursion depth", traceback: "~RecursionError"},
		{code: "class Bad:\n    def __repr__(self): raise OSError('no repr')\nBad()", outcome: raised, name: "OSError", says: "no repr", traceback: "~no repr"},
		{code: "x", value: text("42")},
		{code: "print('last words')\nos._exit(7)", stdout: "last words\n", outcome: died, detail: "the interpreter has exited with status 7"},
		{restart: true, code: "x", outcome: raised, name: "NameError", says: "name 'x' is not defined", traceback: "~NameError"},
		{code: "import ctypes, sys\nprint('a', end='')\nsys.stdout.flush()\nctypes.string_at(0)", stdout: "a", outcome: died, detail: "~signal 11"},
		{restart: true, code: "1 + 1", value: text("2")},
	}
}

func TestFortyCellsOfPlainPython(t *testing.T) {
	needs(t, "python3")
	n := serve(t).open("python", withoutIPython(t))
	if !strings.HasPrefix(n.about.Kernel, "python 3.") {
		t.Errorf("the kernel is %q", n.about.Kernel)
	}
	n.session(pythonSteps())
}

func TestFortyCellsOfIPython(t *testing.T) {
	needsModules(t, "IPython")
	n := serve(t).open("python")
	if !strings.HasPrefix(n.about.Kernel, "ipython ") {
		t.Errorf("the kernel is %q", n.about.Kernel)
	}
	n.session(pythonSteps())
}

// figures and tables, which need libraries.
func richSteps() []step {
	figure := func(s string) forms { return forms{"image/png": "PNG", "text/plain": "~" + s} }
	return []step{
		{code: "import matplotlib.pyplot as plt\nlines = plt.plot([1, 2])", shown: []forms{figure("<Figure")}},
		{code: "plt.get_fignums()", value: text("[]")},
		{code: "lines = plt.plot([1, 2])\nplt.show()\nprint('shown')", stdout: "shown\n", shown: []forms{figure("<Figure")}},
		{code: "for i in range(2):\n    plt.figure()\n    lines = plt.plot([i])\n", shown: []forms{figure("<Figure"), figure("<Figure")}},
		{code: "fig = plt.figure()\nfig", value: figure("<Figure")},
		{code: "plt.plot([1])\n1 / 0", outcome: raised, name: "ZeroDivisionError", says: "division by zero", traceback: "~1 / 0", shown: []forms{figure("<Figure")}},
		{code: "import pandas as pd\ndf = pd.DataFrame({'a': [1, 2], 'b': ['x', None]})\ndf",
			value: forms{"text/plain": "~   a     b\n0  1     x", "text/html": "~<table", "application/json": `{"columns": ["a", "b"], "data": [[1, "x"], [2, null]], "rows": 2}`}},
		{code: "pd.DataFrame({'n': range(5000)})", value: forms{"text/plain": "~5000 rows", "text/html": "~<table", "application/json": `~[999]], "rows": 5000}`}},
	}
}

func TestFiguresAndTables(t *testing.T) {
	needsModules(t, "matplotlib", "pandas")
	t.Run("plain", func(t *testing.T) { serve(t).open("python", withoutIPython(t)).session(richSteps()) })
	t.Run("ipython", func(t *testing.T) {
		needsModules(t, "IPython")
		n := serve(t).open("python")
		n.session(append(richSteps(),
			step{code: "%matplotlib inline\nlines = plt.plot([1, 2])", shown: []forms{{"image/png": "PNG", "text/plain": "~<Figure"}}},
			step{code: "!echo from a shell", stdout: "from a shell\n"},
			step{code: "from IPython.display import HTML, Markdown\ndisplay(HTML('<b/>'))\nMarkdown('*m*')",
				shown: []forms{{"text/html": "<b/>", "text/plain": "~HTML"}}, value: forms{"text/markdown": "*m*", "text/plain": "~Markdown"}},
		))
	})
}
