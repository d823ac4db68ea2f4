package rules

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sunaba-dev/sunaba/internal/egress/httppath"
)

// Path is a pattern of canonical paths: segments, where "*" stands for any one
// segment that is not empty and "**", at the end only, for any number of them,
// none included. The zero Path matches nothing.
type Path struct{ text string }

// ParsePath reads a pattern. It must be in the canonical form of
// [httppath.Canonical]; the error says what that is.
func ParsePath(s string) (Path, error) {
	canonical, err := httppath.Canonical(s)
	if err != nil {
		var e *httppath.Error
		if errors.As(err, &e) {
			return Path{}, fmt.Errorf("%s", e.Why)
		}
		return Path{}, err
	}
	if canonical != s {
		return Path{}, fmt.Errorf("it is not in canonical form; write %s", canonical)
	}
	segs := segments(s)
	for i, seg := range segs {
		switch {
		case seg == "*", seg == "**" && i == len(segs)-1, !strings.Contains(seg, "*"):
		case seg == "**":
			return Path{}, errors.New(`"**" stands at the end only; use "*" for one segment`)
		default:
			return Path{}, errors.New(`a star stands for a whole segment, as in "/a/*/b"`)
		}
	}
	return Path{s}, nil
}

// String returns the pattern's text.
func (p Path) String() string { return p.text }

// Match reports whether the pattern stands for a canonical path.
func (p Path) Match(path string) bool {
	if p.text == "" || path == "" {
		return false
	}
	return match(p.text[1:], path[1:])
}

// segments cuts a canonical path: "/" has one segment, which is empty.
func segments(path string) []string { return strings.Split(path[1:], "/") }

// match compares segment by segment, and allocates nothing: every rule is asked
// for every request.
func match(pattern, path string) bool {
	for {
		want, patternRest, patternMore := strings.Cut(pattern, "/")
		if want == "**" {
			return true
		}
		got, pathRest, pathMore := strings.Cut(path, "/")
		if want != got && (want != "*" || got == "" || cutShort(got, patternMore && patternRest != "**")) {
			return false
		}
		if !pathMore || !patternMore {
			return patternMore == pathMore || patternMore && patternRest == "**"
		}
		pattern, path = patternRest, pathRest
	}
}

// cutShort reports whether a server that decodes a path, and then looks for where it
// ends, reads nothing of a segment for which a star stands, or ends in it where the
// pattern goes on: what it reads is not what the pattern is for. Where that denies, it
// is seen by wide.
func cutShort(seg string, more bool) bool {
	for _, end := range []string{"%3F", "%23"} {
		if i := strings.Index(seg, end); i == 0 || i > 0 && more {
			return true
		}
	}
	return false
}

// MarshalText implements [encoding.TextMarshaler].
func (p Path) MarshalText() ([]byte, error) { return []byte(p.text), nil }

// UnmarshalText implements [encoding.TextUnmarshaler], as [ParsePath].
func (p *Path) UnmarshalText(text []byte) error {
	q, err := ParsePath(string(text))
	if err == nil {
		*p = q
	}
	return err
}

// all reports whether the pattern stands for each path.
func (p Path) all() bool { return p.text == "/**" }

// Meets reports whether some path is both p's and q's.
func (p Path) Meets(q Path) bool {
	return p.text != "" && q.text != "" && meets(p.text[1:], q.text[1:])
}

// meets goes through two patterns side by side, and allocates nothing: each pair of
// a policy is looked at.
func meets(p, q string) bool {
	for {
		a, pRest, pMore := strings.Cut(p, "/")
		b, qRest, qMore := strings.Cut(q, "/")
		switch {
		case a == "**", b == "**": // at the end, it takes whatever the other asks for
			return true
		case a != b && (a != "*" || b == "") && (b != "*" || a == ""):
			return false
		case !pMore:
			return !qMore || qRest == "**"
		case !qMore:
			return pRest == "**"
		}
		p, q = pRest, qRest
	}
}

// Covers reports whether each path that q stands for is one of p's.
func (p Path) Covers(q Path) bool {
	return p.text != "" && q.text != "" && covers(p.text[1:], q.text[1:])
}

func covers(p, q string) bool {
	for {
		a, pRest, pMore := strings.Cut(p, "/")
		b, qRest, qMore := strings.Cut(q, "/")
		switch {
		case a == "**":
			return true
		case b == "**", a != b && (a != "*" || b == ""):
			return false
		case !qMore:
			return !pMore || pRest == "**"
		case !pMore:
			return false
		}
		p, q = pRest, qRest
	}
}
