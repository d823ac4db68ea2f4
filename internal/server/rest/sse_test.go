package rest_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/internal/server/rest"
)

// event is one server-sent event, as the standard says it is read.
type event struct {
	id, name string
	data     []byte
}

// eventReader reads a stream.
type eventReader struct{ *bufio.Reader }

func readEvents(r io.Reader) *eventReader { return &eventReader{bufio.NewReaderSize(r, 256<<10)} }

func (r *eventReader) next() (event, error) {
	var e event
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return e, err
		}
		line = line[:len(line)-1]
		field, value, _ := strings.Cut(string(line), ": ")
		switch field {
		case "":
			if e.name != "" {
				return e, nil
			}
		case "id":
			e.id = value
		case "event":
			e.name = value
		case "data":
			e.data = []byte(value)
		}
	}
}

// all reads to the end.
func (r *eventReader) all(t *testing.T) []event {
	t.Helper()
	var out []event
	for {
		e, err := r.next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
}

// story is what a stream has told.
type story struct {
	stdout, stderr []byte
	start          *rest.Started
	end            *rest.ProcessEnd
	last           string // id
}

// take adds an event, and refuses one that does not follow.
func (s *story) take(e event) error {
	if e.id != "" {
		s.last = e.id
	}
	switch e.name {
	case "start":
		return json.Unmarshal(e.data, &s.start)
	case "end":
		return json.Unmarshal(e.data, &s.end)
	case "stdout", "stderr":
		var p rest.Piece
		if err := json.Unmarshal(e.data, &p); err != nil {
			return err
		}
		to := &s.stdout
		if e.name == "stderr" {
			to = &s.stderr
		}
		if p.At != int64(len(*to)) {
			return fmt.Errorf("a piece of %s at %d comes after %d bytes", e.name, p.At, len(*to))
		}
		*to = append(append(*to, p.Data...), p.Raw...)
		if want := fmt.Sprintf("%d-%d", len(s.stdout), len(s.stderr)); e.id != want {
			return fmt.Errorf("event id %s after %s bytes", e.id, want)
		}
	case "beat":
	default:
		return fmt.Errorf("unexpected event %s: %s", e.name, e.data)
	}
	return nil
}

func (s *story) read(t *testing.T, r *eventReader) {
	t.Helper()
	for _, e := range r.all(t) {
		if err := s.take(e); err != nil {
			t.Fatal(err)
		}
	}
}

var errOutOfOrder = errors.New("the stream is not in order")

func jsonInto(b []byte, v any) error { return json.Unmarshal(b, v) }
