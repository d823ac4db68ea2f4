// Package control is the language between the gateway and who keeps it: requests
// with a box's link beside them, answers, and events that nobody asked for, each a
// message of JSON on a [host.Link] that the gateway is started with.
//
// The gateway learns of a box what is here: a name, a descriptor, compiled rules.
// It never learns whose the box is, and can ask for nothing.
package control

import (
	"encoding/json"
	"net/netip"

	"github.com/sunaba-dev/sunaba/box"
)

// Requests. Start is the first, once; Attach comes with the link and the ledger, and takes
// the place of a cell of that name, whose connections end.
const (
	Start  = "start"
	Attach = "attach"
	Update = "update"
	Detach = "detach"
	Tell   = "tell" // what became of a cell so far
	Ping   = "ping" // whether it answers
)

// Request is answered with a Reply of the same Seq.
type Request struct {
	Seq        uint64          `json:"seq"`
	Op         string          `json:"op"`
	Settings   *Settings       `json:"settings,omitempty"` // of Start
	Cell       string          `json:"cell,omitempty"`
	Kind       box.LinkKind    `json:"kind,omitempty"`   // of Attach
	Policy     json.RawMessage `json:"policy,omitempty"` // of Attach and Update, compiled
	Generation uint64          `json:"generation,omitempty"`
}

// Settings hold for all cells.
type Settings struct {
	Resolvers []netip.AddrPort `json:"resolvers"` // of rules that say "system"
	Events    bool             `json:"events"`    // whether somebody hears them; denials are counted all the same
}

// Reply answers a request, or, with Seq 0, is an event.
type Reply struct {
	Seq     uint64          `json:"seq,omitempty"`
	Error   string          `json:"error,omitempty"`
	Short   bool            `json:"short,omitempty"`   // the error is for want of what comes back: descriptors, memory
	Traffic *box.Traffic    `json:"traffic,omitempty"` // of Tell and Detach
	Event   json.RawMessage `json:"event,omitempty"`
}
