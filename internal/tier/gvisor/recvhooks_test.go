package gvisor

import (
	"encoding/binary"
	"testing"
)

// message is a control message of n bytes of data, padded.
func message(n int) []byte {
	b := binary.NativeEndian.AppendUint64(nil, uint64(cmsgHeader+n))
	b = append(b, make([]byte, cmsgHeader-8+n)...)
	for len(b)%cmsgAlign != 0 {
		b = append(b, 0)
	}
	return b
}

func TestControlMessagesAreCutToTheRoomAndItIsSaid(t *testing.T) {
	two := append(message(4), message(20)...) // 20 of 24 bytes, and 36 of 40
	for _, c := range []struct {
		name      string
		data      []byte
		room      int
		left, len int // bytes left, and what the last message says of itself
		cut       bool
	}{
		{"nothing came", nil, 0, 0, 0, false},
		{"room for all", two, 100, 64, 36, false},
		{"room for all but padding", two, 60, 60, 36, false},
		{"one byte short", two, 59, 59, 35, true},
		{"a header only", two, 40, 40, 16, true},
		{"not even a header", two, 39, 24, 20, true},
		{"no room for a second one", two, 20, 24, 20, true},
		{"no room", two, 0, 0, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			data, cut := fitControl(append([]byte(nil), c.data...), c.room)
			want := min(c.left, c.room)
			if len(data) != want || cut != c.cut {
				t.Fatalf("%d bytes, cut %v; want %d, %v", len(data), cut, want, c.cut)
			}
			last := 0
			for at := 0; at+cmsgHeader <= len(data); at += (last + cmsgAlign - 1) / cmsgAlign * cmsgAlign {
				last = int(binary.NativeEndian.Uint64(data[at:]))
			}
			if last != c.len {
				t.Errorf("the last message says %d bytes, not %d", last, c.len)
			}
		})
	}
}
