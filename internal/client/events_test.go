package client

import (
	"bytes"
	"io"
	"reflect"
	"testing"
	"testing/iotest"
)

// However a stream is cut into pieces, and whatever is in it, it is read the
// same way and ends.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("id: 1-2\nevent: stdout\ndata: {\"at\":0}\n\n: all is well\n\ndata: a\r\ndata: b\n\n"))
	f.Add([]byte("event: end\ndata:{}\n\nid\n\ndata\n\n:\n\n\n"))
	f.Add([]byte("data: cut"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		read := func(r io.Reader) (all []event, err error) {
			err = events(r, func(e event) error { all = append(all, e); return nil })
			return all, err
		}
		whole, err := read(bytes.NewReader(stream))
		if err == nil {
			t.Error("a stream that ends is no error")
		}
		pieces, perr := read(iotest.OneByteReader(bytes.NewReader(stream)))
		if !reflect.DeepEqual(whole, pieces) || (err == io.EOF) != (perr == io.EOF) {
			t.Errorf("as a whole %q %v, in pieces %q %v", whole, err, pieces, perr)
		}
		size := 0
		for _, e := range whole {
			size += len(e.data) + len(e.id) + len(e.name)
		}
		if size > len(stream) {
			t.Errorf("%d bytes came of %d", size, len(stream))
		}
	})
}
