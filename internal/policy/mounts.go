package policy

import (
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sunaba-dev/sunaba/box"
)

const (
	maxMounts = 128
	maxPath   = 4095 // PATH_MAX without its final NUL: limits.h
)

// CheckPath refuses a path that is not absolute, clean, valid UTF-8 without
// control characters, and at most 4095 bytes. The error is a [*box.Error] of
// kind Invalid whose message is only the reason, for a caller to put the name
// of the thing before it.
func CheckPath(p string) error {
	bad := func(format string, args ...any) error { return box.Errorf(box.Invalid, op, format, args...) }
	switch {
	case p == "":
		return bad("the path is empty; allowed: an absolute path")
	case len(p) > maxPath:
		return bad("the path has %d bytes; allowed: at most %d", len(p), maxPath)
	case !utf8.ValidString(p) || strings.ContainsFunc(p, unicode.IsControl):
		return bad("the path has bytes that are control characters or not UTF-8")
	case !path.IsAbs(p):
		return bad("the path is not absolute; allowed: one that begins with /")
	case path.Clean(p) != p:
		return bad("the path is not clean; write %q", path.Clean(p))
	}
	return nil
}

// CheckSource refuses a host path that may not be shown in a box: textually,
// by [RefusedSources], by [RefusedNames], by the caller's noMount, and the
// home folder of any user as a whole. The error is a [*box.Error], Invalid for
// a malformed path and Denied otherwise, whose message is only the reason.
func CheckSource(p string, readOnly bool, noMount []string) error {
	if err := CheckPath(p); err != nil {
		return err
	}
	for _, r := range RefusedSources() {
		if r.Write && readOnly {
			continue
		}
		switch {
		case p == r.Path, !r.Whole && below(p, r.Path):
			return refuse("it is %s (%s)", r.Why, r.Path)
		case below(r.Path, p):
			return refuse("it contains %s, %s", r.Path, r.Why)
		}
	}
	for _, n := range RefusedNames() {
		if name, ok := hasName(p, n.Name); ok {
			return refuse("it has %s in it, %s", name, n.Why)
		}
	}
	if home, name := path.Split(p); home == "/home/" && name != "" {
		return refuse("it is a whole home folder, with the keys in it")
	}
	for _, n := range noMount {
		if p == n || below(p, n) || below(n, p) {
			return refuse("no_mount names %s", n)
		}
	}
	return nil
}

func refuse(format string, args ...any) error {
	return box.Errorf(box.Denied, op, "refused: "+format, args...).
		WithHint("show a folder that holds only what the program needs, or copy single files in with --copy")
}

// hasName reports whether p has the components of name in it in order, or ends
// with some of the first ones.
func hasName(p, name string) (string, bool) {
	if strings.Contains(p+"/", "/"+name+"/") {
		return name, true
	}
	for i := strings.LastIndexByte(name, '/'); i > 0; i = strings.LastIndexByte(name[:i], '/') {
		if strings.HasSuffix(p, "/"+name[:i]) {
			return name, true
		}
	}
	return "", false
}

// below reports whether p lies strictly below dir. Both are clean.
func below(p, dir string) bool {
	if dir == "/" {
		return p != "/"
	}
	return strings.HasPrefix(p, dir+"/")
}

// CheckTarget refuses a place in the box where no host path may appear: the
// root, the places of the box's own (/proc, /sys, /dev, /.sunaba, /.sunaba-agent), the working
// directory and what lies above it. Errors are as those of [CheckPath].
func CheckTarget(p, workdir string) error {
	if err := CheckPath(p); err != nil {
		return err
	}
	if p == "/" {
		return box.Errorf(box.Invalid, op, "a mount cannot replace the root of the box")
	}
	if own, ok := inOwn(p); ok {
		return box.Errorf(box.Invalid, op, "%s belongs to the box itself", own)
	}
	if p == workdir || below(workdir, p) {
		return box.Errorf(box.Invalid, op, "a mount there would hide the writable directory %s; allowed: beside it or below it", workdir)
	}
	return nil
}

func inOwn(p string) (string, bool) {
	for _, own := range []string{"/proc", "/sys", "/dev", "/.sunaba", "/.sunaba-agent"} {
		if p == own || below(p, own) {
			return own, true
		}
	}
	return "", false
}

// CheckWorkdir refuses a writable directory that would hide the system in the
// box: the root, a place of the box's own, or a system folder as a whole.
// Errors are as those of [CheckPath].
func CheckWorkdir(p string) error {
	bad := func(why string) error { return box.Errorf(box.Invalid, op, "%s", why) }
	if err := CheckPath(p); err != nil {
		return err
	}
	if own, ok := inOwn(p); ok {
		return bad(own + " belongs to the box itself")
	}
	for _, sys := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc"} {
		if p == sys || below(p, sys) {
			return bad("it would hide or change " + sys + ", which holds the system in the box")
		}
	}
	if p == "/" || slices.Contains([]string{"/var", "/run", "/home", "/opt"}, p) {
		return bad("it would hide a system folder of the box; allowed: a folder of its own, such as /workspace")
	}
	return nil
}

// CheckMounts refuses a spec whose mounts show what may not be shown, appear
// where they may not, or get in each other's way. The error is a [*box.Error]
// and names the mount.
func CheckMounts(spec box.Spec) error {
	if len(spec.Mounts) > maxMounts {
		return box.Errorf(box.Invalid, op, "cannot use %d mounts: allowed: at most %d", len(spec.Mounts), maxMounts)
	}
	for _, n := range spec.NoMount {
		if err := CheckPath(n); err != nil {
			return named(err, "cannot use no_mount %q", n)
		}
	}
	for i, m := range spec.Mounts {
		if err := CheckSource(m.Source, m.ReadOnly, spec.NoMount); err != nil {
			return named(err, "cannot mount %q", m.Source)
		}
		if err := CheckTarget(m.Target, spec.Workdir); err != nil {
			return named(err, "cannot mount %q at %q", m.Source, m.Target)
		}
		for _, o := range spec.Mounts[:i] {
			switch {
			case m.Target == o.Target:
				return box.Errorf(box.Invalid, op, "cannot mount %q at %q: %q is already mounted there", m.Source, m.Target, o.Source)
			case below(m.Target, o.Target), below(o.Target, m.Target):
				return box.Errorf(box.Invalid, op, "cannot mount %q at %q: it overlaps the mount of %q at %q; allowed: places beside each other", m.Source, m.Target, o.Source, o.Target)
			}
		}
	}
	return nil
}

// named puts the name of the thing before a bare reason, kind and hint kept.
func named(err error, format string, args ...any) error {
	e := *err.(*box.Error)
	e.Message = box.Errorf(e.Kind, op, format, args...).Message + ": " + e.Message
	return &e
}
