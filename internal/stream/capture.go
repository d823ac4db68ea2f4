package stream

import (
	"sync"
	"unicode/utf8"
)

// Capture keeps the first bytes of a stream and counts all of them. It is safe
// for concurrent use.
type Capture struct {
	mu    sync.Mutex
	limit int64
	kept  []byte
	total int64
}

// NewCapture returns a Capture that keeps at most limit bytes. It takes memory
// as bytes arrive.
func NewCapture(limit int64) *Capture {
	return &Capture{limit: max(limit, 0)}
}

// Write implements io.Writer. It never fails.
func (c *Capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total += int64(len(p))
	c.kept = appendUpTo(c.kept, p, int(c.limit))
	return len(p), nil
}

// appendUpTo appends as much of p as fits into limit bytes, and never makes the
// slice's capacity larger than limit.
func appendUpTo(kept, p []byte, limit int) []byte {
	p = p[:min(len(p), limit-len(kept))]
	if need := len(kept) + len(p); need > cap(kept) {
		grown := make([]byte, len(kept), min(max(need, 2*cap(kept), 512), limit))
		copy(grown, kept)
		kept = grown
	}
	return append(kept, p...)
}

// Bytes returns the kept bytes. If the stream was longer, a character that the
// cut split is left out, so that text stays text. The caller must not change
// them; later writes do not.
func (c *Capture) Bytes() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := c.kept[:len(c.kept):len(c.kept)]
	if c.total > int64(len(kept)) {
		return WholeRunes(kept)
	}
	return kept
}

// Total returns how many bytes were written, kept or not.
func (c *Capture) Total() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total
}

// Truncated reports whether the stream was longer than what is kept.
func (c *Capture) Truncated() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total > int64(len(c.kept))
}

// WholeRunes returns p without the beginning of a UTF-8 sequence that p ends
// within. It is for text that was cut at a number of bytes.
func WholeRunes(p []byte) []byte {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		tail := p[len(p)-n:]
		if utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return p[:len(p)-n]
			}
			break
		}
	}
	return p
}
