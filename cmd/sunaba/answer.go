package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/engine"
	"github.com/sunaba-dev/sunaba/internal/stream"
)

// answer tells the caller what became of the run, beside the program's own
// output: as a document, or in a few lines on standard error. It returns the
// exit code.
func answer(f *runFlags, rep *box.Report) int {
	if f.format != "json" {
		answerText(f, rep)
		return exitCode(rep)
	}
	if err := engine.WriteReport(os.Stdout, rep); err != nil {
		say(err.Error())
		return exitFault
	}
	return exitCode(rep)
}

func answerText(f *runFlags, rep *box.Report) {
	if rep.Error != nil {
		say(rep.Error.Message)
		if rep.Error.Hint != "" {
			say("hint: " + rep.Error.Hint)
		} else if rep.Error.Kind == box.Invalid {
			hintAboutFiles(f, rep)
		}
		return
	}
	switch rep.Cause {
	case box.Exited:
	case box.Signaled:
		say(fmt.Sprintf("the program was ended by signal %d", *rep.Signal))
	default:
		say("the run was ended: " + explain(f, rep))
	}
	for _, h := range rep.LimitsHit {
		if !h.Ended {
			say(fmt.Sprintf("the program ran into its limit %s (%s)", h.Limit, h.Source))
		}
	}
	if rep.OutputError != "" {
		say("no output: " + rep.OutputError)
	}
	if f.out != "" {
		sayArtifacts(rep)
	}
	if len(rep.Weak) > 0 {
		say("not firm on this host: " + strings.Join(subjects(rep.Weak), ", ") + " (`sunaba doctor` says why)")
	}
	hintAboutFiles(f, rep)
}

func explain(f *runFlags, rep *box.Report) string {
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
		switch {
		case errors.Is(f.unread, syscall.EPIPE):
			return "nobody reads its output any more"
		case f.unread != nil:
			return fmt.Sprintf("its output cannot be written: %v", f.unread)
		}
		return "canceled"
	}
	return "the box was lost; how the program ended is not known"
}

// subjects takes the words before the colon: a run is no place for sentences.
func subjects(weak []string) []string {
	var out []string
	for _, w := range weak {
		s, _, _ := strings.Cut(w, ":")
		out = append(out, s)
	}
	return out
}

// maxSaid bounds the list of artifacts on standard error. The document has all.
const maxSaid = 50

func sayArtifacts(rep *box.Report) {
	for i, a := range rep.Artifacts {
		if i == maxSaid {
			say(fmt.Sprintf("... and %d more files; -o json lists them all", len(rep.Artifacts)-i))
			return
		}
		if a.Error != "" {
			say(fmt.Sprintf("not saved: %s: %s", oneLine(a.Path), oneLine(a.Error)))
		} else if a.Saved != "" {
			say(fmt.Sprintf("saved %s (%d bytes)", oneLine(a.Saved), a.Size))
		}
	}
}

// maxName bounds what is shown of one name.
const maxName = 200

// oneLine shows a name that may hold anything.
func oneLine(name string) string {
	if len(name) > maxName {
		name = name[:maxName/2] + " ... " + name[len(name)-maxName/2:]
	}
	return strings.ReplaceAll(name, "\n", `\n`)
}

// hintAboutFiles helps with the commonest surprise: files of the caller's
// folder are not in the box unless they were asked for.
func hintAboutFiles(f *runFlags, rep *box.Report) {
	if rep.Error == nil && (rep.ExitCode == nil || *rep.ExitCode == 0) {
		return
	}
	args := f.args
	if !f.hasCode && len(args) > 0 {
		if f.command && rep.Error != nil && isFile(args[0]) {
			say(fmt.Sprintf("hint: %s is on this machine but not in the box; `sunaba run %s` copies it in", args[0], args[0]))
			return
		}
		args = args[1:]
	}
	for _, a := range args {
		switch {
		case strings.HasPrefix(a, "/") || strings.HasPrefix(a, "-") || f.has(a):
		case isFile(a):
			say(fmt.Sprintf("hint: %s is on this machine but not in the box; add --copy %s", a, a))
			return
		case isFolder(a):
			say(fmt.Sprintf("hint: %s is on this machine but not in the box; add --mount %s:%s", a, a, path.Join(f.cfg.Workdir, a)))
			return
		}
	}
}

// has says whether a file of that name was asked for.
func (f *runFlags) has(name string) bool {
	return slices.ContainsFunc(f.copies, func(c string) bool {
		src, as, named := strings.Cut(c, ":")
		return src == name || as == name || !named && filepath.Base(src) == name
	})
}

func isFile(name string) bool {
	st, err := os.Lstat(name)
	return err == nil && st.Mode().IsRegular()
}

func isFolder(name string) bool {
	st, err := os.Lstat(name)
	return err == nil && st.IsDir()
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
