package rest

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/stream"
)

// maxPiece bounds the output in one event, in bytes.
const maxPiece = 16 << 10

type outputRequest struct {
	ProcessPath
	From string `query:"from" maxLength:"48" doc:"Positions of the first bytes wanted, as STDOUT-STDERR; if absent, from the earliest that is kept."`
	Last string `header:"Last-Event-ID" maxLength:"48" doc:"The id of the last event that arrived; it wins over from."`
}

// output follows a program. The client may go away and come back: the program
// neither ends nor loses a byte of what was not sent for half a minute.
func (a *API) output(w http.ResponseWriter, r *http.Request, in *outputRequest) error {
	g, ref, err := a.process(r.Context(), in.ProcessPath, box.ScopeRead)
	if err != nil {
		return err
	}
	from, err := positions(in.Last, in.From)
	if err != nil {
		return err
	}
	e := a.open(w, r)
	t := &teller{e: e, next: from}
	return e.close(t.follow(r.Context(), g, ref))
}

// positions reads the id of an event.
func positions(ids ...string) (box.Positions, error) {
	for _, id := range ids {
		if id == "" {
			continue
		}
		out, errText, ok := strings.Cut(id, "-")
		a, err1 := strconv.ParseUint(out, 10, 62)
		b, err2 := strconv.ParseUint(errText, 10, 62)
		if !ok || err1 != nil || err2 != nil {
			return box.Positions{}, box.Errorf(box.Invalid, "follow", "cannot begin at %q: it is not of the form STDOUT-STDERR", id)
		}
		return box.Positions{Stdout: int64(a), Stderr: int64(b)}, nil
	}
	return box.Positions{Stdout: -1, Stderr: -1}, nil
}

// Piece is a piece of output in an event.
type Piece struct {
	At   int64  `json:"at" doc:"Position of the first byte in its stream."`
	Data string `json:"data,omitempty" doc:"The bytes, if they are UTF-8; else"`
	Raw  []byte `json:"data_base64,omitempty"`
	Lost int64  `json:"lost,omitempty" doc:"So many bytes before this were not kept."`
}

// teller tells a program's story as events. A character that the program wrote
// in two pieces is told in one: its beginning waits for its end, for the end of
// the stream, or for the next beat. The id of an event counts what was told.
type teller struct {
	e       *events
	request *ProcessRequest // if it is known
	next    box.Positions   // of what is told next; -1 is not known
	held    struct{ out, err []byte }
	end     *box.End
	over    func() // called before the end is told, if it is not nil
}

func (t *teller) follow(ctx context.Context, g box.Guest, ref box.ProcessRef) error {
	err := g.Follow(ctx, ref, t.next, t.tell)
	if err == nil && t.end == nil {
		err = box.Errorf(box.Unavailable, "follow", "cannot tell how the program ended: the stream broke off").WithHint("follow it again")
	}
	return err
}

func (t *teller) tell(ev box.ProcessEvent) error {
	switch ev.Kind {
	case box.EventStdout:
		return t.piece(ev, &t.next.Stdout, &t.held.out)
	case box.EventStderr:
		return t.piece(ev, &t.next.Stderr, &t.held.err)
	case box.EventBeat:
		if err := t.release(); err != nil {
			return err
		}
		return t.e.send(t.id(), "beat", struct{}{})
	case box.EventEnd:
		if ev.End == nil {
			return box.Errorf(box.Unavailable, "follow", "cannot tell how the program ended: the box does not say")
		}
		if err := t.release(); err != nil {
			return err
		}
		t.end = ev.End
		if t.over != nil {
			t.over()
		}
		return t.e.send(t.id(), "end", endOf(*ev.End, t.request))
	}
	return nil
}

func (t *teller) piece(ev box.ProcessEvent, next *int64, held *[]byte) error {
	data := ev.Data
	var lost int64
	switch begin := *next + int64(len(*held)); {
	case *next < 0:
		*next = ev.At
	case ev.At < begin:
		return box.Errorf(box.Unavailable, "follow", "cannot go on: the box told the same output twice")
	case ev.At > begin:
		lost = ev.At - begin
		if err := t.say(ev.Kind, next, *held, 0); err != nil {
			return err
		}
		*held, *next = (*held)[:0], ev.At
	case len(*held) > 0:
		data = append(*held, data...)
		*held = nil
	}
	whole := stream.WholeRunes(data)
	for rest := whole; len(rest) > 0; lost = 0 {
		piece := rest
		if len(piece) > maxPiece {
			piece = stream.WholeRunes(rest[:maxPiece])
		}
		if err := t.say(ev.Kind, next, piece, lost); err != nil {
			return err
		}
		rest = rest[len(piece):]
	}
	*held = append([]byte(nil), data[len(whole):]...)
	return nil
}

// say sends one piece that begins at *next.
func (t *teller) say(kind box.EventKind, next *int64, data []byte, lost int64) error {
	if len(data) == 0 {
		return nil
	}
	p := Piece{At: *next, Lost: lost}
	if utf8.Valid(data) {
		p.Data = string(data)
	} else {
		p.Raw = data
	}
	*next += int64(len(data))
	return t.e.send(t.id(), string(kind), p)
}

// release tells what is held back.
func (t *teller) release() error {
	out, errs := t.held.out, t.held.err
	t.held.out, t.held.err = nil, nil
	if err := t.say(box.EventStdout, &t.next.Stdout, out, 0); err != nil {
		return err
	}
	return t.say(box.EventStderr, &t.next.Stderr, errs, 0)
}

func (t *teller) id() string {
	return fmt.Sprintf("%d-%d", max(t.next.Stdout, 0), max(t.next.Stderr, 0))
}
