package hostname

import (
	"errors"
	"strings"
)

// Pattern stands for one name, or with "*." before it for all names below one
// (the name itself is not among them). The zero Pattern matches nothing.
type Pattern struct {
	base Name
	wild bool
}

// ParsePattern reads a pattern. A star stands for whole labels, at the left
// only, with at least two labels after it. Text that means a name but is not
// written in its canonical form is refused; the error, an [*Error], says how to
// write it.
func ParsePattern(s string) (Pattern, error) {
	base, wild := strings.CutPrefix(s, "*.")
	if strings.Contains(base, "*") {
		return Pattern{}, &Error{Code: Wildcard, Text: s, Why: `a star stands for whole labels at the left, as in "*.example.com"`}
	}
	name, err := Parse(base)
	var e *Error
	switch {
	case errors.As(err, &e):
		e.Text = s
		return Pattern{}, e
	case err != nil:
		return Pattern{}, err
	}
	p := Pattern{name, wild}
	if p.String() != s {
		return Pattern{}, &Error{Code: Form, Text: s, Why: "a policy has names in lower case, as A-labels, without a dot at the end", Fix: p.String()}
	}
	if wild && !strings.Contains(string(name), ".") {
		return Pattern{}, &Error{Code: Wildcard, Text: s, Why: "it stands for a whole top-level domain; at least two labels must follow the star"}
	}
	return p, nil
}

// Exact returns the pattern of one name.
func Exact(n Name) Pattern { return Pattern{base: n} }

// String returns the text of the pattern; empty for the zero Pattern.
func (p Pattern) String() string {
	if p.wild {
		return "*." + string(p.base)
	}
	return string(p.base)
}

// Wild reports whether the pattern has a star.
func (p Pattern) Wild() bool { return p.wild }

// Base returns the name, without the star.
func (p Pattern) Base() Name { return p.base }

// IsZero reports whether there is no pattern.
func (p Pattern) IsZero() bool { return p.base == "" }

// Match reports whether the pattern stands for n.
func (p Pattern) Match(n Name) bool {
	if p.base == "" || n == "" {
		return false
	}
	if !p.wild {
		return n == p.base
	}
	return Under(n, p.base)
}

// Under reports whether n lies below base, at the border of a label.
func Under(n, base Name) bool {
	head, ok := strings.CutSuffix(string(n), string(base))
	return ok && len(head) > 1 && head[len(head)-1] == '.'
}

// Covers reports whether each name that q stands for is one of p's.
func (p Pattern) Covers(q Pattern) bool {
	if q.IsZero() || p.IsZero() {
		return false
	}
	if q.wild {
		return p.wild && (p.base == q.base || Under(q.base, p.base))
	}
	return p.Match(q.base)
}

// Meets reports whether some name is both p's and q's.
func (p Pattern) Meets(q Pattern) bool { return p.Covers(q) || q.Covers(p) }

// MarshalText implements [encoding.TextMarshaler].
func (p Pattern) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler], as [ParsePattern]; the
// empty text is the zero Pattern.
func (p *Pattern) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*p = Pattern{}
		return nil
	}
	q, err := ParsePattern(string(text))
	if err == nil {
		*p = q
	}
	return err
}
