package files

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// maxDepth bounds the nesting of a program's output. Common JSON readers recurse
// and give up, or crash, at about a thousand.
const maxDepth = 512

// ParseOutput checks that a program's output file is one JSON value in UTF-8,
// nested at most 512 deep (RFC 8259), and returns it without the space around
// it. The error is fit to be shown: it quotes at most one character, escaped.
func ParseOutput(data []byte) (json.RawMessage, error) {
	data = bytes.Trim(data, " \t\r\n")
	switch {
	case len(data) == 0:
		return nil, errors.New("not JSON: the file is empty")
	case bytes.HasPrefix(data, []byte("\xef\xbb\xbf")):
		return nil, errors.New("not JSON: the file begins with a byte order mark")
	case !utf8.Valid(data):
		return nil, errors.New("not JSON: the file is not valid UTF-8")
	}
	if depth(data) > maxDepth {
		return nil, fmt.Errorf("not usable: nested deeper than %d", maxDepth)
	}
	var value json.RawMessage
	if err := json.Unmarshal(data, &value); err != nil {
		if se, ok := errors.AsType[*json.SyntaxError](err); ok {
			return nil, fmt.Errorf("not JSON: %v at byte %d", se, se.Offset)
		}
		return nil, fmt.Errorf("not JSON: %v", err)
	}
	return value, nil
}

// depth returns the deepest nesting of brackets outside strings.
func depth(data []byte) int {
	deepest, now, inString := 0, 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '[' || c == '{':
			now++
			deepest = max(deepest, now)
		case c == ']' || c == '}':
			now--
		}
	}
	return deepest
}
