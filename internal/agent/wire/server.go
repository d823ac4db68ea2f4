package wire

import (
	"encoding/json"
	"os"
	"sync"

	"github.com/sunaba-dev/sunaba/internal/host"
)

// Server is the far end of a link.
type Server struct {
	link *host.Link
	send sync.Mutex
}

// NewServer serves a link.
func NewServer(link *host.Link) *Server { return &Server{link: link} }

// Serve answers requests until the front goes away or sends what is no
// request. The handler owns the files. Requests whose op is in alone are
// handled one by one, before the next is read; all others concurrently.
func (s *Server) Serve(alone []string, handle func(op string, body json.RawMessage, files []*os.File) (any, error)) {
	for {
		body, files, err := s.link.Receive()
		if err != nil {
			return
		}
		var req Request
		if err := json.Unmarshal(body, &req); err != nil {
			return
		}
		run := func() {
			v, err := handle(req.Op, req.Body, files)
			rep := Reply{Seq: req.Seq}
			if err != nil {
				rep.Error = err.Error()
			} else if rep.Body, err = json.Marshal(v); err != nil {
				rep.Error = err.Error()
			}
			s.post(rep)
		}
		single := false
		for _, op := range alone {
			single = single || op == req.Op
		}
		if single {
			run()
		} else {
			go run()
		}
	}
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
