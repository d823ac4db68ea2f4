package posture

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Thread is what the kernel holds for each thread by itself. A promise about a
// process is one about all its threads.
type Thread struct {
	TID int
	// UID and GID are real, effective, saved and file system ids, in the
	// reader's user namespace.
	UID, GID [4]int
	Groups   []int // supplementary

	// Capability sets; see capabilities(7).
	Inheritable, Permitted, Effective, Bounding, Ambient uint64

	NoNewPrivs bool
	Seccomp    int // 0 none, 1 strict, 2 filter
	Tracer     int // process id of the tracer, 0 if none
}

func threads(pid int) ([]Thread, error) {
	dir := fmt.Sprintf("/proc/%d/task", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, failed("list threads", err)
	}
	var all []Thread
	for _, e := range entries {
		text, err := os.ReadFile(dir + "/" + e.Name() + "/status")
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read thread: %w", err)
		}
		t, err := parseStatus(string(text))
		if err != nil {
			return nil, fmt.Errorf("cannot read thread %s: %w", e.Name(), err)
		}
		if t.Tracer != 0 {
			t.Tracer = processOf(t.Tracer)
		}
		all = append(all, t)
	}
	if len(all) == 0 {
		return nil, failed("read threads", os.ErrNotExist)
	}
	return all, nil
}

// processOf returns the process that a thread belongs to, or 0 if it has gone.
func processOf(tid int) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, "Tgid:"); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(v))
			return n
		}
	}
	return 0
}

// parseStatus reads proc_pid_status(5). A field that is not there is an error:
// silence must not pass for zero.
func parseStatus(text string) (Thread, error) {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.TrimSpace(value)
	}
	var t Thread
	var first error
	get := func(name string) string {
		v, ok := fields[name]
		if !ok && first == nil {
			first = fmt.Errorf("cannot find field %s", name)
		}
		return v
	}
	number := func(s string, base int) uint64 {
		n, err := strconv.ParseUint(s, base, 64)
		if err != nil && first == nil {
			first = fmt.Errorf("cannot parse %q: %w", s, err)
		}
		return n
	}
	ids := func(name string) (out [4]int) {
		f := strings.Fields(get(name))
		if len(f) != 4 && first == nil {
			first = fmt.Errorf("cannot parse %s: %d ids", name, len(f))
		}
		for i := range min(len(f), 4) {
			out[i] = int(number(f[i], 10))
		}
		return out
	}
	t.TID = int(number(get("Pid"), 10))
	t.UID, t.GID = ids("Uid"), ids("Gid")
	for _, g := range strings.Fields(get("Groups")) {
		t.Groups = append(t.Groups, int(number(g, 10)))
	}
	for name, set := range map[string]*uint64{
		"CapInh": &t.Inheritable, "CapPrm": &t.Permitted, "CapEff": &t.Effective, "CapBnd": &t.Bounding, "CapAmb": &t.Ambient,
	} {
		*set = number(get(name), 16)
	}
	t.NoNewPrivs = get("NoNewPrivs") == "1"
	t.Seccomp = int(number(get("Seccomp"), 10))
	t.Tracer = int(number(get("TracerPid"), 10))
	return t, first
}
