package daemon

import (
	"fmt"
	"os"
	"syscall"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
)

// ends are the program's ends of its streams.
type ends struct{ files [3]*os.File }

// close gives up our copies, so that a stream ends when the program's last
// holder does.
func (e *ends) close() {
	for _, f := range e.files {
		if f != nil {
			f.Close() // a terminal's three are one file: closing it again is harmless
		}
	}
}

// give makes the program's user the owner: a name such as /dev/stderr opens a
// stream again.
func (e *ends) give(cred *syscall.Credential) error {
	for _, f := range e.files {
		if cred == nil || f.Name() == os.DevNull {
			continue
		}
		if err := f.Chown(int(cred.Uid), int(cred.Gid)); err != nil {
			return fmt.Errorf("cannot give streams to the program's user: %w", err)
		}
	}
	return nil
}

// open makes a process's streams. What it opened is closed by both closes, also
// after an error.
func (p *process) open(m *pb.StartRequest) (*ends, error) {
	e := &ends{}
	p.in = newInput(nil, false)
	if m.Terminal != nil {
		master, replica, err := host.OpenPTY(sizeOf(m.Terminal))
		if err != nil {
			return e, err
		}
		e.files = [3]*os.File{replica, replica, replica}
		p.master, p.reads, p.in = master, []*os.File{master}, newInput(master, true)
		return e, nil
	}
	var err error
	if m.Stdin {
		var w *os.File
		e.files[0], w, err = os.Pipe()
		p.in = newInput(w, false)
	} else {
		e.files[0], err = os.Open(os.DevNull)
	}
	for i := 1; i < 3 && err == nil; i++ {
		var r *os.File
		if r, e.files[i], err = os.Pipe(); err == nil {
			p.reads = append(p.reads, r)
		}
	}
	return e, err
}

// close gives up our ends of the streams of a process that did not start.
func (p *process) close() {
	if p.in != nil {
		p.in.close()
	}
	for _, f := range p.reads {
		f.Close()
	}
}

// sizeOf is a terminal's size, within what one can have.
func sizeOf(s *pb.Size) box.WindowSize {
	return box.WindowSize{Rows: uint16(min(s.GetRows(), 1<<16-1)), Cols: uint16(min(s.GetCols(), 1<<16-1))}
}
