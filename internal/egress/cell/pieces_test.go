package cell

import (
	"bytes"
	"io"
	"testing"
)

func TestADirectionHoldsLittleUntilItWasFull(t *testing.T) {
	c := &Cell{store: newPieces()}
	want := make([]byte, 3*largePiece)
	for i := range want {
		want[i] = byte(i % 251)
	}
	for _, size := range []int{0, 1, smallPiece - 1, smallPiece, smallPiece + 1, len(want)} {
		p := c.pieces()
		in := bytes.NewReader(want[:size])
		var got []byte
		for n := 0; ; n++ {
			b, err := p.read(in)
			if n == 0 && len(b) > smallPiece {
				t.Fatalf("%d bytes: the first piece has %d", size, len(b))
			}
			got = append(got, b...)
			if err == io.EOF {
				break
			}
		}
		if !bytes.Equal(got, want[:size]) {
			t.Errorf("%d bytes: something else came out", size)
		}
		if lent := p.large != nil; lent != (size >= smallPiece) {
			t.Errorf("%d bytes: a large piece was lent: %t", size, lent)
		}
		p.end()
		if p.buf != nil || p.large != nil {
			t.Error("a piece is still held after its end")
		}
	}
}
