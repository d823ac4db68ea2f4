package hostname

import "fmt"

// Code says in a stable word why a text is no name or pattern.
type Code string

// The codes of [Error].
const (
	Empty     Code = "name_empty"
	Character Code = "name_character" // not one of a-z 0-9 - _ .
	Long      Code = "name_long"
	Label     Code = "name_label"   // empty, too long, or a hyphen at an end
	Unicode   Code = "name_idna"    // IDNA or Punycode that is not canonical
	Address   Code = "name_address" // an IP address, to some reader
	Form      Code = "name_form"    // pattern: a name, but not as it should be written; see Fix
	Wildcard  Code = "name_wildcard"
)

// Error is what is wrong with a name or a pattern.
type Error struct {
	Code Code
	Text string // as it came; hostile
	Why  string // half a sentence
	Fix  string // what to write instead; empty if it cannot be known
}

// Error implements error. The text is quoted and cut.
func (e *Error) Error() string {
	text := e.Text
	if len(text) > 64 {
		text = text[:64] + "..."
	}
	out := fmt.Sprintf("cannot use host name %+q: %s", text, e.Why)
	if e.Fix != "" {
		out += "; write " + e.Fix
	}
	return out
}
