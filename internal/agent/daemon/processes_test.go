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
		if e := r.write(t, p, want, nil); e.Size != uint64(len(want)) || e.Mode != 0o644 || string(e.Path) != p {
			t.Errorf("wrote %v", e)
		}
		if got := r.read(t, p, 0, -1); !bytes.Equal(got, want) {
			t.Errorf("read %d bytes", len(got))
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
