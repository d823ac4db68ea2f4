// Package event is what the gateway tells of its decisions: one value for each,
// which is one line of JSON. It is hostile text made safe to log by JSON's own
// escapes; it holds no value of a query, no header and no body.
package event

import "time"

// What an event is about.
const (
	DNS     = "dns"     // a question
	Connect = "connect" // the begin of a connection
	HTTP    = "http"    // a request
	Close   = "close"   // the end of a connection that was allowed
	Link    = "link"    // the wire itself
)

// Decisions.
const (
	Allow = "allow"
	Deny  = "deny"
)

// Event is one decision, or the end of what was decided.
type Event struct {
	Time time.Time `json:"ts"`
	Cell string    `json:"cell"`
	// Conn counts the connections of a cell from 1; 0 is none.
	Conn uint64 `json:"conn,omitempty"`
	Kind string `json:"kind"`
	// Name is the host name, Addr the address that the box or the gateway used.
	Name string `json:"name,omitempty"`
	Addr string `json:"addr,omitempty"`
	Port uint16 `json:"port,omitempty"`
	// Mode is how the connection is carried: splice, http or tcp.
	Mode string `json:"mode,omitempty"`
	SNI  string `json:"sni,omitempty"`
	// Method and Path are those of a request; a path has no query.
	Method string `json:"method,omitempty"`
	Path   string `json:"path,omitempty"`
	Status int    `json:"status,omitempty"`
	// TX and RX are bytes from and to the box, MS milliseconds.
	TX       int64  `json:"tx,omitempty"`
	RX       int64  `json:"rx,omitempty"`
	MS       int64  `json:"ms,omitempty"`
	Decision string `json:"decision,omitempty"`
	// Code is the stable reason, Reason the same for people, Fix the line of
	// policy that would allow it.
	Code       string `json:"code,omitempty"`
	Rule       string `json:"rule,omitempty"`
	Generation uint64 `json:"generation"`
	Reason     string `json:"reason,omitempty"`
	Fix        string `json:"fix,omitempty"`
	// Lost is how many events came before this one, since the last of the box that was
	// told, and were not told: there were too many.
	Lost int64 `json:"lost,omitempty"`
}
