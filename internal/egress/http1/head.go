// Package http1 reads HTTP/1 as strictly as can be and writes it anew.
//
// A gateway and an upstream that read one stream of bytes in two ways are a
// tunnel: what one takes for a body is a request to the other. So nothing is
// passed on as it came. A head is parsed, whatever is ambiguous or obsolete is
// an error, and what remains is written in one canonical form: lines end with
// CR LF, there is one Host, and a body has exactly one way to tell its length.
// Fields that are for this hop alone end here.
//
// Nothing here knows a policy; who may ask for what is judged in
// internal/egress/cell.
package http1

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Limits bound a head.
type Limits struct {
	URL    int // bytes of a request's target; more is 414
	Header int // bytes of all lines together; more is 431
}

// maxFields is the number of fields in a head; more is 431.
const maxFields = 128

// Error is why a message was refused, with what to answer for it.
type Error struct {
	Status int
	Code   string // stable
	Why    string // half a sentence
}

// Error returns the reason for people.
func (e *Error) Error() string { return "read a refused HTTP message: " + e.Why }

func refuse(status int, code, why string) error { return &Error{status, code, why} }

func malformed(why string) error {
	return refuse(http.StatusBadRequest, "http_malformed", why)
}

// Field is one line of a head.
type Field struct{ Name, Value string }

// Fields are in the order in which they came.
type Fields []Field

// Get returns the value of the only field of that name. It reports false if
// there is none, and an error if there are several.
func (f Fields) Get(name string) (string, bool, error) {
	value, found := "", false
	for _, x := range f {
		if !strings.EqualFold(x.Name, name) {
			continue
		}
		if found {
			return "", true, malformed("there are two fields " + name)
		}
		value, found = x.Value, true
	}
	return value, found, nil
}

// Has reports whether there is a field of that name.
func (f Fields) Has(name string) bool {
	_, found, _ := f.Get(name)
	return found
}

// readLine reads one line without its CR LF, and takes its length from budget.
func readLine(r *bufio.Reader, budget *int) (string, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > *budget {
			return "", refuse(http.StatusRequestHeaderFieldsTooLarge, "header_too_large", "its head is larger than the policy allows")
		}
		line = append(line, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if errors.Is(err, io.EOF) && len(line) > 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return "", err
		}
		break
	}
	*budget -= len(line)
	n := len(line) - 2
	if n < 0 || line[n] != '\r' {
		return "", malformed("a line ends with LF alone")
	}
	for _, c := range line[:n] {
		if c < 0x20 && c != '\t' || c == 0x7f {
			return "", malformed("a line has a control character in it")
		}
	}
	return string(line[:n]), nil
}

func readFields(r *bufio.Reader, budget *int) (Fields, error) {
	var out Fields
	for {
		line, err := readLine(r, budget)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
		if line == "" {
			return out, nil
		}
		if len(out) >= maxFields {
			return nil, refuse(http.StatusRequestHeaderFieldsTooLarge, "header_too_large", fmt.Sprintf("it has more than %d fields", maxFields))
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || !token(name) { // also a line that goes on with the one before
			return nil, malformed("a line of the head is no field")
		}
		if lower := strings.ToLower(name); plain(lower) != lower && framing(plain(lower)) {
			return nil, malformed("a field looks like one that frames the message")
		}
		out = append(out, Field{name, strings.Trim(value, " \t")})
	}
}

// token reports whether s is a token of RFC 9110, 5.6.2.
func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}

// plain is a field's name, in lower case, as gateways to programs (CGI) see it:
// they make no difference between a hyphen and what else is no letter or digit.
func plain(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, name)
}

// framing reports whether a field, in lower case, says where a message ends or
// for whom it is.
func framing(name string) bool {
	switch name {
	case "host", "content-length", "transfer-encoding":
		return true
	}
	return false
}

// hop reports whether a field, in lower case, is for one hop only (RFC 9110, 7.6.1).
func hop(name string) bool {
	switch name {
	case "connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization", "te", "trailer",
		"transfer-encoding", "upgrade", "http2-settings":
		return true
	}
	return false
}

// nominated returns the fields, in lower case, that Connection says are for
// this hop only, and whether it says close or keep-alive.
func nominated(f Fields) (names map[string]bool, closes, keeps bool, err error) {
	names = map[string]bool{}
	for _, x := range f {
		if !strings.EqualFold(x.Name, "Connection") {
			continue
		}
		for word := range strings.SplitSeq(x.Value, ",") {
			word = strings.ToLower(strings.Trim(word, " \t"))
			switch {
			case word == "":
			case word == "close":
				closes = true
			case word == "keep-alive":
				keeps = true
			case framing(word):
				return nil, false, false, malformed("Connection names a field that frames the message")
			default:
				names[word] = true
			}
		}
	}
	return names, closes, keeps, nil
}
