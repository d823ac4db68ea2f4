package guest_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
	rpc "github.com/sunaba-dev/sunaba/internal/agent/agentpb/agentpbconnect"
	"github.com/sunaba-dev/sunaba/internal/agent/guest"
)

// A tree that is as deep as a list goes has paths of 16 KiB, ten thousand of them.
func TestAListOfLongPathsIsCutShort(t *testing.T) {
	long := "/work" + strings.Repeat("/"+strings.Repeat("n", 255), 63)
	g := liar(t, guest.Options{}, hello(), streams[pb.ListRequest](rpc.FilesListProcedure, func(_ context.Context, send func(*pb.ListResponse) error) error {
		for i := range 10_000 {
			e := &pb.Entry{Path: fmt.Appendf(nil, "%s/%d", long, i), Kind: pb.Kind_KIND_FILE}
			if err := send(&pb.ListResponse{Entries: []*pb.Entry{e}}); err != nil {
				return err
			}
		}
		return nil
	}))
	all, more, err := g.List(t.Context(), "/work", 64, 10_000)
	if err != nil || !more || len(all) < 200 || len(all) > 300 {
		t.Errorf("%d entries of 16 KiB, more %v, %v", len(all), more, err)
	}
	noGoroutineLeft(t)
}

// hole is an archive of one file that has nothing but a hole of so many bytes: PAX
// format, version 1.0 of GNU's sparse files.
func hole(size int64) []byte {
	var b bytes.Buffer
	member := func(name string, kind byte, data string) {
		h := make([]byte, 512)
		copy(h, name)
		copy(h[100:], "0000644\x00")
		copy(h[124:], fmt.Sprintf("%011o\x00", len(data)))
		copy(h[136:], "00000000000\x00        ")
		h[156] = kind
		copy(h[257:], "ustar\x0000")
		sum := 0
		for _, c := range h {
			sum += int(c)
		}
		copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
		b.Write(h)
		b.WriteString(data)
		b.Write(make([]byte, (512-len(data)%512)%512))
	}
	var pax string
	for _, kv := range []string{"GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=s", fmt.Sprintf("GNU.sparse.realsize=%d", size)} {
		n := len(kv) + 3 // a space, a line end and the length itself, of one digit
		if n > 9 {
			n++
		}
		pax += fmt.Sprintf("%d %s\n", n, kv)
	}
	member("x", 'x', pax)
	member("f", '0', "0\n"+strings.Repeat("\x00", 510))
	b.Write(make([]byte, 1024))
	return b.Bytes()
}

func TestAnArchiveIsNoLongerThanItWasAskedFor(t *testing.T) {
	for size, want := range map[int64]box.Kind{1 << 10: "", 1 << 50: box.Fault} {
		g := liar(t, guest.Options{}, hello(), tells[pb.PackRequest](rpc.FilesPackProcedure, &pb.PackResponse{Tar: hole(size)}))
		w := &full{left: 1 << 20}
		if err := g.Pack(t.Context(), "/work", 1<<20, w); err == nil && want != "" || err != nil && box.KindOf(err) != want {
			t.Errorf("a hole of %d bytes: %v", size, err)
		}
		if w.left < 0 {
			t.Error("more came than was asked for")
		}
	}
}

// full takes so many bytes.
type full struct{ left int }

func (w *full) Write(b []byte) (int, error) {
	if w.left -= len(b); w.left < 0 {
		return 0, fmt.Errorf("cannot write: it is full")
	}
	return len(b), nil
}

func TestACellsResultsAreBounded(t *testing.T) {
	for name, forms := range map[string]map[string]string{
		"many": {"text/plain": "x"}, "large": {"text/plain": strings.Repeat("x", 1<<20)},
	} {
		g := liar(t, guest.Options{}, hello(), streams[pb.RunRequest](rpc.ContextsRunProcedure, func(_ context.Context, send func(*pb.RunResponse) error) error {
			for n := uint64(1); ; n++ {
				if err := send(&pb.RunResponse{Number: n, Event: &pb.RunResponse_Result{Result: &pb.Result{Forms: forms}}}); err != nil {
					return err
				}
			}
		}))
		var bytes, n int
		err := g.RunCell(t.Context(), "c1", box.Cell{ID: "x", Code: "1"}, func(e box.CellEvent) error {
			bytes, n = bytes+len(e.Result.Forms["text/plain"]), n+1
			return nil
		})
		if box.KindOf(err) != box.Fault || n > 1000 || bytes > 10<<20 {
			t.Errorf("%s: %d results of %d bytes, %v", name, n, bytes, err)
		}
	}
}
