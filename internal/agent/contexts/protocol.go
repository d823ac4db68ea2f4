package contexts

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/sunaba-dev/sunaba/box"
)

// What a driver may say. The interpreter runs what a stranger wrote, and that
// can say anything in the driver's place: a line that breaks these bounds ends
// the context.
const (
	maxLine      = 5 << 20 // bytes
	maxDepth     = 64      // of application/json
	maxForms     = 16
	maxFormName  = 100 // bytes
	maxKernel    = 61  // bytes
	maxNameBytes = 256
	maxErrorText = 1 << 20 // bytes of an error's value and traceback together
)

// message is one line from a driver.
type message struct {
	Op string `json:"op"` // ready, begin, result, error, end, pong
	N  uint64 `json:"n"`  // the cell, or the ping

	Kernel string `json:"kernel"` // ready

	Main    bool              `json:"main"` // result
	Forms   map[string]string `json:"forms"`
	Dropped int64             `json:"dropped"` // bytes that the driver found too many

	Name      string `json:"name"` // error
	Value     string `json:"value"`
	Traceback string `json:"traceback"`

	Status string `json:"status"` // end: ok, error, interrupted
	Code   int    `json:"code"`   // end, of bash: the exit status
}

// kernelName has no more than maxKernel bytes, which are counted apart: a bound
// in an expression is slow to compile.
var kernelName = regexp.MustCompile(`^[a-z]+ [0-9A-Za-z.+~_-]+$`)

func isKernelName(s string) bool { return len(s) <= maxKernel && kernelName.MatchString(s) }

// parse reads one line, without its end. An error has no word of it: it becomes a
// reason that is told as ours.
func parse(line []byte) (message, error) {
	var m message
	if len(line) > maxLine {
		return m, fmt.Errorf("cannot take a line of %d bytes", len(line))
	}
	if !utf8.Valid(line) {
		return m, errors.New("cannot take a line that is not UTF-8")
	}
	if depth(line) > 4 { // ours has two
		return m, errors.New("cannot take a line that is nested so deep")
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return m, errors.New("cannot read a line: it is no message")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return m, errors.New("cannot take two values in a line")
	}
	return m, m.check()
}

func (m *message) check() error {
	switch m.Op {
	case "pong", "begin":
	case "ready":
		if !isKernelName(m.Kernel) {
			return errors.New("cannot take that as a kernel's name")
		}
	case "end":
		if s := m.Status; s != "" && s != "ok" && s != "error" && s != "interrupted" {
			return errors.New("cannot take that as the end of a cell")
		}
		if m.Code < 0 || m.Code > 255 {
			return fmt.Errorf("cannot take %d as an exit status", m.Code)
		}
	case "error":
		if m.Name == "" || len(m.Name) > maxNameBytes*4 || len(m.Value)+len(m.Traceback) > maxErrorText*2 {
			return errors.New("cannot take an error of that length")
		}
	case "result":
		if m.Dropped < 0 || m.Dropped > 1<<50 || len(m.Forms) > maxForms {
			return errors.New("cannot take so many forms of a result")
		}
		m.dropForms()
	default:
		return errors.New("cannot take a line about that")
	}
	return nil
}

// dropForms takes away what is no form of a value and counts it. A library may
// offer that without having meant any harm, so the line stands.
func (m *message) dropForms() {
	for name, data := range m.Forms {
		if checkForm(name, data) != nil {
			m.Dropped += int64(len(data))
			delete(m.Forms, name)
		}
	}
}

// checkForm wants the name of a type (RFC 6838, and one parameter), and of binary
// types base64 and of JSON JSON.
func checkForm(name, data string) error {
	if len(name) > maxFormName || !box.IsMediaType(name) {
		return fmt.Errorf("cannot take %.50q as the name of a form", name)
	}
	base, _, _ := strings.Cut(name, ";")
	switch {
	case base == "application/json" || strings.HasSuffix(base, "+json"):
		if depth([]byte(data)) > maxDepth || !json.Valid([]byte(data)) {
			return fmt.Errorf("cannot take a form %s that is not JSON, or nested deeper than %d", name, maxDepth)
		}
	case Binary(name):
		d := base64.NewDecoder(base64.StdEncoding, strings.NewReader(data))
		if _, err := io.Copy(io.Discard, d); err != nil {
			return fmt.Errorf("cannot take a form %s that is not base64: %w", name, err)
		}
	}
	return nil
}

// Binary reports whether the forms of a MIME type are told in base64.
func Binary(name string) bool {
	base, _, _ := strings.Cut(name, ";")
	switch {
	case strings.HasSuffix(base, "+xml"), strings.HasSuffix(base, "+json"):
		return false
	case base == "application/pdf", base == "application/octet-stream":
		return true
	}
	top, _, _ := strings.Cut(base, "/")
	return top == "image" || top == "audio" || top == "video" || top == "font"
}

// depth is how deep the brackets outside of strings are nested, at most. It is
// asked before a decoder is, which would go that deep.
func depth(b []byte) int {
	deepest, now, quoted := 0, 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			now++
			deepest = max(deepest, now)
		case c == ']' || c == '}':
			now--
		}
	}
	return deepest
}
