package wire

import (
	"encoding/json"
	"slices"
	"sync"
)

// Ledger answers "account" in a box that lasts: what was touched since it was
// made, whichever front was told of it then.
type Ledger struct {
	Limits []Limit // each once
	// MemoryKills is how many times a program was ended at the far end's wish
	// because the box had no memory left.
	MemoryKills int64
}

// ledger is a far end's Ledger.
type ledger struct {
	mu sync.Mutex
	l  Ledger
}

func (l *ledger) note(hit Limit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if hit.Name != "" && !slices.ContainsFunc(l.l.Limits, func(h Limit) bool { return h.Name == hit.Name }) {
		l.l.Limits = append(l.l.Limits, hit)
	}
}

func (l *ledger) read() Ledger {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Ledger{Limits: slices.Clone(l.l.Limits), MemoryKills: l.l.MemoryKills}
}

// Touched tells the front of a limit, and keeps it for those that come later.
func (s *Server) Touched(hit Limit) {
	s.ledger.note(hit)
	s.Event("limit", hit)
}

// KilledForMemory counts a program that was ended because the box had no memory
// left.
func (s *Server) KilledForMemory() {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	s.ledger.l.MemoryKills++
}

// own answers the requests that are the same for every box.
func (s *Server) own(req Request) (v any, ok bool, err error) {
	switch req.Op {
	case "note": // of a limit that the front found out about
		var hit Limit
		if err = json.Unmarshal(req.Body, &hit); err == nil {
			s.ledger.note(hit)
		}
		return struct{}{}, true, err
	case "account":
		return s.ledger.read(), true, nil
	}
	return nil, false, nil
}
