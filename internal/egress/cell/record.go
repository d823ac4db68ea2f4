package cell

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/sunaba-dev/sunaba/internal/egress/event"
	"github.com/sunaba-dev/sunaba/internal/egress/link"
)

// Denial is what was denied for one reason, and how often.
type Denial struct {
	Kind   string `json:"kind"`
	Name   string `json:"name,omitempty"`
	Addr   string `json:"addr,omitempty"`
	Port   uint16 `json:"port,omitempty"`
	Method string `json:"method,omitempty"`
	Path   string `json:"path,omitempty"`
	Code   string `json:"code"`
	Rule   string `json:"rule,omitempty"`
	Reason string `json:"reason,omitempty"`
	Fix    string `json:"fix,omitempty"`
	Count  int64  `json:"count"`
}

const (
	// maxDenials is how many different denials are told apart; what comes later
	// is counted under its code alone.
	maxDenials = 256
	// Events of one cell: at most this many at once, and a second. Denials have a
	// measure of their own, so that a box cannot hide what it does by asking for what
	// it may not do.
	eventBurst  = 512
	eventRate   = 200
	denialBurst = 512
	denialRate  = 50
)

type record struct {
	mu      sync.Mutex
	denials map[Denial]*Denial // by what tells them apart
	lost    int64              // events that were not told
	untold  int64              // of them, those since the last that was
	panics  int64
	allowed bucket
	denied  bucket
}

// emit counts an event and tells it, unless there are too many.
func (c *Cell) emit(e event.Event) {
	e.Time, e.Cell = time.Now(), c.cfg.ID
	if e.Generation == 0 {
		e.Generation = c.rule.Load().generation
	}
	if c.record.note(&e) {
		c.cfg.Events(e)
	}
}

func (r *record) note(e *event.Event) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	var tell bool
	if e.Decision == event.Deny {
		r.deny(*e)
		tell = r.denied.take(e.Time, denialRate, denialBurst)
	} else {
		tell = r.allowed.take(e.Time, eventRate, eventBurst)
	}
	if !tell {
		r.lost++
		r.untold++
		return false
	}
	e.Lost, r.untold = r.untold, 0
	return true
}

func (r *record) deny(e event.Event) {
	key := Denial{Kind: e.Kind, Name: e.Name, Addr: e.Addr, Port: e.Port, Method: e.Method, Path: e.Path, Code: e.Code, Rule: e.Rule}
	if e.Name != "" {
		key.Addr = "" // a synthetic one says nothing
	}
	if r.denials == nil {
		r.denials = map[Denial]*Denial{}
	}
	d := r.denials[key]
	if d == nil && len(r.denials) >= maxDenials {
		key = Denial{Kind: e.Kind, Code: e.Code}
		d = r.denials[key]
	}
	if d == nil {
		d = new(Denial)
		*d = key
		if key.Name != "" || key.Addr != "" {
			d.Reason, d.Fix = e.Reason, e.Fix
		}
		r.denials[key] = d
	}
	d.Count++
}

func (r *record) panicked() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.panics++
}

// snapshot returns the denials, the most frequent first.
func (r *record) snapshot() (denials []Denial, lost, panics int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.denials {
		denials = append(denials, *d)
	}
	slices.SortFunc(denials, func(a, b Denial) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Addr, b.Addr), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Code, b.Code))
	})
	return denials, r.lost, r.panics
}

// packetDenials are what was dropped at the wire and a person may look for. What
// a kernel sends by itself (to groups, from addresses of its own) is not told.
func packetDenials(dropped map[link.Drop]int64) []Denial {
	var out []Denial
	for _, d := range []struct {
		drop   link.Drop
		reason string
	}{
		{link.DropUDP, "of UDP only questions to DNS are passed on; QUIC and HTTP/3 fall back to TCP"},
		{link.DropICMP, "ICMP is not passed on: ping says nothing here"},
		{link.DropProtocol, "only TCP and questions to DNS are passed on"},
		{link.DropFragment, "fragments of packets are not passed on"},
		{link.DropOptions, "packets with IP options or extension headers are not passed on"},
	} {
		if n := dropped[d.drop]; n > 0 {
			out = append(out, Denial{Kind: event.Link, Code: "packet_" + string(d.drop), Reason: d.reason, Count: n})
		}
	}
	return out
}
