package engine

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/stream"
)

// Texts longer than this are written in pieces of this many bytes.
const piece = 16 << 10

// WriteReport writes the report as one indented JSON document with a newline at
// its end. A program's output may be as long as the operator allows, and the
// encoder of the standard library would hold it several times over: long texts
// are encoded piece by piece.
func WriteReport(w io.Writer, rep *box.Report) error {
	doc := *rep
	held := make(map[string]string)
	hold := func(s *string) *string {
		if s == nil || len(*s) <= piece {
			return s
		}
		mark := rand.Text()
		held[mark] = *s
		return &mark
	}
	doc.Stdout, doc.StdoutBase64, doc.StdoutClean = hold(rep.Stdout), hold(rep.StdoutBase64), *hold(&rep.StdoutClean)
	doc.Stderr, doc.StderrBase64, doc.StderrClean = hold(rep.Stderr), hold(rep.StderrBase64), *hold(&rep.StderrClean)
	b, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot encode report: %w", err)
	}
	b = append(b, '\n')
	for len(held) > 0 {
		mark, at := firstMark(b, held)
		if _, err := w.Write(b[:at]); err != nil {
			return fmt.Errorf("cannot write report: %w", err)
		}
		if err := writeText(w, held[mark]); err != nil {
			return fmt.Errorf("cannot write report: %w", err)
		}
		b = b[at+len(mark):]
		delete(held, mark)
	}
	if _, err := w.Write(b); err != nil {
		return fmt.Errorf("cannot write report: %w", err)
	}
	return nil
}

// firstMark finds the first of the marks, each of which is in b exactly once.
func firstMark(b []byte, held map[string]string) (mark string, at int) {
	at = len(b)
	for m := range held {
		if i := bytes.Index(b, []byte(m)); i < at {
			mark, at = m, i
		}
	}
	return mark, at
}

// writeText writes the inside of a JSON string.
func writeText(w io.Writer, s string) error {
	for len(s) > 0 {
		n := len(s)
		if n > piece {
			n = len(stream.WholeRunes([]byte(s[:piece])))
		}
		b, err := json.Marshal(s[:n])
		if err != nil {
			return err
		}
		if _, err := w.Write(b[1 : len(b)-1]); err != nil {
			return err
		}
		s = s[n:]
	}
	return nil
}
