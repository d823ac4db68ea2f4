package daemon

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// args is the command line.
type args struct {
	sync     bool   // write out the box's files, and no more
	connect  bool   // hand descriptor 3 to the agent that listens at socket
	dir      string // the working folder
	root     bool   // the agent is guest root and programs may be, too
	handover bool   // streams come over descriptor 3; else it is one itself
	keepCode bool   // the kernel changes pages of code: see giveBack
	socket   string // where streams come from, too; empty = nowhere
}

// parseArgs reads the command line:
//
//	sunaba-agentd serve DIR [root] [handover] [keep-code] [--socket PATH]
//	sunaba-agentd connect --socket PATH
//	sunaba-agentd sync
//
// DIR and PATH are absolute.
func parseArgs(argv []string) (args, error) {
	var a args
	if len(argv) < 2 {
		return a, errors.New("read the command line: want serve, connect or sync")
	}
	rest := argv[2:]
	switch argv[1] {
	case "connect":
		a.connect = true
	case "sync":
		if len(rest) > 0 {
			return a, errors.New("read the command line: sync takes nothing")
		}
		a.sync = true
	case "serve":
		if len(rest) == 0 || !path.IsAbs(rest[0]) || strings.Contains(rest[0], "\x00") {
			return a, errors.New("read the command line: serve wants an absolute folder")
		}
		a.dir, rest = path.Clean(rest[0]), rest[1:]
	default:
		return a, fmt.Errorf("read the command line: %q is no command", argv[1])
	}
	for len(rest) > 0 {
		switch word := rest[0]; {
		case word == "root" && !a.connect:
			a.root = true
		case word == "handover" && !a.connect:
			a.handover = true
		case word == "keep-code" && !a.connect:
			a.keepCode = true
		case word == "--socket" && len(rest) > 1 && path.IsAbs(rest[1]) && !strings.Contains(rest[1], "\x00"):
			a.socket, rest = rest[1], rest[1:]
		default:
			return a, fmt.Errorf("read the command line: %q is not understood", word)
		}
		rest = rest[1:]
	}
	if a.connect && a.socket == "" {
		return a, errors.New("read the command line: connect wants --socket PATH")
	}
	return a, nil
}
