package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/stream"
	"github.com/sunaba-dev/sunaba/internal/terminal"
)

// screen is where a program's output goes.
type screen struct {
	out, err  shown
	outs, ers *stream.Capture // of -o json, instead
	closers   []io.Closer
	end       *box.End
}

// maxDocument bounds each stream in a document, in bytes.
const maxDocument = 1 << 20

func newScreen(document, tty bool, cancel context.CancelCauseFunc) (*screen, *box.End) {
	s := &screen{end: new(box.End)}
	switch {
	case document:
		s.outs, s.ers = stream.NewCapture(maxDocument), stream.NewCapture(maxDocument)
	case tty && terminal.IsTerminal(os.Stdout):
		f := stream.NewInteractive(os.Stdout)
		f.Bell = true
		s.out = shown{w: f, end: cancel}
		s.closers = append(s.closers, f)
	default:
		s.out = direct(os.Stdout, cancel)
		s.err = direct(os.Stderr, cancel)
	}
	return s, s.end
}

// direct writes to a terminal what is clean, and to anything else the bytes.
func direct(f *os.File, cancel context.CancelCauseFunc) shown {
	s := shown{w: f, end: cancel}
	if terminal.IsTerminal(f) {
		s.clean = stream.NewCleaner(f)
		s.w = s.clean
	}
	return s
}

func (s *screen) event(e box.ProcessEvent) error {
	var err error
	switch {
	case e.Kind == box.EventEnd:
		*s.end = *e.End
	case e.Kind == box.EventStdout && s.outs != nil:
		_, err = s.outs.Write(e.Data)
	case e.Kind == box.EventStderr && s.ers != nil:
		_, err = s.ers.Write(e.Data)
	case e.Kind == box.EventStdout:
		_, err = s.out.Write(e.Data)
	case e.Kind == box.EventStderr:
		_, err = s.err.Write(e.Data)
	}
	return err
}

func (s *screen) failed() error { return cmp.Or(s.out.failed, s.err.failed) }

func (s *screen) close() {
	s.out.close()
	s.err.close()
	for _, c := range s.closers {
		_ = c.Close() // a terminal that is gone
	}
}

// document is what became of a program.
func (s *screen) document(e box.End) map[string]any {
	d := map[string]any{
		"cause": e.Cause, "exit_code": nil, "signal": nil, "timed_out": e.Cause == box.Deadline,
		"stdout_bytes": e.Stdout, "stderr_bytes": e.Stderr, "truncated": s.outs.Truncated() || s.ers.Truncated(),
	}
	switch e.Cause {
	case box.Exited:
		d["exit_code"] = e.ExitCode
	case box.Signaled:
		d["signal"] = e.Signal
	}
	for name, c := range map[string]*stream.Capture{"stdout": s.outs, "stderr": s.ers} {
		raw := c.Bytes()
		d[name+"_clean"] = stream.Clean(raw)
		d[name] = nil
		if utf8.Valid(raw) {
			d[name] = string(raw)
		} else {
			d[name+"_base64"] = base64.StdEncoding.EncodeToString(raw)
		}
	}
	return d
}

// show answers with a document, if it was asked for, else as text does.
func (b *boxCall) show(v any, text func()) error {
	if b.format != "json" {
		text()
		return nil
	}
	doc, err := json.MarshalIndent(v, "", "  ")
	if err == nil {
		_, err = os.Stdout.Write(append(visibleJSON(doc), '\n'))
	}
	return err
}

// visibleJSON writes as escapes what a terminal would act on or not show. It is
// the same document.
func visibleJSON(doc []byte) []byte {
	out := make([]byte, 0, len(doc))
	for len(doc) > 0 {
		r, n := utf8.DecodeRune(doc)
		switch {
		case r < 0x7f, stream.Clean(doc[:n]) == string(doc[:n]):
			out = append(out, doc[:n]...)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, hi, lo)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		doc = doc[n:]
	}
	return out
}
