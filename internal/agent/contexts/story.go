package contexts

import (
	"sync"
	"time"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
)

// Bounds of a cell's story. It is so bounded that it can be kept whole: a reader
// of any speed gets every event from memory, and nobody waits for readers.
const (
	maxEvents    = 16 << 10 // more text than this goes into fewer, larger events
	maxResults   = 256      // results and errors; more are dropped and counted
	maxFormBytes = 3 << 20  // bytes of all results' forms together
	maxText      = 32 << 10 // bytes of one event of text
	eventCost    = 200      // bytes, about, that an event costs beside its text
)

// story is what happened in a cell, from event 1 on. Safe for concurrent use.
type story struct {
	limit int64 // bytes of text

	mu      sync.Mutex
	events  []*pb.RunResponse
	open    [2]part // text that may still grow: of stdout, of stderr
	timer   *time.Timer
	text    int64
	forms   int64
	results int
	dropped int64
	size    int64 // bytes that all of this costs, about
	over    bool
	changed chan struct{} // closed at the next change
}

// part is text of one stream that is no event yet.
type part struct {
	text []byte
	cut  []byte // the first bytes of a character whose others have not come
}

func newStory(limit int64) *story {
	return &story{limit: limit, changed: make(chan struct{})}
}

// since returns the events from number n on, whether that is all there will be,
// and a channel that is closed when there is more.
func (s *story) since(n uint64) (events []*pb.RunResponse, over bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n < 1 {
		n = 1
	}
	if n-1 < uint64(len(s.events)) {
		events = s.events[n-1:]
	}
	return events, s.over, s.changed
}

// write adds text of a stream: 0 is stdout, 1 is stderr.
func (s *story) write(stream int, b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	if room := s.limit - s.text; int64(len(b)) > room {
		s.lose(int64(len(b)) - room)
		b = b[:room]
	}
	s.text += int64(len(b))
	p := &s.open[stream]
	b = append(p.cut, b...)
	whole := wholeRunes(b)
	p.cut = append([]byte(nil), b[whole:]...)
	p.text = append(p.text, b[:whole]...)
	if len(p.text) >= maxText {
		s.seal(stream)
	} else if s.timer == nil && len(s.events) < maxEvents {
		// Small pieces are gathered for a moment, and the longer the more there
		// were: what an hour of dots costs stays small.
		delay := 20 * time.Millisecond * time.Duration(1+len(s.events)/256)
		s.timer = time.AfterFunc(delay, s.sealAll)
	}
}

// sealAll makes events of all text.
func (s *story) sealAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = nil
	if !s.over {
		s.seal(0)
		s.seal(1)
	}
}

// seal makes an event of a stream's text.
func (s *story) seal(stream int) {
	p := &s.open[stream]
	for len(p.text) > 0 {
		b := p.text
		if len(b) > maxText {
			b = b[:wholeRunes(b[:maxText])]
		}
		text := valid(b)
		p.text = p.text[len(b):]
		e := &pb.RunResponse{Event: &pb.RunResponse_Stdout{Stdout: text}}
		if stream == 1 {
			e.Event = &pb.RunResponse_Stderr{Stderr: text}
		}
		s.append(e, len(text))
	}
	p.text = nil
}

func (s *story) append(e *pb.RunResponse, cost int) {
	e.Number = uint64(len(s.events)) + 1
	s.events = append(s.events, e)
	s.size += int64(cost) + eventCost
	close(s.changed)
	s.changed = make(chan struct{})
}

// result adds a value, as far as there is room for it.
func (s *story) result(m message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	s.lose(m.Dropped)
	forms, cost := map[string]string{}, int64(0)
	for name, data := range m.Forms {
		n := int64(len(name) + len(data))
		if s.results >= maxResults || s.forms+n > maxFormBytes {
			s.lose(int64(len(data)))
			continue
		}
		s.forms += n
		cost += n
		forms[name] = data
	}
	if len(forms) == 0 {
		return
	}
	s.results++
	s.seal(0)
	s.seal(1)
	s.append(&pb.RunResponse{Event: &pb.RunResponse_Result{Result: &pb.Result{Forms: forms, Main: m.Main}}}, int(cost))
}

// fail adds what the code raised.
func (s *story) fail(name, value, traceback string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	n := int64(len(name) + len(value) + len(traceback))
	if s.results >= maxResults || s.forms+n > maxFormBytes {
		s.lose(n)
		return
	}
	s.results++
	s.forms += n
	s.seal(0)
	s.seal(1)
	s.append(&pb.RunResponse{Event: &pb.RunResponse_Failure{Failure: &pb.Failure{Name: name, Value: value, Traceback: traceback}}}, int(n))
}

// drop counts bytes that were for this cell and are not in its story.
func (s *story) drop(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose(n)
}

// end is the last event. It fills in the count of what was dropped.
func (s *story) end(e *pb.CellEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	for i := range s.open {
		p := &s.open[i]
		p.text = append(p.text, p.cut...)
		p.cut = nil
		s.seal(i)
	}
	e.DroppedBytes = uint64(s.dropped)
	s.append(&pb.RunResponse{Event: &pb.RunResponse_End{End: e}}, len(e.Detail))
	s.over = true
}

// cost is how many bytes the story takes, about.
func (s *story) cost() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size
}

// ended reports whether it has its end.
func (s *story) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// lose counts bytes. A driver says how many it left out, and may lie.
func (s *story) lose(n int64) { s.dropped = min(s.dropped+n, 1<<60) }
