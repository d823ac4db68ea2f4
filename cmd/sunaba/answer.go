package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/engine"
	"github.com/sunaba-dev/sunaba/internal/stream"
)

// answer tells the caller what became of the run, beside the program's own
// output: as a document, or in a few lines on standard error. It returns the
// exit code.
func answer(f *runFlags, rep *box.Report) int {
	if f.format != "json" {
		for _, line := range words(f, rep) {
			if f.midLine {
				fmt.Fprintln(os.Stderr)
				f.midLine = false
			}
			say(line)
		}
		return exitCode(rep)
	}
	if err := engine.WriteReport(os.Stdout, rep); err != nil {
		say(err.Error())
		return exitFault
	}
	return exitCode(rep)
}

// say writes one line to standard error. Names and messages may come from a
// box, so they are cleaned.
func say(s string) {
	fmt.Fprintln(os.Stderr, "sunaba: "+strings.ReplaceAll(stream.Clean([]byte(s)), "\n", "\nsunaba:   "))
}

// failed tells of an error that came before any box, in the asked-for form.
func failed(f *runFlags, err error) int {
	rep := engine.Refused(engine.Request{Policy: f.cfg.Request(), User: f.cfg.User}, err)
	return answer(f, rep)
}

// invalid makes an error the caller's mistake, unless it knows better.
func invalid(err error) error {
	var e *box.Error
	if errors.As(err, &e) {
		return err
	}
	return box.Errorf(box.Invalid, "run", "%w", err)
}

// formatOf finds -o json in a line that could not be parsed.
func formatOf(args []string) string {
	for i, a := range args {
		if a == "--" {
			break
		}
		if a == "-o=json" || a == "--o=json" || (a == "-o" || a == "--o") && i+1 < len(args) && args[i+1] == "json" {
			return "json"
		}
	}
	return "text"
}
