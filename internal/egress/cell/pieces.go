package cell

import (
	"io"
	"sync"

	"github.com/sunaba-dev/sunaba/internal/egress/link"
)

const (
	// largePiece is how many bytes one direction holds at most: what fits into one
	// packet with the largest heads of IPv6 and TCP. A piece that is a little larger
	// than a packet costs a second one, since no piece is cut to fill the first.
	largePiece = link.MTU - 40 - 60
	// smallPiece is what a direction begins with, in bytes: most never have more to
	// pass on at once, and two large pieces were four fifths of all memory that a
	// connection took and left to be collected.
	smallPiece = 8 << 10
)

// newPieces is a store of large pieces, of one cell: what a piece holds is its box's.
func newPieces() *sync.Pool {
	return &sync.Pool{New: func() any { b := make([]byte, largePiece); return &b }}
}

// pieces are what one direction of a connection reads, one after the other. It is
// not safe for concurrent use.
type pieces struct {
	store *sync.Pool
	buf   []byte
	large *[]byte // from the store; nil until a read has filled the small one
}

func (c *Cell) pieces() *pieces { return &pieces{store: c.store, buf: make([]byte, smallPiece)} }

// read returns the next piece, which is good until the next call or the end.
func (p *pieces) read(from io.Reader) ([]byte, error) {
	n, err := from.Read(p.buf)
	got := p.buf[:n]
	if n == len(p.buf) && p.large == nil {
		p.large = p.store.Get().(*[]byte)
		p.buf = *p.large
	}
	return got, err
}

// end gives back what was lent. No piece may be used afterwards.
func (p *pieces) end() {
	if p.large != nil {
		p.store.Put(p.large)
	}
	*p = pieces{}
}
