package guest_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sunaba-dev/sunaba/box"
	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
	"github.com/sunaba-dev/sunaba/internal/agent/guest"
)

// told fails unless err is one that the caller of a guest may see.
func told(t *testing.T, err error) {
	t.Helper()
	var e *box.Error
	if err == nil || !errors.As(err, &e) {
		if err != nil {
			t.Errorf("an error of type %T: %v", err, err)
		}
		return
	}
	if len(e.Message) > 3000 {
		t.Errorf("a message of %d bytes", len(e.Message))
	}
	for _, r := range e.Message {
		if r < ' ' || r == 0x7f || r == 0x202e || r == 0xfffd {
			t.Errorf("a message with %q: %.200q", r, e.Message)
			return
		}
	}
}

// FuzzStream makes any bytes the agent's whole stream.
func FuzzStream(f *testing.F) {
	settings := "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	f.Add([]byte(""))
	f.Add([]byte(settings))
	f.Add([]byte(settings + "\x00\x00\x00\x04\x01\x00\x00\x00\x00"))
	// A GOAWAY, a reset, a window of zero, a header that is an index into nothing.
	f.Add([]byte(settings + "\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Add([]byte(settings + "\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x08"))
	f.Add([]byte(settings + "\x00\x00\x04\x08\x00\x00\x00\x00\x01\x00\x00\x00\x00"))
	f.Add([]byte(settings + "\x00\x00\x01\x01\x05\x00\x00\x00\x01\xff"))
	f.Add([]byte(settings + "\x00\x00\x01\x01\x04\x00\x00\x00\x01\x88\x00\x00\x03\x00\x01\x00\x00\x00\x01abc"))
	f.Fuzz(func(t *testing.T, all []byte) {
		g := rawLiar(t, guest.Options{Call: time.Second, Silence: time.Second}, func(c net.Conn) {
			go func() { _, _ = io.Copy(io.Discard, c) }()
			_, _ = c.Write(all)
		})
		defer g.Close()
		err := stat(t.Context(), g)
		if err == nil {
			t.Errorf("%q was an answer", all)
		}
		told(t, err)
	})
}

// FuzzAnswers makes any bytes the answer to a call, in proper HTTP/2.
func FuzzAnswers(f *testing.F) {
	all := []guestCall{start, processes, follow, stat, list, read, watch, metrics, open, contexts, cell, dial, pack, write}
	types := []string{"application/proto", "application/connect+proto", "application/json"}
	seed := func(call int, kind byte, body string) { f.Add(byte(call), kind, 200, []byte(body)) }
	message := func(m proto.Message) string {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		return string(b)
	}
	end := envelope(2, "{}")
	seed(0, 0, message(&pb.StartResponse{Pid: 7}))
	seed(1, 0, message(&pb.ListProcessesResponse{Processes: []*pb.Process{{Pid: 7, User: "user", Tag: "t", Argv: []string{"a"}, End: &pb.End{Status: 9}}}}))
	seed(2, 1, envelope(0, message(stdout(10, "x")))+envelope(0, message(ended(&pb.End{StdoutBytes: 11})))+end)
	seed(3, 0, message(&pb.StatResponse{Entry: file(7)}))
	seed(4, 1, envelope(0, message(&pb.ListResponse{Entries: []*pb.Entry{{Path: []byte("/work/a"), Kind: pb.Kind_KIND_LINK, Link: []byte("b")}}, Cut: true}))+end)
	seed(5, 1, envelope(0, message(&pb.ReadResponse{Entry: file(1)}))+envelope(0, message(&pb.ReadResponse{Data: []byte("x")}))+end)
	seed(6, 1, envelope(0, message(beat()))+envelope(0, message(changed("a", pb.Change_WHAT_WRITE)))+end)
	seed(7, 0, message(&pb.MetricsResponse{Processes: 1, CpuMicros: 5}))
	seed(8, 0, message(&pb.OpenResponse{Context: &pb.Context{Id: "c1", State: pb.Context_STATE_IDLE}}))
	seed(10, 1, envelope(0, message(value(5, "text/html", "<b>")))+envelope(0, message(cellEnded(6, pb.CellEnd_OUTCOME_OK)))+end)
	seed(11, 1, envelope(0, "")+end)
	seed(12, 1, envelope(0, message(&pb.PackResponse{Tar: make([]byte, 1024)}))+end)
	seed(13, 1, envelope(0, message(&pb.WriteResponse{Entry: file(7)}))+end)
	f.Add(byte(3), byte(2), 404, []byte(`{"code":"not_found","message":"\u001b]0;x","details":[{"type":"x","value":"eA"}]}`))
	seed(4, 1, envelope(2, `{"error":{"code":"internal","message":"x"},"metadata":{"a":["b"]}}`))
	f.Fuzz(func(t *testing.T, call, kind byte, status int, body []byte) {
		if status < 200 || status > 599 {
			status = 200
		}
		g := liar(t, guest.Options{Call: time.Second, Silence: time.Second}, hello(), raw("/", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", types[int(kind)%len(types)])
			w.WriteHeader(status)
			_, _ = w.Write(body)
		}))
		told(t, all[int(call)%len(all)](t.Context(), g))
	})
}
