package gate

import (
	"testing"

	"github.com/sunaba-dev/sunaba/internal/egress/event"
)

// Each event wakes who keeps the gateway, so those that nobody hears are not sent.
func TestOnlyEventsThatAreHeardAreSent(t *testing.T) {
	g := &gate{events: make(chan *event.Event, 2)}
	g.emit(event.Event{Code: "unheard"})
	if n := len(g.events); n != 0 {
		t.Fatalf("%d events wait to be told, and nobody hears them", n)
	}
	g.heard.Store(true)
	for _, code := range []string{"first", "second", "one too many"} {
		g.emit(event.Event{Code: code}) // must not wait
	}
	if n := len(g.events); n != 2 {
		t.Fatalf("%d events wait where there is room for 2", n)
	}
	if e := <-g.events; e.Code != "first" {
		t.Errorf("the first event is %q", e.Code)
	}
}
