package wire

import (
	"encoding/json"
	"os"
	"sync"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// Server is the far end of a link.
type Server struct {
	link *host.Link
	send sync.Mutex

	mu     sync.Mutex
	clocks map[int32]*time.Timer // by program; see Exec.Expire
}

// NewServer serves a link.
func NewServer(link *host.Link) *Server {
	return &Server{link: link, clocks: make(map[int32]*time.Timer)}
}

// Link is the link that is served.
func (s *Server) Link() *host.Link { return s.link }

// WithFiles is what a Handler returns if files go with the answer. They are
// closed here when they have been sent.
type WithFiles struct {
	Body  any
	Files []*os.File
}

// Handler answers one request. It owns the files.
type Handler func(req Request, files []*os.File) (any, error)

// Serve answers requests until the front goes away or sends what is no
// request. A setup is answered before the next request is read, all others
// concurrently.
func (s *Server) Serve(handle Handler) {
	for {
		body, files, err := s.link.Receive()
		if err != nil {
			return
		}
		var req Request
		if err := json.Unmarshal(body, &req); err != nil {
			return
		}
		answer := func() { s.Answer(req.Seq, func() (any, error) { return s.timed(req, files, handle) }) }
		if req.Op == "setup" {
			answer()
		} else {
			go answer()
		}
	}
}

// timed keeps the clock of each program that has one, from its start until its
// end was asked for and told.
func (s *Server) timed(req Request, files []*os.File, handle Handler) (any, error) {
	v, err := handle(req, files)
	switch req.Op {
	case "exec":
		var e struct{ Expire time.Duration }
		ps, ok := v.(Started)
		if err != nil || !ok || json.Unmarshal(req.Body, &e) != nil || e.Expire <= 0 {
			break
		}
		s.mu.Lock()
		s.clocks[ps.Pid] = time.AfterFunc(e.Expire, func() {
			s.Event(Expired, struct{}{})
			s.link.Close() // Serve returns
		})
		s.mu.Unlock()
	case "wait":
		var w Wait
		if json.Unmarshal(req.Body, &w) != nil {
			break
		}
		s.mu.Lock()
		if t := s.clocks[w.Pid]; t != nil {
			t.Stop()
			delete(s.clocks, w.Pid)
		}
		s.mu.Unlock()
	}
	return v, err
}

// Answer sends what fn returns as the reply to request seq.
func (s *Server) Answer(seq int, fn func() (any, error)) {
	v, err := fn()
	rep := Reply{Seq: seq}
	var files []*os.File
	if w, ok := v.(WithFiles); ok && err == nil {
		v, files = w.Body, w.Files
		defer closeAll(files)
	}
	if err != nil {
		rep.Error, rep.Unusable = err.Error(), box.KindOf(err) == box.Unusable
	} else if rep.Body, err = json.Marshal(v); err != nil {
		rep.Error = err.Error()
	}
	s.post(rep, files...)
}

// Event tells the front of something that it did not ask for.
func (s *Server) Event(name string, v any) {
	if body, err := json.Marshal(v); err == nil {
		s.post(Reply{Event: name, Body: body})
	}
}

func (s *Server) post(rep Reply, files ...*os.File) {
	b, err := json.Marshal(rep)
	if err != nil {
		return
	}
	s.send.Lock()
	defer s.send.Unlock()
	_ = s.link.Send(b, files...) // a front that is gone is noticed by Receive
}
