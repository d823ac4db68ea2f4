package frame

import (
	"encoding/json"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/wire"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// A front that reads a limit in its own account may give the box up at once: the next
// one is told of it, too.
func TestALimitIsInAnAccountWhenTheFirstProcessKnowsIt(t *testing.T) {
	link, theirs, err := host.LinkPair()
	if err != nil {
		t.Fatal(err)
	}
	far, err := host.NewLink(theirs)
	if err != nil {
		t.Fatal(err)
	}
	b := &Box{Conn: wire.NewConn(link)}
	t.Cleanup(func() { b.Conn.Close(); far.Close() })
	hit := box.LimitHit{Limit: "disk", Source: "watchdog"}
	noted := make(chan struct{})
	go func() { defer close(noted); b.Note(t.Context(), hit) }()
	body, _, err := far.Receive()
	if err != nil {
		t.Fatal(err)
	}
	if b.book.has(hit) {
		t.Error("it is in the account before the first process knows it")
	}
	var req wire.Request
	if err := json.Unmarshal(body, &req); err != nil || req.Op != "note" {
		t.Fatalf("the first process was asked %s: %v", body, err)
	}
	answer, err := json.Marshal(wire.Reply{Seq: req.Seq, Body: json.RawMessage(`{}`)})
	if err == nil {
		err = far.Send(answer)
	}
	if err != nil {
		t.Fatal(err)
	}
	<-noted
	if !b.book.has(hit) {
		t.Error("it is not in the account")
	}
}
