package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/stream"
)

// answer tells the caller what became of the run, beside the program's own
// output: as a document, or in a few lines on standard error.
func answer(f *runFlags, rep *box.Report) {
	if f.format == "json" {
		b, err := json.MarshalIndent(rep, "", "  ")
		if err != nil {
			fmt.Fprintln(os.Stderr, "sunaba: cannot encode the result:", err)
			return
		}
		fmt.Println(string(b))
		return
	}
	if rep.Error != nil {
		say(rep.Error.Message)
		if rep.Error.Hint != "" {
			say("hint: " + rep.Error.Hint)
		}
		return
	}
	switch rep.Cause {
	case box.Exited:
	case box.Signaled:
		say(fmt.Sprintf("the program was ended by signal %d", *rep.Signal))
	default:
		say("the run was ended: " + explain(rep))
	}
	for _, h := range rep.LimitsHit {
		if !h.Ended {
			say(fmt.Sprintf("the program ran into its limit %s (%s)", h.Limit, h.Source))
		}
	}
	if rep.OutputError != "" {
		say("output.json: " + rep.OutputError)
	}
	if f.out != "" {
		sayArtifacts(rep)
	}
	for _, w := range rep.Weak {
		say("not enforced on this host: " + w)
	}
	hintAboutFiles(f, rep)
}

func explain(rep *box.Report) string {
	l := rep.Policy.Limits
	switch rep.Cause {
	case box.Deadline:
		return fmt.Sprintf("deadline of %gs", l.TimeoutSec)
	case box.Idle:
		return fmt.Sprintf("no output or input for %gs", l.IdleSec)
	case box.OutOfMemory:
		return fmt.Sprintf("out of memory (limit %d MiB)", l.MemoryBytes>>20)
	case box.OutputLimit:
		return fmt.Sprintf("more than %d bytes of output", l.OutputBytes)
	case box.DiskLimit:
		return fmt.Sprintf("disk limit (%d MiB, %d files)", l.DiskBytes>>20, l.Files)
	case box.ProcLimit:
		return fmt.Sprintf("limit of %d processes", l.Processes)
	case box.Canceled:
		return "canceled"
	}
	return "the box was lost; how the program ended is not known"
}

func sayArtifacts(rep *box.Report) {
	for _, a := range rep.Artifacts {
		if a.Error != "" {
			say(fmt.Sprintf("not saved: %s: %s", a.Path, a.Error))
		} else if a.Saved != "" {
			say(fmt.Sprintf("saved %s (%d bytes)", a.Saved, a.Size))
		}
	}
}

// hintAboutFiles helps with the commonest surprise: files of the caller's
// folder are not in the box unless they were asked for.
func hintAboutFiles(f *runFlags, rep *box.Report) {
	if !f.command || rep.ExitCode == nil || *rep.ExitCode == 0 {
		return
	}
	for _, a := range f.args[1:] {
		if st, err := os.Lstat(a); err == nil && st.Mode().IsRegular() && !strings.HasPrefix(a, "/") {
			say(fmt.Sprintf("hint: %s is on this machine but not in the box; add --copy %s", a, a))
			return
		}
	}
}

// say writes one line to standard error. Names and messages may come from a
// box, so they are cleaned.
func say(s string) {
	fmt.Fprintln(os.Stderr, "sunaba: "+strings.ReplaceAll(stream.Clean([]byte(s)), "\n", "\nsunaba:   "))
}

// failed tells of an error that came before any box, in the asked-for form.
func failed(f *runFlags, err error) int {
	rep := &box.Report{
		LimitsHit: []box.LimitHit{}, Artifacts: []box.Artifact{}, Weak: []string{}, Start: box.StartCold,
		Image: string(f.cfg.Image),
		Error: &box.ErrorJSON{Kind: box.KindOf(err), Message: err.Error()},
	}
	var e *box.Error
	if errors.As(err, &e) {
		rep.Error.Hint = e.Hint
	}
	answer(f, rep)
	return exitCode(rep)
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
