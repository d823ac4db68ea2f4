package cgroup

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The usual arguments of [Detect].
const (
	Root       = "/sys/fs/cgroup"
	MountInfo  = "/proc/self/mountinfo"
	SelfCgroup = "/proc/self/cgroup"
)

// hostLeaf is the group into which this process steps aside when it sits alone
// in a delegated group of version 2: such a group can have limited children
// only while it holds no process itself.
const hostLeaf = "sunaba-host"

// Detect finds the hierarchies that are mounted at or below root, as seen from
// this process, and tries in each whether a group can be made. A host without
// any usable hierarchy is no error here: [Manager.Create] and [Manager.Probe]
// say what is missing.
//
// In version 1 groups are made at the top of each mount. In version 2 they are
// made at the top if that is allowed, else in this process's own group, which
// is the delegated one in a systemd user session (systemd-run --user --scope
// -p Delegate=yes). If this process is alone in that group it moves itself into
// a leaf, sunaba-host, as the rule "no processes in inner groups" demands; so
// call Detect before starting helpers.
func Detect(root, mountinfo, selfcgroup string) (*Manager, error) {
	mounts, err := os.ReadFile(mountinfo)
	if err != nil {
		return nil, fmt.Errorf("cannot find control groups: %w", err)
	}
	self, err := os.ReadFile(selfcgroup)
	if err != nil {
		return nil, fmt.Errorf("cannot find own control group: %w", err)
	}
	return detect(kernelFS{}, root, string(mounts), string(self), os.Getpid()), nil
}

func detect(fsys fsys, root, mountinfo, selfcgroup string, pid int) *Manager {
	m := &Manager{fs: fsys}
	var v2 *mount
	for _, mt := range parseMounts(mountinfo, root) {
		if mt.version == 2 {
			v2 = &mt
			continue
		}
		t := &tree{version: 1, base: mt.point}
		for _, c := range []string{"memory", "cpu", "cpuacct", "pids", "freezer"} {
			if slices.Contains(mt.options, c) && !m.has(c) {
				t.controllers = append(t.controllers, c)
			}
		}
		if len(t.controllers) > 0 {
			t.err = m.try(t)
			m.trees = append(m.trees, t)
		}
	}
	if v2 != nil {
		m.trees = append(m.trees, m.chooseV2(*v2, ownGroup(selfcgroup), pid))
	}
	return m
}

// chooseV2 picks the top of the mount or the own group, whichever works.
func (m *Manager) chooseV2(mt mount, own string, pid int) *tree {
	bases := []string{mt.point}
	if rel, ok := within(mt.root, own); ok && rel != "" {
		if path.Base(rel) == hostLeaf {
			rel = path.Dir(rel) // an earlier Detect of this process stepped aside
		}
		bases = append(bases, path.Join(mt.point, rel))
	}
	var trees []*tree
	for _, base := range bases {
		t := &tree{version: 2, base: base}
		list, err := m.fs.Read(base + "/cgroup.controllers")
		for _, c := range controllers {
			// What version 1 has taken is never in this list; the check
			// keeps a lookup unambiguous all the same.
			if slices.Contains(strings.Fields(list), c) && !m.has(c) {
				t.controllers = append(t.controllers, c)
			}
		}
		if t.err = err; err == nil {
			t.err = m.try(t)
		}
		if errors.Is(t.err, unix.EBUSY) && m.stepAside(base, pid) == nil {
			t.err = m.try(t)
		}
		if t.err == nil {
			return t
		}
		trees = append(trees, t)
	}
	return trees[len(trees)-1]
}

func (m *Manager) has(controller string) bool {
	return slices.ContainsFunc(m.trees, func(t *tree) bool { return t.has(controller) })
}

// tryPrefix begins the names of groups that are made only to see whether they
// can be. Process numbers would not do: they come again, and in every PID
// namespace.
const tryPrefix = "try-"

// Tidy removes what was left by processes that were killed while they tried. A
// group that somebody is just trying with may go, too: that one does not miss it.
func (m *Manager) Tidy() {
	for _, t := range m.trees {
		names, err := m.fs.Dirs(t.parent())
		if err != nil {
			continue
		}
		for _, n := range names {
			if strings.HasPrefix(n, tryPrefix) {
				m.fs.Rmdir(t.parent() + "/" + n)
			}
		}
	}
}

