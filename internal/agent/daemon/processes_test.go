package daemon

import (
	"bytes"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
	"github.com/sunaba-dev/sunaba/test/harness"
)

func TestProgramTellsItsStory(t *testing.T) {
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		r := begin(t, u)
		got := r.follow(t, r.sh("echo out; echo err >&2; exit 7"))
		if string(got.out) != "out\n" || string(got.err) != "err\n" || got.end.Status != 7<<8 || got.end.StdoutBytes != 4 || got.end.StderrBytes != 4 || got.end.By != 0 {
			t.Errorf("got %q, %q, %v", got.out, got.err, got.end)
		}
	})
}

func TestFileComesBackAsItWasWritten(t *testing.T) {
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		r := begin(t, u)
		p := r.dir + "/a\nb\xff"
		want := bytes.Repeat([]byte("sand"), 300_000)
		w := r.Write(deadline(t))
		if err := w.Send(&pb.WriteRequest{Head: &pb.WriteHead{Path: []byte(p)}}); err != nil {
			t.Fatal(err)
		}
		for b := want; len(b) > 0; b = b[min(len(b), chunk):] {
			if err := w.Send(&pb.WriteRequest{Data: b[:min(len(b), chunk)]}); err != nil {
				t.Fatal(err)
			}
		}
		res, err := w.CloseAndReceive()
		if err != nil {
			t.Fatal(err)
		}
		if e := res.Msg.Entry; e.Size != uint64(len(want)) || e.Mode != 0o644 || string(e.Path) != p {
			t.Errorf("wrote %v", e)
		}
		s, err := r.Read(deadline(t), connect.NewRequest(&pb.ReadRequest{Path: []byte(p), Length: -1}))
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		for s.Receive() {
			got = append(got, s.Msg().Data...)
		}
		if s.Err() != nil || !bytes.Equal(got, want) {
			t.Errorf("read %d bytes, %v", len(got), s.Err())
		}
	})
}

func TestHello(t *testing.T) {
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		r := begin(t, u)
		res, err := r.Hello(deadline(t), connect.NewRequest(&pb.HelloRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		if m := res.Msg; m.Protocol != 1 || m.Dir != r.dir || len(m.Users) != 1 || m.Users[0] != "user" {
			t.Errorf("got %v", m)
		}
	})
}
