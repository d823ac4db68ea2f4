package daemon

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// event is one of the kernel's, without its cookie.
type event struct {
	wd   int
	mask uint32
	name string
}

// eachEvent takes events out of what was read: struct inotify_event in
// inotify(7), each with its name behind it, filled up with NUL bytes.
func eachEvent(b []byte, fn func(event) error) error {
	for len(b) >= unix.SizeofInotifyEvent {
		size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
		if size > len(b) {
			return unix.EIO
		}
		name, _, _ := bytes.Cut(b[unix.SizeofInotifyEvent:size], []byte{0})
		e := event{
			wd:   int(int32(binary.NativeEndian.Uint32(b))),
			mask: binary.NativeEndian.Uint32(b[4:]),
			name: string(name),
		}
		if err := fn(e); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}
