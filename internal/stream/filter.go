package stream

import "io"

// A step turns the front of src into safe output, appends it to dst, and
// returns the number of bytes of src that it used up. It leaves at most
// maxHeld bytes, those whose meaning depends on what follows, and none if
// final. What it makes of a byte must not depend on where src happens to end:
// then a stream gives the same output however it is cut into writes.
type step func(dst, src []byte, final bool) ([]byte, int)

const (
	maxHeld   = 64   // bytes; the longest sequence that any step may wait for
	chunkSize = 4096 // bytes; what one step gets to see at most
)

// filter runs a step over a stream in fixed memory: one chunk in, one chunk
// out. It is not safe for concurrent use.
type filter struct {
	w    io.Writer
	step step
	in   [chunkSize]byte
	held int    // bytes at the start of in that wait for more
	out  []byte // room for the longest output of one chunk
	err  error
}

// Write implements io.Writer. After an error it returns how much of p went
// through before, and every later call fails with the same error.
func (f *filter) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) && f.err == nil {
		n := copy(f.in[f.held:], p[done:])
		if f.run(f.held+n, false); f.err == nil {
			done += n
		}
	}
	return done, f.err
}

// finish writes what the last bytes stand for if nothing follows, then tail.
func (f *filter) finish(tail string) error {
	if f.err != nil {
		if f.err == io.ErrClosedPipe {
			return nil
		}
		return f.err
	}
	f.run(f.held, true)
	if f.err == nil && tail != "" {
		_, f.err = io.WriteString(f.w, tail)
	}
	err := f.err
	if err == nil {
		f.err = io.ErrClosedPipe
	}
	return err
}

// run steps through the first size bytes of in and keeps the rest of them.
func (f *filter) run(size int, final bool) {
	if f.out == nil {
		f.out = make([]byte, 0, 4*chunkSize) // \xff is the longest form for its input
	}
	var used int
	f.out, used = f.step(f.out[:0], f.in[:size], final)
	f.held = copy(f.in[:], f.in[used:size])
	if len(f.out) == 0 {
		return
	}
	n, err := f.w.Write(f.out)
	if err == nil && n < len(f.out) {
		err = io.ErrShortWrite
	}
	f.err = err
}
