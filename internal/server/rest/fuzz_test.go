package rest

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sunaba-dev/sunaba/box"
)

// A range lies within the file, whatever was asked for.
func FuzzRange(f *testing.F) {
	for _, s := range []string{"bytes=0-3", "bytes=-5", "bytes=9-", "bytes=0-0,2-3", "bytes=--1", "bytes=4611686018427387904-", "bytes=-9223372036854775807", "bytes= 1-2"} {
		f.Add(s, int64(10))
	}
	f.Fuzz(func(t *testing.T, s string, size int64) {
		if size < 0 {
			return
		}
		offset, length, ok, err := rangeOf(s, size)
		if ok && (err != nil || offset < 0 || length <= 0 || offset > size-length) {
			t.Errorf("%q of %d bytes: %d bytes from %d (%v)", s, size, length, offset, err)
		}
	})
}

// What is accepted as plain JSON is the same after it was read and written.
func FuzzPlainJSON(f *testing.F) {
	for _, s := range []string{`{"a":1,"a":2}`, `{"a":[{"b":{}},{"b":"a"}],"c":"c"}`, `[1,"a","a"]`, "\"\xff\"", `{"a":{"a":{"a":[]}}}`, `{"A":1}`, `{"a":"b","b":"a"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if plainJSON(data) != nil || !json.Valid(data) {
			return
		}
		if !utf8.Valid(data) {
			t.Errorf("%q is not UTF-8", data)
		}
		var v any
		if err := json.Unmarshal(data, &v); err != nil {
			return // a number that no float holds
		}
		// As many keys as there are colons outside of text: none was given twice.
		if got, want := countKeys(v), colons(data); got != want {
			t.Errorf("%q has %d keys, and %d are left", data, want, got)
		}
	})
}

func countKeys(v any) (n int) {
	switch v := v.(type) {
	case map[string]any:
		for _, below := range v {
			n += 1 + countKeys(below)
		}
	case []any:
		for _, below := range v {
			n += countKeys(below)
		}
	}
	return n
}

func colons(data []byte) (n int) {
	text := false
	for i := 0; i < len(data); i++ {
		switch {
		case text && data[i] == '\\':
			i++
		case data[i] == '"':
			text = !text
		case !text && data[i] == ':':
			n++
		}
	}
	return n
}

// A path is absolute and has no NUL; the id of an event is what it was made of.
func FuzzNames(f *testing.F) {
	f.Add("/a", "", "1-2")
	f.Add("", "L2E", "9223372036854775807-0")
	f.Add("", "//8=", "-")
	f.Fuzz(func(t *testing.T, text, b64, id string) {
		if p, err := pathOf(text, b64); err == nil && (!strings.HasPrefix(p, "/") || strings.Contains(p, "\x00")) {
			t.Errorf("%q, %q gave %q", text, b64, p)
		}
		p, err := positions(id)
		if err != nil || id == "" {
			return
		}
		again, err := positions((&teller{next: p}).id())
		if p.Stdout < 0 || p.Stderr < 0 || again != (box.Positions{Stdout: p.Stdout, Stderr: p.Stderr}) || err != nil {
			t.Errorf("%q gave %+v", id, p)
		}
	})
}
