// Package rules is the network policy of a box: what it may reach, as data.
//
// A policy is a list of hosts. Whatever is in no entry is denied, and an entry
// that denies wins over all that allow. There is no order to think about: two
// entries that could give one request two different answers are refused when
// the policy is loaded, and so is an entry that is never reached. What a
// reviewer sees in one line is therefore what that line does.
//
// Three texts become a [Policy]: a file ([Load]), the short list of host:port
// of the configuration ([FromAllowlist]), and the canonical JSON in which it
// travels to the gateway ([Parse]). All three go through the same checks. Keys
// that are planned and not built are errors, never ignored: a policy must not
// promise what nobody enforces.
//
// The questions are asked in the order in which the gateway learns things: a
// name ([Policy.Name]), a name with a port ([Policy.Host]), an address
// ([Host.Address], [Policy.CIDR]), a request ([Host.Request]). Each answer is a
// [Verdict], with the rule that gave it and the line that would change it.
//
// Nothing here does I/O: text comes in, values come out. A
// Policy never changes once it is made and is safe for concurrent use; callers
// must not change what its fields hold.
package rules

import (
	"net/netip"
	"time"

	"github.com/sunaba-dev/sunaba/internal/hostname"
)

// Version is the version of the policy's form.
const Version = 1

// Policy is what a box may reach. The zero Policy allows nothing, and has no
// limits: use the one that [FromAllowlist] makes of an empty list.
type Policy struct {
	Version int    `json:"version"`
	Short   bool   `json:"short,omitzero"` // made from a list of host:port; for the words of a fix
	Limits  Limits `json:"limits"`
	DNS     DNS    `json:"dns"`
	Hosts   []Host `json:"hosts"`
}

// Limits are the budgets of one box.
type Limits struct {
	Conns       int   `json:"conns"`    // open connections at once; 1 to 4096
	Names       int   `json:"names"`    // different names that are asked for below each wildcard; 1 to 65536
	TxBytes     int64 `json:"tx_bytes"` // bytes sent to all hosts in the life of the box; 0 is no limit
	RxBytes     int64 `json:"rx_bytes"` // bytes received from all hosts in the life of the box; 0 is no limit
	URLBytes    int   `json:"url_bytes"`
	HeaderBytes int   `json:"header_bytes"` // all lines of a request's head together
	Rate        Rate  `json:"rate"`         // new connections; zero is no limit
	// Idle is for how long a connection may stand on which no byte moves, in
	// nanoseconds in JSON: 1 second to 24 hours; zero is [DefaultIdle].
	Idle time.Duration `json:"idle,omitzero"`
}

// DefaultIdle is what a box's slow clients may hold up. RequestIdle is the most that
// a request may ask for: an answer may take its time, such as a model's.
const (
	DefaultIdle = time.Minute
	RequestIdle = 10 * time.Minute
)

// Rate is a number of events in a time. The zero Rate is no limit.
type Rate struct {
	Count int           `json:"count"`
	Per   time.Duration `json:"per"` // nanoseconds in JSON: a second, a minute or an hour
}

// DNS says how names are resolved.
type DNS struct {
	Resolvers []string `json:"resolvers"` // "system", or IP addresses with an optional port
	Answer    string   `json:"answer"`    // "synthetic"
}

// Mode says how a connection is handled once its host is allowed.
type Mode string

// The modes of a [Host].
const (
	Splice Mode = "splice" // TLS to the host that it names, passed on unread
	HTTP   Mode = "http"   // plain HTTP/1, judged request by request
	TCP    Mode = "tcp"    // any bytes, passed on unread
)

// Host is one entry of a policy: some names, or a private network, on some
// ports.
type Host struct {
	Name  string           `json:"name"`           // given, or "hosts[2]"
	Host  hostname.Pattern `json:"host,omitzero"`  // zero: the entry is for addresses of CIDR alone
	Ports []uint16         `json:"ports,omitzero"` // sorted; empty, for a denying entry only: every port
	Mode  Mode             `json:"mode,omitzero"`  // empty for a denying entry only
	Deny  bool             `json:"deny,omitzero"`

	// CIDR, if valid, is the private network in which the host's addresses
	// must lie. In an entry that denies, and has no Host, it is any network: no
	// connection goes there, also not by a name.
	CIDR netip.Prefix `json:"cidr,omitzero"`
	// SNIOptional lets a TLS hello without a name pass in mode Splice.
	SNIOptional bool   `json:"sni_optional,omitzero"`
	Rules       []Rule `json:"rules,omitzero"` // for requests; none: all that the host has
	Budget      Budget `json:"budget,omitzero"`

	line  int     // in the file, from 1; 0 if it came otherwise
	never []*Host // the policy's entries that deny by address; see Address
	short bool    // the policy is one of the short form
}

// Rule allows or denies requests to a host in mode HTTP.
type Rule struct {
	Name    string   `json:"name"`             // given, or "rules[0]"
	Methods []string `json:"methods,omitzero"` // empty: all that [Methods] lists
	Paths   []Path   `json:"paths,omitzero"`   // empty: all
	Deny    bool     `json:"deny,omitzero"`
	Budget  Budget   `json:"budget,omitzero"`

	line int
	wide []string // of a rule that denies: the paths as onReadings compares them; see Policy.link
}

// Budget bounds what goes through one entry in the life of the box. Zero is no
// limit.
type Budget struct {
	TxBytes int64 `json:"tx_bytes,omitzero"` // sent to the host
	RxBytes int64 `json:"rx_bytes,omitzero"` // received from it
	Rate    Rate  `json:"rate,omitzero"`     // connections of an entry, requests of a rule
}

// Code is a stable word for why something was decided.
type Code string

// The codes of a [Verdict].
const (
	Allowed      Code = "allowed"
	NotListed    Code = "host_not_allowed"   // no entry is for this name or address
	PortClosed   Code = "port_not_allowed"   // there is one, for other ports
	DeniedByRule Code = "denied_by_rule"     // an entry or rule says no
	BadMethod    Code = "method_forbidden"   // no rule can allow it
	BadPath      Code = "path_not_canonical" // a mistake of the caller; nothing is decided about such a path
	MethodClosed Code = "method_not_allowed"
	PathClosed   Code = "path_not_allowed"
	BodyClosed   Code = "body_not_allowed"  // a method that only asks, and bytes behind the head
	Overridden   Code = "method_override"   // the query names another method
	BadName      Code = "name_forbidden"    // a name of a cloud's metadata service; no entry can allow it
	BadAddress   Code = "address_forbidden" // special, metadata, this host's own
	OutsideCIDR  Code = "address_outside_cidr"
	NotHTTP      Code = "request_not_read" // a question about requests to a host that is not in mode HTTP
)

// Verdict is an answer.
type Verdict struct {
	Allow  bool
	Rule   string // the entry or rule that decided, as "NAME" or "ENTRY/RULE"; empty if none did
	Code   Code
	Reason string // one sentence for people
	Fix    string // the line that would allow it; empty if no line can
	Budget Budget // of the rule; of an allowed request or connection only
}
