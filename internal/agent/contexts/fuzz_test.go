package contexts

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
)

// FuzzDriverLine: whatever a driver says, what is taken of it keeps the bounds.
func FuzzDriverLine(f *testing.F) {
	for _, s := range []string{
		`{"op":"ready","kernel":"python 3.11.2"}`,
		`{"op":"result","n":1,"main":true,"forms":{"text/plain":"1","image/png":"AAAA","application/json":"[1]"},"dropped":0}`,
		`{"op":"error","n":1,"name":"E","value":"v","traceback":"t"}`,
		`{"op":"end","n":1,"status":"ok"}`, `{"op":"end","n":1,"code":130}`, `{"op":"pong","n":7}`,
		`{"op":"result","forms":{"image/png":"?","a b":"c","application/x+json":"{"}}`, `[[[[[[`, `{"op":"pong"} {}`, "\xff", `{"op":"end","n":-1}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := parse(line)
		if err != nil {
			return
		}
		if m.Op == "ready" && !isKernelName(m.Kernel) || m.Code < 0 || m.Code > 255 || m.Dropped < 0 || len(m.Forms) > maxForms {
			t.Fatalf("taken: %+v", m)
		}
		if m.Op != "result" {
			return
		}
		s := newStory(100)
		s.result(m)
		s.end(&pb.CellEnd{})
		events, over, _ := s.since(1)
		if !over {
			t.Fatal("no end")
		}
		for _, e := range events {
			for name, data := range e.GetResult().GetForms() {
				if len(name) > maxFormName || strings.ContainsAny(name, "\n\r\x00") || !utf8.ValidString(name) || !utf8.ValidString(data) {
					t.Fatalf("form %q: %q", name, data)
				}
				base, _, _ := strings.Cut(name, ";")
				if (base == "application/json" || strings.HasSuffix(base, "+json")) && !json.Valid([]byte(data)) {
					t.Fatalf("form %q: %q", name, data)
				}
				if name == "image/png" {
					if _, err := io.ReadAll(base64.NewDecoder(base64.StdEncoding, strings.NewReader(data))); err != nil {
						t.Fatalf("form %q: %q", name, data)
					}
				}
			}
		}
	})
}

// FuzzDriverChannel: lines arrive in any pieces and are the same lines; nothing
// that comes makes the reader keep more than a line.
func FuzzDriverChannel(f *testing.F) {
	f.Add([]byte("{\"op\":\"pong\",\"n\":1}\n{\"op\":\"end\",\"n\":2}\nrest"), uint8(3))
	f.Add([]byte("\n\n"), uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, piece uint8) {
		var want []message
		bad := false
		whole := b[:strings.LastIndexByte(string(b), '\n')+1]
		for line := range strings.SplitSeq(strings.TrimSuffix(string(whole), "\n"), "\n") {
			m, err := parse([]byte(line))
			if bad = err != nil; bad {
				break
			}
			want = append(want, m)
		}
		if len(whole) == 0 {
			want, bad = nil, false
		}
		ended := &fake{}
		l := &life{proc: ended, messages: make(chan message, len(want)), quit: make(chan struct{})}
		for i := 0; i < len(b) && !ended.killed; {
			n := min(max(int(piece), 1), len(b)-i)
			l.hear(b[i : i+n])
			i += n
		}
		if ended.killed != bad || len(l.messages) != len(want) || len(l.rest) > maxLine {
			t.Fatalf("%d messages, want %d; ended %v, want %v", len(l.messages), len(want), ended.killed, bad)
		}
	})
}

// FuzzText: text in any pieces is valid, bounded, numbered, and counted to the byte.
func FuzzText(f *testing.F) {
	f.Add([]byte("größe\xff\xe2\x82"), uint8(1), uint16(100))
	f.Add([]byte("abc"), uint8(2), uint16(2))
	f.Fuzz(func(t *testing.T, b []byte, piece uint8, limit uint16) {
		s := newStory(int64(limit))
		for i := 0; i < len(b); {
			n := min(max(int(piece), 1), len(b)-i)
			s.write(i%2*int(piece%2), b[i:i+n])
			i += n
		}
		s.end(&pb.CellEnd{})
		events, _, _ := s.since(1)
		out := ""
		for i, e := range events {
			if e.Number != uint64(i)+1 || !utf8.ValidString(e.GetStdout()) || !utf8.ValidString(e.GetStderr()) || len(e.GetStdout()) > 3*maxText {
				t.Fatalf("event %d: %v", i, e)
			}
			out += e.GetStdout()
		}
		if d := events[len(events)-1].GetEnd().GetDroppedBytes(); d != uint64(max(0, len(b)-int(limit))) {
			t.Fatalf("%d of %d bytes are counted as dropped", d, len(b))
		}
		if piece%2 == 0 && len(b) <= int(limit) && utf8.Valid(b) && out != string(b) {
			t.Fatalf("%q became %q", b, out)
		}
	})
}

func TestSmallPiecesOfTextBecomeFewEvents(t *testing.T) {
	s := newStory(MaxOutput)
	for range 100000 {
		s.write(0, []byte("a"))
		s.write(1, []byte("b"))
	}
	s.end(&pb.CellEnd{})
	events, _, _ := s.since(1)
	if len(events) > 2000 || s.cost() > 2<<20 {
		t.Errorf("200000 bytes are %d events that cost %d", len(events), s.cost())
	}
}

func TestPipesAreDrainedThoughTheyAreHeldOpen(t *testing.T) {
	r, w := pipes(t)
	got := make(chan int, 1000)
	p, err := newPump(r, func(b []byte) { got <- len(b) })
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	for i := range 100 {
		if _, err := w.Write(make([]byte, i+1)); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { p.drain(); close(done) }()
		select {
		case <-done:
		case <-time.After(2 * time.Minute):
			t.Fatal("a drain does not end")
		}
		sum := 0
		for len(got) > 0 {
			sum += <-got
		}
		if sum != i+1 {
			t.Fatalf("after the drain %d of %d bytes have come", sum, i+1)
		}
	}
}
