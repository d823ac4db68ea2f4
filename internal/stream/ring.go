package stream

import "sync"

// Ring keeps the last bytes of a stream for a reader that comes back. A byte's
// offset is its number in the stream, from zero. It is safe for concurrent use.
type Ring struct {
	mu   sync.Mutex
	size int
	buf  []byte // byte number n is at n % size
	end  int64
}

// NewRing returns a Ring that keeps at most size bytes, at least one. It takes
// memory as bytes arrive.
func NewRing(size int) *Ring { return &Ring{size: max(size, 1)} }

// Write implements io.Writer. It never fails.
func (r *Ring) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := len(p)
	if skip := len(p) - r.size; skip > 0 && len(r.buf) == r.size {
		p = p[skip:]
		r.end += int64(skip)
	}
	had := len(r.buf)
	r.buf = appendUpTo(r.buf, p, r.size)
	fresh := len(r.buf) - had
	r.end += int64(fresh)
	for p = p[fresh:]; len(p) > 0; {
		n := copy(r.buf[r.end%int64(r.size):], p)
		r.end += int64(n)
		p = p[n:]
	}
	return all, nil
}

// End returns the offset of the next byte to come.
func (r *Ring) End() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.end
}

// Since returns a copy of the kept bytes from offset on, the offset after them
// to ask for next time, and how many bytes from offset on are lost because
// later ones took their place. An offset that the stream has not reached gives
// no bytes and the stream's end as next; a negative one counts as zero.
func (r *Ring) Since(offset int64) (p []byte, next, lost int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	offset = max(offset, 0)
	if offset >= r.end {
		return nil, r.end, 0
	}
	if oldest := r.end - int64(len(r.buf)); offset < oldest {
		lost, offset = oldest-offset, oldest
	}
	p = make([]byte, 0, r.end-offset)
	at := offset % int64(r.size)
	p = append(p, r.buf[at:min(int64(len(r.buf)), at+r.end-offset)]...)
	return append(p, r.buf[:r.end-offset-int64(len(p))]...), r.end, lost
}
