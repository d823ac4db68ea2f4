package box

import (
	"context"
	"encoding/json"
)

// Denial is what a box was denied by its network's rules, for one reason.
type Denial struct {
	Kind   string `json:"kind"` // dns, connect, http or link
	Name   string `json:"name,omitempty"`
	Addr   string `json:"addr,omitempty"`
	Port   uint16 `json:"port,omitempty"`
	Method string `json:"method,omitempty"`
	Path   string `json:"path,omitempty"`
	Code   string `json:"code"` // the reason, which does not change between versions
	Rule   string `json:"rule,omitempty"`
	Reason string `json:"reason,omitempty"` // for people
	Fix    string `json:"fix,omitempty"`    // the line of a policy that would allow it; empty if none can
	Count  int64  `json:"count"`
}

// Unanswered reports whether it is no denial, but was allowed and met no answer: a name
// without an address, a resolver or a host that does not answer.
func (d Denial) Unanswered() bool {
	switch d.Code {
	case "name_unknown", "resolver_failed", "upstream_refused", "upstream_timeout":
		return true
	}
	return false
}

// Traffic is what the gateway knows of a box since its link was taken up. Names and
// paths in it are the box's own words.
type Traffic struct {
	Generation  uint64   `json:"generation"` // of the rules in force; it begins with 1
	Open        int      `json:"open"`       // connections
	Connections uint64   `json:"connections"`
	Sent        int64    `json:"sent_bytes"`     // of what the box sent, what was passed on
	Received    int64    `json:"received_bytes"` // and to it
	Denied      []Denial `json:"denied"`         // the most frequent first; at most some hundreds
}

// NetworkInfo is what is known of the network of a box that lasts.
type NetworkInfo struct {
	Mode NetMode
	// Rules are those in force, as JSON; nil without a network.
	Rules []byte
	// Asked is the key network that was asked for, as SetNetwork takes it; nil if
	// there is none.
	Asked []byte
	// Up says that the gateway has the box's link. While it has not, nothing answers.
	Up      bool
	Traffic Traffic
}

// NetworkService is the part of a [Service] that says what boxes reach.
type NetworkService interface {
	// Network tells of a box's network, also of one that is no more.
	Network(context.Context, Caller, ID) (NetworkInfo, error)
	// SetNetwork puts other rules in force: the key `network` of a configuration, as
	// a JSON object. When it returns, open connections that they do not allow are
	// closed. A box that was made without a network gets none, and one with a network
	// keeps it: with no rules it reaches nothing.
	SetNetwork(context.Context, Caller, ID, json.RawMessage) (NetworkInfo, error)
}
