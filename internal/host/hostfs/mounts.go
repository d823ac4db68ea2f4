package hostfs

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
)

// place says where an object lies: by the name that leads to it here, and by
// its file system and path in that, which are the same whichever of several
// mounts it is reached through.
type place struct {
	path   string // from our root
	device string // major:minor
	inside string // path from the file system's own root
}

// holds reports whether q is p or below it in one file system.
func (p place) holds(q place) bool {
	return p.device == q.device && isWithin(p.inside, q.inside)
}

// mountTable is /proc/self/mountinfo, proc_pid_mountinfo(5).
type mountTable []mountLine

type mountLine struct {
	id     int
	device string
	root   string // which part of the file system is mounted
	point  string
}

func readMounts() (mountTable, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("cannot read the mount table: %w", err)
	}
	return parseMounts(string(b))
}

func parseMounts(text string) (mountTable, error) {
	var t mountTable
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 6 {
			return nil, fmt.Errorf("cannot read the mount table: bad line %q", line)
		}
		id, err := strconv.Atoi(f[0])
		if err != nil {
			return nil, fmt.Errorf("cannot read the mount table: bad line %q", line)
		}
		t = append(t, mountLine{id, f[2], unescape(f[3]), unescape(f[4])})
	}
	return t, nil
}

// unescape undoes mountinfo's octal escapes.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\043`, "#", `\134`, `\`).Replace(s)
}

// locate asks the kernel where an open file lies now.
func (t mountTable) locate(f *os.File) (place, error) {
	p, err := os.Readlink(procPath(f))
	if err != nil {
		return place{}, fmt.Errorf("cannot locate %s: %w", f.Name(), err)
	}
	if !path.IsAbs(p) {
		return place{}, fmt.Errorf("cannot locate %s: the kernel calls it %q", f.Name(), p)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", f.Fd()))
	if err != nil {
		return place{}, fmt.Errorf("cannot locate %s: %w", f.Name(), err)
	}
	id := -1
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			id, _ = strconv.Atoi(strings.TrimSpace(v))
		}
	}
	for _, m := range t {
		if m.id != id {
			continue
		}
		if !isWithin(m.point, p) {
			break
		}
		return place{p, m.device, path.Join(m.root, strings.TrimPrefix(p, m.point))}, nil
	}
	return place{}, errors.New("cannot locate " + f.Name() + ": its mount is not in this name space, or it was deleted")
}

// below lists the file systems mounted below a path, as places.
func (t mountTable) below(p string) []place {
	var all []place
	for _, m := range t {
		if m.point != p && isWithin(p, m.point) {
			all = append(all, place{m.point, m.device, m.root})
		}
	}
	return all
}
