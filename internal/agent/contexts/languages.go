package contexts

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// The drivers: what an interpreter needs to know of us, in its own language.
// They reach it by a descriptor and are never files that a program could change.
var (
	//go:embed drivers/python.py
	pythonDriver string
	//go:embed drivers/node.js
	nodeDriver string
	//go:embed drivers/bash.sh
	bashDriver string
)

// language is how one kind of interpreter is started and spoken to.
type language struct {
	name   string
	argvs  [][]string // the first whose program is there
	driver string
	// reads says that the program reads its driver, and then cells, as its
	// standard input; else the driver comes on descriptor 5 and commands on 3.
	reads bool
	// group says that an interrupt is for the whole process group at once, as
	// from a terminal; else for the interpreter alone.
	group bool
	// soft says that an interrupt is asked for by a command, not by a signal.
	soft bool
	// noise is a line on stderr that the interpreter itself writes and that means
	// nothing here; its number goes in. Empty for none.
	noise string
	// pings says that it answers pings while it is idle.
	pings bool
}

// languageOf returns nil for a language that there is none of.
func languageOf(name string) *language {
	switch name {
	case "python":
		boot := "import os; exec(compile(os.fdopen(5).read(), '<sunaba>', 'exec'))"
		return &language{name: name, driver: pythonDriver, pings: true,
			argvs: [][]string{{"python3", "-c", boot}, {"python", "-c", boot}}}
	case "javascript":
		// A cell that is ended in a timer leaves node's account of who called whom
		// unfinished, and node would abort for that; the parser is node's own.
		boot := []string{"--no-force-async-hooks-checks", "--expose-internals", "--no-warnings", "-e",
			"{const f=require('fs');const s=f.readFileSync(5,'utf8');f.closeSync(5);eval(s)}"}
		return &language{name: name, driver: nodeDriver, pings: true, soft: true,
			argvs: [][]string{append([]string{"node"}, boot...), append([]string{"nodejs"}, boot...)}}
	case "bash":
		return &language{name: name, driver: bashDriver, reads: true, group: true,
			// Told when a child was ended by a signal: there is no terminal to set right.
			noise: `bash: \[%d: \d+ \(\d+\)\] tcsetattr: [A-Za-z ]+\n`,
			argvs: [][]string{{"bash", "--noprofile", "--norc", "--noediting", "-i"}}}
	}
	return nil
}

// command is one line to a driver.
type command struct {
	Op   string `json:"op"` // run, ping, interrupt, renew
	N    uint64 `json:"n"`
	Code string `json:"code,omitempty"`
	Seed string `json:"seed,omitempty"` // 128 hexadecimal digits
}

// line is how a command is said.
func (l *language) line(c command) []byte {
	if !l.reads {
		b, _ := json.Marshal(c) // of strings and numbers only: no error
		return append(b, '\n')
	}
	if c.Op == "renew" {
		return []byte("{ RANDOM=" + strconv.FormatUint(seed(c.Seed), 10) + "; } 2>/dev/null\n")
	}
	end := fmt.Sprintf("__sunaba_end %d $?\n", c.N)
	if c.Op != "run" {
		return []byte(end)
	}
	// The descriptor that the driver tells of ends with is closed while cells run.
	// A line is read as a whole before any of it is run, so what tells of the
	// beginning also tells that an interrupt will find no half of a line.
	begin := fmt.Sprintf("{ __sunaba_begin %d; } 2>/dev/null; ", c.N)
	return []byte(begin + "eval '" + strings.ReplaceAll(c.Code, "'", `'\''`) + "' </dev/null 7>&-\n" + end)
}

// check says why code can be no cell, or "".
func (l *language) check(code string) string {
	switch {
	case len(code) > MaxCode:
		return fmt.Sprintf("%d bytes of code are more than %d", len(code), MaxCode)
	case l.reads && strings.ContainsRune(code, 0):
		return "the code has a zero byte"
	}
	return ""
}

// seed is as much of a seed as a shell takes: 32 bits, and not 0.
func seed(digits string) uint64 {
	n, _ := strconv.ParseUint(digits[:min(8, len(digits))], 16, 32)
	return n | 1
}
