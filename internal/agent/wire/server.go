package wire

import (
	"encoding/json"
	"os"
	"sync"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// Server is the far end of a link.
type Server struct {
	link *host.Link
	send sync.Mutex
}

// NewServer serves a link.
func NewServer(link *host.Link) *Server { return &Server{link: link} }

// Link is the link that is served.
func (s *Server) Link() *host.Link { return s.link }

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
		answer := func() { s.Answer(req.Seq, func() (any, error) { return handle(req, files) }) }
		if req.Op == "setup" {
			answer()
		} else {
			go answer()
		}
	}
}

// Answer sends what fn returns as the reply to request seq.
func (s *Server) Answer(seq int, fn func() (any, error)) {
	v, err := fn()
	rep := Reply{Seq: seq}
	if err != nil {
		rep.Error, rep.Unusable = err.Error(), box.KindOf(err) == box.Unusable
	} else if rep.Body, err = json.Marshal(v); err != nil {
		rep.Error = err.Error()
	}
	s.post(rep)
}

// Event tells the front of something that it did not ask for.
func (s *Server) Event(name string, v any) {
	if body, err := json.Marshal(v); err == nil {
		s.post(Reply{Event: name, Body: body})
	}
}

func (s *Server) post(rep Reply) {
	b, err := json.Marshal(rep)
	if err != nil {
		return
	}
	s.send.Lock()
	defer s.send.Unlock()
	_ = s.link.Send(b) // a front that is gone is noticed by Receive
}
