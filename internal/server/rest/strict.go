package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
)

// strictJSON is JSON that every reader understands in one way: UTF-8, no key
// twice in an object, and keys as they are written (RFC 8259, sections 4 and 8.1,
// leaves the first two to the reader; encoding/json replaces bytes, takes the
// last, and takes Command for command).
func strictJSON() huma.Format {
	return huma.Format{
		Marshal: huma.DefaultJSONFormat.Marshal,
		Unmarshal: func(data []byte, v any) error {
			if err := plainJSON(data); err != nil {
				return err
			}
			return json.Unmarshal(data, v)
		},
	}
}

func plainJSON(data []byte) error {
	if !utf8.Valid(data) {
		return errors.New("the body is not UTF-8")
	}
	if !json.Valid(data) {
		return nil // whoever reads it says where
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	type level struct {
		keys  map[string]bool // nil in a list
		value bool            // a key was read, its value comes
	}
	var open []level
	for {
		token, err := dec.Token()
		if err != nil {
			return nil // the end
		}
		top := len(open) - 1
		key, isText := token.(string)
		switch delim, isDelim := token.(json.Delim); {
		case isDelim && (delim == '}' || delim == ']'):
			open = open[:top]
			continue
		case top >= 0 && open[top].keys != nil && !open[top].value && isText:
			switch {
			case open[top].keys[key]:
				return fmt.Errorf("the key %q is given twice", key)
			case top == 0 && key != strings.ToLower(key):
				return fmt.Errorf("the key %q is not known: all are in lower case", key)
			}
			open[top].keys[key], open[top].value = true, true
			continue
		case top >= 0:
			open[top].value = false
		}
		switch token {
		case json.Delim('{'):
			open = append(open, level{keys: map[string]bool{}})
		case json.Delim('['):
			open = append(open, level{})
		}
	}
}