// try makes the parent folder, switches the controllers on, and cleans up.
func (m *Manager) try(t *tree) error {
	if _, err := m.fs.Dirs(t.base); err != nil {
		return err // listed as mounted, and then covered by another mount
	}
	err := m.fs.Mkdir(t.parent())
	if errors.Is(err, fs.ErrExist) {
		// Somebody's groups are in there, perhaps root's: mkdir(2) says that
		// a folder exists before it says that we may not write.
		child := t.parent() + "/" + tryPrefix + strings.ToLower(rand.Text()[:12])
		if err = m.fs.Mkdir(child); err == nil {
			m.fs.Rmdir(child)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // somebody else's clean-up took the folder: it can be made
	}
	if err != nil {
		return err
	}
	err = m.enable(t)
	m.fs.Rmdir(t.parent()) // fails if groups are in it, as it should
	if errors.Is(err, fs.ErrNotExist) {
		return nil // somebody else's clean-up took the folder: it can be made
	}
	return err
}

// enable switches the tree's controllers on for grandchildren of base. It does
// nothing in version 1.
func (m *Manager) enable(t *tree) error {
	if t.version != 2 {
		return nil
	}
	for _, dir := range []string{t.base, t.parent()} {
		file := dir + "/cgroup.subtree_control"
		on, err := m.fs.Read(file)
		if err != nil {
			return err
		}
		for _, c := range t.controllers {
			if slices.Contains(strings.Fields(on), c) {
				continue
			}
			if err := m.fs.Write(file, "+"+c); err != nil {
				return fmt.Errorf("cannot enable controller %s: %w", c, err)
			}
		}
	}
	return nil
}

// stepAside moves this process into a leaf of dir if it is alone in dir.
func (m *Manager) stepAside(dir string, pid int) error {
	procs, err := m.fs.Read(dir + "/cgroup.procs")
	if err != nil {
		return err
	}
	if procs != strconv.Itoa(pid) {
		return errors.New("other processes are in the group")
	}
	leaf := dir + "/" + hostLeaf
	if err := m.fs.Mkdir(leaf); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return m.fs.Write(leaf+"/cgroup.procs", procs)
}

// mount is one line of mountinfo that shows control groups.
type mount struct {
	version int
	root    string   // which folder of the hierarchy is mounted
	point   string   // where
	options []string // of the super block: the controllers in version 1
}

// parseMounts reads mountinfo, proc_pid_mountinfo(5), and keeps the control
// group mounts at or below root. Of several mounts on one point the last one
// is visible.
func parseMounts(text, root string) []mount {
	var all []mount
	for line := range strings.Lines(text) {
		left, right, ok := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 6 || len(r) < 3 {
			continue
		}
		mt := mount{root: unescape(l[3]), point: unescape(l[4]), options: strings.Split(r[2], ",")}
		switch r[0] {
		case "cgroup":
			mt.version = 1
		case "cgroup2":
			mt.version = 2
		default:
			continue
		}
		if _, ok := within(root, mt.point); !ok {
			continue
		}
		all = slices.DeleteFunc(all, func(o mount) bool { return o.point == mt.point })
		all = append(all, mt)
	}
	return all
}

// unescape undoes mountinfo's octal escapes of space, tab, newline, backslash.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// ownGroup returns this process's path in the tree of version 2.
func ownGroup(selfcgroup string) string {
	for line := range strings.Lines(selfcgroup) {
		if p, ok := strings.CutPrefix(line, "0::"); ok {
			return strings.TrimSuffix(p, "\n")
		}
	}
	return ""
}

// within returns p relative to dir if p is dir or below it.
func within(dir, p string) (string, bool) {
	if p == "" || slices.Contains(strings.Split(p, "/"), "..") {
		return "", false // outside of our cgroup namespace
	}
	if dir == "/" {
		return strings.TrimPrefix(p, "/"), true
	}
	rest, ok := strings.CutPrefix(p, dir)
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	return strings.TrimPrefix(rest, "/"), true
}
