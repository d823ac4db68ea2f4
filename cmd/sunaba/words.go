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
)

// words says what a person should know about a run, a line each: nothing after
// a success without a remark.
func words(f *runFlags, rep *box.Report) []string {
	var out []string
	say := func(s string) {
		if s != "" {
			out = append(out, s)
		}
	}
	if e := rep.Error; e != nil {
		say(e.Message)
		if e.Hint != "" {
			say("hint: " + e.Hint)
		} else if e.Kind == box.Invalid {
			say(fileHint(f, rep))
		}
		return out
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
	out = append(out, denialWords(rep.Network.Denied, "--allow", nil)...)
	if rep.ArtifactsError != "" {
		say("not all files came out: " + oneLine(rep.ArtifactsError))
	}
	if rep.OutputError != "" && rep.OutputError != rep.ArtifactsError {
		say("no output: " + oneLine(rep.OutputError))
	}
	if f.out != "" {
		out = append(out, artifactWords(rep)...)
	}
	if f.net != nil {
		for _, w := range f.net.Warnings() {
			say("warning: network policy: " + w)
		}
	}
	if len(rep.Weak) > 0 {
		say("not firm on this host: " + strings.Join(subjects(rep.Weak), ", ") + " (see `sunaba doctor`, and weak in `-o json`)")
	}
	say(fileHint(f, rep))
	return out
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
		if ended(rep, "max_files") {
			return fmt.Sprintf("limit of %d files", l.Files)
		}
		return fmt.Sprintf("disk limit (%d MiB)", l.DiskBytes>>20)
	case box.ProcLimit:
		if ended(rep, "max_open_files") {
			return fmt.Sprintf("limit of %d open files of a process", l.OpenFiles)
		}
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

// ended tells apart the two limits that share a cause.
func ended(rep *box.Report, limit string) bool {
	return slices.ContainsFunc(rep.LimitsHit, func(h box.LimitHit) bool { return h.Ended && h.Limit == limit })
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

func artifactWords(rep *box.Report) []string {
	var out []string
	for i, a := range rep.Artifacts {
		if i == maxSaid {
			return append(out, fmt.Sprintf("... and %d more files; -o json lists them all", len(rep.Artifacts)-i))
		}
		if a.Error != "" {
			out = append(out, fmt.Sprintf("not saved: %s: %s", oneLine(a.Path), oneLine(a.Error)))
		} else if a.Saved != "" {
			out = append(out, fmt.Sprintf("saved %s (%d bytes)", oneLine(a.Saved), a.Size))
		}
	}
	return out
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

// fileHint helps with the commonest surprise: files of the caller's folder are
// not in the box unless they were asked for.
func fileHint(f *runFlags, rep *box.Report) string {
	if rep.ExitCode != nil && *rep.ExitCode == 0 || rep.ExitCode == nil && rep.Error == nil {
		return ""
	}
	args := f.args
	if rep.Error != nil { // it did not start
		if f.command && len(args) > 0 && !f.has(args[0]) && isFile(args[0]) {
			return fmt.Sprintf("hint: %s is on this machine but not in the box; `sunaba run %s` copies it in", args[0], args[0])
		}
		return ""
	}
	if !f.hasCode && len(args) > 0 {
		args = args[1:]
	}
	for _, a := range args {
		switch {
		case strings.HasPrefix(a, "/") || strings.HasPrefix(a, "-") || f.has(a):
		case isFile(a):
			return fmt.Sprintf("hint: %s is on this machine but not in the box; add --copy %s", a, a)
		case isFolder(a):
			return fmt.Sprintf("hint: %s is on this machine but not in the box; add --mount %s:%s", a, a, path.Join(f.cfg.Workdir, a))
		}
	}
	return ""
}

// has says whether a file of that name was asked for.
func (f *runFlags) has(name string) bool {
	name = filepath.Clean(name)
	return slices.ContainsFunc(f.copies, func(c string) bool {
		src, as, named := strings.Cut(c, ":")
		return filepath.Clean(src) == name || as == name || !named && filepath.Base(src) == name
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
