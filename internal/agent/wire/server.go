package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// Server is the far end of a link: of one for the whole life of a box, or, in a
// box that lasts, of one after the other.
type Server struct {
	listen *host.Links // nil for a server of one link
	words  *os.File    // see KeepWords

	mu      sync.Mutex
	at      *session // the front that is heard
	isSetUp bool     // a request was answered without an error
	ended   bool
	clocks  map[int32]*time.Timer // by program; see Exec.Expire

	ledger ledger
}

// session is one front's connection. Its requests are answered on it or not at
// all.
type session struct {
	link *host.Link
	send sync.Mutex
}

// NewServer serves a link.
func NewServer(link *host.Link) *Server {
	return &Server{at: &session{link: link}, clocks: make(map[int32]*time.Timer)}
}

// Open makes a server of the descriptor that a first process was started with: a
// link, or a socket at which its front waits already, and others may come.
func Open(f *os.File) (*Server, error) {
	if !host.IsListening(f) {
		link, err := host.NewLink(f)
		if err != nil {
			return nil, err
		}
		return NewServer(link), nil
	}
	listen, err := host.NewLinks(f)
	if err != nil {
		return nil, err
	}
	link, err := listen.Accept()
	if err != nil {
		listen.Close()
		return nil, err
	}
	s := NewServer(link)
	s.listen = listen
	return s, nil
}

// Resume is Open for a program that takes the place of another one, with the
// descriptors of Files.
func Resume(link, listen *os.File) (*Server, error) {
	l, err := host.NewLink(link)
	if err != nil {
		return nil, err
	}
	s := NewServer(l)
	if listen != nil {
		if s.listen, err = host.NewLinks(listen); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Files returns duplicates of what is served, for Resume; listen is nil for a
// server of one link.
func (s *Server) Files() (link, listen *os.File, err error) {
	if link, err = s.front().link.File(); err != nil {
		return nil, nil, err
	}
	if s.listen != nil {
		if listen, err = s.listen.File(); err != nil {
			link.Close()
			return nil, nil, err
		}
	}
	return link, listen, nil
}

// EndBecause tells the front why, and those that come too late, and makes Serve
// return.
func (s *Server) EndBecause(why string) {
	s.Event(Ending, End{why})
	if s.words != nil {
		_, _ = s.words.WriteString(why) // else they are not told
	}
	s.End()
}

// EndingFile is the name, in a box's run folder, of the file in which its first process
// leaves what it said at its end: there may be no front then.
const EndingFile = "ending"

// KeepWords makes that file, into which a panic of this process goes, too. It is for
// who serves, once, before it gives up its view of the host.
func (s *Server) KeepWords(dir string) (err error) {
	s.words, err = os.OpenFile(filepath.Join(dir, EndingFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("cannot make a file for the box's last words: %w", err)
	}
	if err := debug.SetCrashOutput(s.words, debug.CrashOptions{}); err != nil {
		return fmt.Errorf("cannot keep the words of a panic: %w", err)
	}
	return nil
}

// End makes Serve return.
func (s *Server) End() {
	s.mu.Lock()
	s.ended = true
	at := s.at
	s.mu.Unlock()
	if s.listen != nil {
		s.listen.Close()
	}
	at.link.Close()
}

func (s *Server) front() *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

// WithFiles is what a Handler returns if files go with the answer. They are
// closed here when they have been sent.
type WithFiles struct {
	Body  any
	Files []*os.File
}

// Handler answers one request. It owns the files.
type Handler func(req Request, files []*os.File) (any, error)

// Serve answers requests until the front goes away or sends what is no request.
// A setup is answered before the next request is read, all others concurrently.
//
// Where others may come, it goes on with the next front, once it is set up, until
// End: one at a time, and who comes takes the place of who is there.
func (s *Server) Serve(handle Handler) {
	if s.listen == nil {
		s.serve(s.front(), handle)
		return
	}
	defer s.End()
	next := make(chan *session)
	go s.accept(next)
	s.serve(s.front(), handle)
	s.mu.Lock()
	isSetUp := s.isSetUp
	s.mu.Unlock()
	if !isSetUp {
		s.End()
	}
	for at := range next {
		if isSetUp {
			s.serve(at, handle)
		}
	}
}

// accept hands over who comes until the socket is closed. Whatever else keeps it from
// that, a shortage of the host's or of this process, passes: it is no end of the box.
func (s *Server) accept(next chan<- *session) {
	defer close(next)
	for {
		link, err := s.listen.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			<-time.After(acceptAgain)
			continue
		}
		at := &session{link: link}
		s.mu.Lock()
		before, ended := s.at, s.ended
		s.at = at
		s.mu.Unlock()
		before.link.Close() // serve returns
		if ended {
			link.Close()
		}
		next <- at
	}
}

const acceptAgain = 100 * time.Millisecond

func (s *Server) serve(at *session, handle Handler) {
	defer at.link.Close()
	for {
		body, files, err := at.link.Receive()
		if err != nil {
			return
		}
		var req Request
		if err := json.Unmarshal(body, &req); err != nil {
			closeAll(files)
			return
		}
		answer := func() { s.answer(at, req.Seq, func() (any, error) { return s.timed(req, files, handle) }) }
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
	if v, ok, err := s.own(req); ok {
		closeAll(files)
		return v, err
	}
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
			s.End() // Serve returns
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

// Answer sends what fn returns as the reply to request seq of the front that is
// heard.
func (s *Server) Answer(seq int, fn func() (any, error)) { s.answer(s.front(), seq, fn) }

func (s *Server) answer(at *session, seq int, fn func() (any, error)) {
	v, err := fn()
	rep := Reply{Seq: seq}
	var files []*os.File
	if w, ok := v.(WithFiles); ok && err == nil {
		v, files = w.Body, w.Files
		defer closeAll(files)
	}
	if err == nil {
		s.mu.Lock()
		s.isSetUp = true // the first request is one to set up
		s.mu.Unlock()
	}
	if err != nil {
		kind := box.KindOf(err)
		rep.Error, rep.Unusable, rep.Conflict = err.Error(), kind == box.Unusable, kind == box.Conflict
	} else if rep.Body, err = json.Marshal(v); err != nil {
		rep.Error = err.Error()
	}
	at.post(rep, files...)
}

// Event tells the front of something that it did not ask for.
func (s *Server) Event(name string, v any) {
	if body, err := json.Marshal(v); err == nil {
		s.front().post(Reply{Event: name, Body: body})
	}
}

func (at *session) post(rep Reply, files ...*os.File) {
	b, err := json.Marshal(rep)
	if err != nil {
		return
	}
	at.send.Lock()
	defer at.send.Unlock()
	_ = at.link.Send(b, files...) // a front that is gone is noticed by Receive
}
