package files

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// maxDepth bounds the nesting of a program's output: readers recurse, and
	// .NET's gives up at 64 levels, serde_json at 128, Python's at about 1000.
	maxDepth = 60
	// maxNumber bounds the bytes of a number: Python refuses 4300 digits.
	maxNumber = 1000
)

// ParseOutput checks that a program's output file is one JSON value that every
// reader understands alike, and returns it without the space around it. A value
// that only some can read would let the program take the whole result from its
// reader. So it must be UTF-8, nested at most 60 deep, with numbers of at most
// 1000 bytes within the range of a double, surrogates only in pairs, and no key
// twice in an object (RFC 8259, RFC 7493). The error is fit to be shown: it
// quotes at most one character, escaped.
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
	if at := loneSurrogate(data); at >= 0 {
		return nil, fmt.Errorf("not usable: half a surrogate pair at byte %d", at+1)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := checkValue(d); err != nil {
		return nil, fmt.Errorf("not usable: %w before byte %d", err, d.InputOffset()+1)
	}
	return value, nil
}

// checkValue reads one value that is known to be JSON and not too deep.
func checkValue(d *json.Decoder) error {
	t, err := d.Token()
	if err != nil {
		return err
	}
	switch t := t.(type) {
	case json.Number:
		if len(t) > maxNumber {
			return fmt.Errorf("a number of more than %d bytes", maxNumber)
		}
		if _, err := t.Float64(); err != nil {
			return errors.New("a number beyond the range of a double")
		}
	case json.Delim:
		keys := map[string]bool{}
		for d.More() {
			if t == '{' {
				k, err := d.Token()
				if err != nil {
					return err
				}
				key, _ := k.(string)
				if keys[key] {
					return errors.New("a key that its object has already")
				}
				keys[key] = true
			}
			if err := checkValue(d); err != nil {
				return err
			}
		}
		_, err := d.Token() // the closing bracket
		return err
	}
	return nil
}

// loneSurrogate returns where in a JSON text the first \u escape is that is half
// a surrogate pair without its other half, or -1. A backslash in JSON is always
// inside a string.
func loneSurrogate(data []byte) int {
	for i := 0; i < len(data); i++ {
		if data[i] != '\\' {
			continue
		}
		i++
		r := escaped(data[i:])
		if !utf16.IsSurrogate(r) {
			continue
		}
		if len(data) < i+11 || data[i+5] != '\\' || utf16.DecodeRune(r, escaped(data[i+6:])) == unicode.ReplacementChar {
			return i - 1
		}
		i += 10
	}
	return -1
}

// escaped returns the code unit of an escape of the form uXXXX, else -1.
func escaped(b []byte) rune {
	if len(b) < 5 || b[0] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(b[1:5]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
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
