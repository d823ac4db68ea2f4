package stream

import (
	"errors"
	"fmt"
	"io"
)

// pumpSize is the number of bytes that a Pump has in hand at most.
const pumpSize = 32 << 10

// maxEmptyReads is how often in a row a reader may return nothing at all.
const maxEmptyReads = 100

// Pump copies src to dst until src ends, and returns the number of bytes that
// dst took. It reads only after dst took what was read before, so a slow dst
// holds src back and nothing is kept beyond one buffer of 32 KiB. It never
// uses io.WriterTo or io.ReaderFrom, whose buffers are not ours. Each read and
// each write of at least one byte is noted in activity, which may be nil.
//
// The end of src is no error. Other errors say whether the read or the write
// failed and wrap its error.
func Pump(dst io.Writer, src io.Reader, activity *Activity) (int64, error) {
	buf := make([]byte, pumpSize)
	var total int64
	for empty := 0; empty < maxEmptyReads; {
		n, readErr := src.Read(buf)
		empty++
		if n > 0 {
			empty = 0
			activity.Touch()
			w, err := dst.Write(buf[:n])
			total += int64(w)
			if w > 0 {
				activity.Touch()
			}
			if err == nil && w < n {
				err = io.ErrShortWrite
			}
			if err != nil {
				return total, fmt.Errorf("cannot write: %w", err)
			}
		}
		if errors.Is(readErr, io.EOF) {
			return total, nil
		}
		if readErr != nil {
			return total, fmt.Errorf("cannot read: %w", readErr)
		}
	}
	return total, fmt.Errorf("cannot read: %w", io.ErrNoProgress)
}
