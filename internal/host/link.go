package host

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// MaxMessage bounds one message on a [Link], in bytes. A peer that announces
// more is cut off before anything is allocated.
const MaxMessage = 4 << 20

// maxFiles bounds the descriptors that travel with one message.
const maxFiles = 64

// Link carries framed messages and open files between two processes. Send and
// Receive may each be used by one goroutine at a time besides the other.
type Link struct {
	conn *net.UnixConn
	send sync.Mutex
}

// LinkPair returns one end as a Link and the other as a file for a child.
func LinkPair() (*Link, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make socket pair: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "link")
	l, err := NewLink(os.NewFile(uintptr(fds[0]), "link"))
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return l, theirs, nil
}

// NewLink takes over one end of a pair.
func NewLink(f *os.File) (*Link, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("cannot use link: %w", err)
	}
	uc, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("cannot use link: it is not a unix socket")
	}
	return &Link{conn: uc}, nil
}

// File returns a duplicate of the link's descriptor, for a program that takes
// this one's place.
func (l *Link) File() (*os.File, error) { return l.conn.File() }

// Close ends the link; the peer's Receive returns io.EOF.
func (l *Link) Close() error { return l.conn.Close() }

// Send sends one message. The files are duplicated into the peer; the caller
// still owns them.
func (l *Link) Send(body []byte, files ...*os.File) error {
	if len(body) > MaxMessage || len(files) > maxFiles {
		return fmt.Errorf("cannot send message: %d bytes and %d files are over the limit", len(body), len(files))
	}
	l.send.Lock()
	defer l.send.Unlock()
	head := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	head = append(head, byte(len(files)))
	var oob []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		oob = syscall.UnixRights(fds...)
	}
	if _, _, err := l.conn.WriteMsgUnix(head, oob, nil); err != nil {
		return fmt.Errorf("cannot send message: %w", err)
	}
	if _, err := l.conn.Write(body); err != nil {
		return fmt.Errorf("cannot send message: %w", err)
	}
	return nil
}

// Receive returns the next message and the files that came with it, which the
// caller then owns. With an error there is no message and the link is of no more use;
// but with EMFILE there may be one, whose files this process had no room for: then
// the next can be received.
func (l *Link) Receive() ([]byte, []*os.File, error) {
	var head [5]byte
	oob := make([]byte, syscall.CmsgSpace(4*maxFiles))
	n, oobn, flags, _, err := l.conn.ReadMsgUnix(head[:], oob)
	if err != nil {
		return nil, nil, err
	}
	if n == 0 {
		return nil, nil, io.EOF
	}
	files, err := takeFiles(oob[:oobn])
	if err != nil {
		return nil, nil, err
	}
	fail := func(err error) ([]byte, []*os.File, error) {
		for _, f := range files {
			f.Close()
		}
		return nil, nil, err
	}
	if _, err := io.ReadFull(l.conn, head[n:]); err != nil {
		return fail(fmt.Errorf("cannot read message head: %w", err))
	}
	lost := flags&unix.MSG_CTRUNC != 0 && len(files) < maxFiles // recvmsg(2): they were not installed
	size := binary.BigEndian.Uint32(head[:4])
	if size > MaxMessage || !lost && int(head[4]) != len(files) {
		return fail(fmt.Errorf("cannot read message: %d bytes announced, %d of %d files came", size, len(files), head[4]))
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(l.conn, body); err != nil {
		return fail(fmt.Errorf("cannot read message body: %w", err))
	}
	if lost {
		_, _, err := fail(fmt.Errorf("cannot take the files of a message: %w", unix.EMFILE))
		return body, nil, err
	}
	return body, files, nil
}

func takeFiles(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("cannot parse control message: %w", err)
	}
	var files []*os.File
	for _, m := range msgs {
		fds, err := syscall.ParseUnixRights(&m)
		if err != nil {
			continue // credentials or security labels, never asked for
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "passed"))
		}
	}
	return files, nil
}
