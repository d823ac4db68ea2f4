package image

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// pkg is one installed package of dpkg's status file (deb822 format, as
// described in deb-control(5) and dpkg(1)).
type pkg struct {
	name, arch, version string
	needs               []string // Depends and Pre-Depends, one "a | b" each
	provides            []string
}

// dpkg is the package database of a host.
type dpkg struct {
	root      string // "" except in tests
	byName    map[string][]*pkg
	providers map[string][]*pkg
	native    string // architecture that wins where several are installed
}

const dpkgDir = "/var/lib/dpkg"

// readDpkg reads the database; it returns fs.ErrNotExist on a host without.
func readDpkg(root string) (*dpkg, error) {
	status, err := os.ReadFile(root + dpkgDir + "/status")
	if err != nil {
		return nil, err
	}
	d := &dpkg{root: root, byName: map[string][]*pkg{}, providers: map[string][]*pkg{}}
	for stanza := range bytes.SplitSeq(status, []byte("\n\n")) {
		p := parseStanza(string(stanza))
		if p == nil {
			continue
		}
		d.byName[p.name] = append(d.byName[p.name], p)
		for _, virtual := range p.provides {
			d.providers[virtual] = append(d.providers[virtual], p)
		}
		if p.name == "dpkg" {
			d.native = p.arch
		}
	}
	return d, nil
}

// parseStanza returns nil for a package that is not installed.
func parseStanza(s string) *pkg {
	p := &pkg{}
	installed := false
	var field string
	for line := range strings.Lines(s) {
		line = strings.TrimRight(line, "\n")
		if line == "" {
			continue
		}
		value := line
		if line[0] != ' ' && line[0] != '\t' {
			field, value, _ = strings.Cut(line, ":")
		}
		value = strings.TrimSpace(value)
		switch field {
		case "Package":
			p.name = value
		case "Architecture":
			p.arch = value
		case "Version":
			p.version = value
		case "Status":
			installed = strings.HasSuffix(value, " installed")
		case "Depends", "Pre-Depends":
			p.needs = append(p.needs, splitList(value)...)
		case "Provides":
			for _, name := range splitList(value) {
				p.provides = append(p.provides, bareName(name))
			}
		}
	}
	if !installed || p.name == "" || strings.Contains(p.name, "/") || strings.Contains(p.arch, "/") {
		return nil
	}
	return p
}

func splitList(s string) (list []string) {
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}

// bareName drops the version and the architecture: "a:any (>= 1)" is "a".
func bareName(s string) string {
	s, _, _ = strings.Cut(s, "(")
	s, _, _ = strings.Cut(s, "[")
	s, _, _ = strings.Cut(s, ":")
	return strings.TrimSpace(s)
}

// find returns the installed package of that name, or one that provides it.
func (d *dpkg) find(name string) *pkg {
	for _, candidates := range [][]*pkg{d.byName[name], d.providers[name]} {
		for _, p := range candidates {
			if p.arch == d.native || p.arch == "all" {
				return p
			}
		}
		if len(candidates) > 0 {
			return candidates[0]
		}
	}
	return nil
}

// closure returns the named packages and all that they depend on, by name, and
// the names that are not installed. A dependency with alternatives brings the
// first one that is installed; one that nothing satisfies brings nothing.
func (d *dpkg) closure(names []string) (all []*pkg, absent []string) {
	seen := map[*pkg]bool{}
	var todo []*pkg
	for _, name := range names {
		if p := d.find(name); p != nil {
			todo = append(todo, p)
		} else {
			absent = append(absent, name)
		}
	}
	for len(todo) > 0 {
		p := todo[0]
		todo = todo[1:]
		if seen[p] {
			continue
		}
		seen[p] = true
		for _, need := range p.needs {
			for alternative := range strings.SplitSeq(need, "|") {
				if q := d.find(bareName(alternative)); q != nil {
					todo = append(todo, q)
					break
				}
			}
		}
	}
	all = slices.SortedFunc(maps.Keys(seen), func(a, b *pkg) int {
		return strings.Compare(a.name+":"+a.arch, b.name+":"+b.arch)
	})
	return all, absent
}

// files returns the paths that a package owns, folders included.
func (d *dpkg) files(p *pkg) ([]string, error) {
	b, err := os.ReadFile(d.root + dpkgDir + "/info/" + p.name + ":" + p.arch + ".list")
	if errors.Is(err, fs.ErrNotExist) {
		b, err = os.ReadFile(d.root + dpkgDir + "/info/" + p.name + ".list")
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list files of package %s: %w", p.name, err)
	}
	var files []string
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimRight(line, "\n"); cleanAbs(line) {
			files = append(files, line)
		}
	}
	return files, nil
}

// diversion says that every package's file of this name but by's own lies
// elsewhere (see dpkg-divert(1)).
type diversion struct{ to, by string }

func (d *dpkg) diversions() (map[string]diversion, error) {
	b, err := os.ReadFile(d.root + dpkgDir + "/diversions")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read diversions: %w", err)
	}
	m := map[string]diversion{}
	lines := strings.Split(string(b), "\n")
	for ; len(lines) >= 3; lines = lines[3:] {
		m[lines[0]] = diversion{to: lines[1], by: lines[2]}
	}
	return m, nil
}

// alternative is one name in /etc/alternatives.
type alternative struct {
	link  string   // that leads to it: /usr/bin/awk; it belongs to no package
	paths []string // that it may lead to, the preferred one first
}

// alternatives returns what dpkg's alternatives folder says of each name. A file
// there (update-alternatives(1)) holds the mode, the link of the alternative
// itself, pairs of a follower's name and link up to an empty line, and then for
// each candidate its path, its priority, and the path of each follower.
func (d *dpkg) alternatives() (map[string]alternative, error) {
	dir := d.root + dpkgDir + "/alternatives"
	names, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read alternatives: %w", err)
	}
	all := map[string]alternative{}
	for _, n := range names {
		b, err := os.ReadFile(path.Join(dir, n.Name()))
		if err != nil {
			return nil, fmt.Errorf("cannot read alternatives: %w", err)
		}
		addAlternative(all, n.Name(), string(b))
	}
	return all, nil
}

func addAlternative(all map[string]alternative, name, text string) {
	sc := bufio.NewScanner(strings.NewReader(text))
	next := func() string {
		if !sc.Scan() {
			return ""
		}
		return sc.Text()
	}
	next() // the mode: auto or manual
	group, links := []string{name}, []string{next()}
	for follower := next(); follower != ""; follower = next() {
		group, links = append(group, follower), append(links, next())
	}
	type candidate struct {
		priority int
		paths    []string // of each of the group; empty for none
	}
	var candidates []candidate
	for at := next(); at != ""; at = next() {
		c := candidate{paths: []string{at}}
		c.priority, _ = strconv.Atoi(next()) // one that is no number is the last choice
		for range group[1:] {
			c.paths = append(c.paths, next())
		}
		candidates = append(candidates, c)
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int { return b.priority - a.priority })
	for i, member := range group {
		a := alternative{link: links[i]}
		for _, c := range candidates {
			if c.paths[i] != "" {
				a.paths = append(a.paths, c.paths[i])
			}
		}
		all[member] = a
	}
}
