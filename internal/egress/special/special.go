// Package special says which addresses the gateway may reach.
//
// Names are what a policy allows, but packets go to addresses, and whoever owns
// a name says which: a public name may answer with 127.0.0.1, with the address
// of the host's own database, or with that of the service that hands out the
// machine's cloud credentials (DNS rebinding). So each address is checked here
// after the name was resolved, and again in the dialer.
//
// The table is that of IANA's special-purpose registries and what is known of
// clouds, turned around for IPv6: only global unicast may pass, without the
// parts of it that carry an IPv4 address in disguise (6to4, Teredo). The
// standard library's IsGlobalUnicast and IsPrivate are of no use for this: they
// let through most of what is refused here.
//
// What remains in disguise is an address in a prefix that a network has chosen for
// NAT64: nothing shows it. Who knows the prefix gives it to [New].
//
// A second question, [Table.Internal], is for rules that name a network of
// private addresses: there the private ranges may pass, and still no loopback,
// no link-local address and no metadata service. Which addresses are the host's own
// is for its kernel to say, see internal/egress/dial.
//
// Nothing here does I/O. A [Table] never changes; the zero one holds the fixed
// ranges.
package special

import (
	"net/netip"
	"slices"
)

// Table is the fixed ranges, with what is known of this network. It is safe for
// concurrent use.
type Table struct {
	nat64 []netip.Prefix
}

// New returns a table that knows the prefixes over which this network translates IPv6
// to IPv4 (see [NAT64]): an address in one stands for an IPv4 address, and is judged as
// that one.
func New(nat64 []netip.Prefix) Table { return Table{nat64: slices.Clone(nat64)} }

// Check is [Table.Check] of the zero table.
func Check(a netip.Addr) (reason string, ok bool) { return Table{}.Check(a) }

// Check reports whether a public host may have the address. If not, reason is
// half a sentence of why.
func (t Table) Check(a netip.Addr) (reason string, ok bool) {
	if all := t.Translated(a); len(all) > 0 && !Metadata(a) {
		for _, v4 := range all {
			if why, ok := Check(v4); !ok {
				return "it stands for " + v4.String() + " (NAT64): " + why, false
			}
		}
		return "", true
	}
	a, reason = t.never(a)
	if reason != "" {
		return reason, false
	}
	if why := find(private(), a); why != "" {
		return why, false
	}
	return "", true
}

// Internal reports whether a rule that names a private network may reach the
// address: it is in one of the private ranges and none that is refused always.
// If not, reason is half a sentence of why.
func (t Table) Internal(a netip.Addr) (reason string, ok bool) {
	a, reason = t.never(a)
	if reason != "" {
		return reason, false
	}
	if find(private(), a) == "" {
		return "it is no private address", false
	}
	return "", true
}

// never returns the address as it is compared, and why nothing may reach it.
func (t Table) never(a netip.Addr) (netip.Addr, string) {
	switch {
	case !a.IsValid():
		return a, "it is no address"
	case a.Zone() != "":
		return a, "it has a zone: it belongs to one link"
	}
	a = a.Unmap()
	if Metadata(a) {
		return a, "it is a cloud's metadata service"
	}
	if len(t.Translated(a)) > 0 {
		return a, "it is an IPv4 address in IPv6 (NAT64)"
	}
	if why := find(special(), a); why != "" {
		return a, why
	}
	if a.Is6() && !global.Contains(a) && find(private(), a) == "" {
		return a, "it is no global unicast address"
	}
	return a, ""
}

// Metadata reports whether the address is one where clouds answer a machine's
// questions about itself, credentials included; IPv4 in IPv6 is looked at, too.
func Metadata(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	return find(metadata(), a) != ""
}

// MeetsInternal says why a rule may not name the network p: "" if all of it lies
// in the private ranges. What [Table.Internal] refuses may lie in it (and stays
// refused) unless the whole of p does.
func MeetsInternal(p netip.Prefix) string {
	if !p.IsValid() {
		return "it is no network"
	}
	if a := p.Addr(); a.Is4In6() {
		return "it is written as IPv4 in IPv6"
	}
	for _, r := range metadata() {
		if within(p, r.prefix) {
			return "it is a cloud's metadata service"
		}
	}
	for _, r := range special() {
		if within(p, r.prefix) {
			return r.why
		}
	}
	for _, r := range private() {
		if within(p, r.prefix) {
			return ""
		}
	}
	for _, r := range slices.Concat(special(), metadata(), private()) {
		if r.prefix.Overlaps(p) {
			return "it is wider than a private range and covers " + r.prefix.String() + ": " + r.why
		}
	}
	return "it is public: public hosts are allowed by name"
}

// within reports whether all of p lies in r.
func within(p, r netip.Prefix) bool { return r.Bits() <= p.Bits() && r.Contains(p.Addr()) }

func find(rows []row, a netip.Addr) string {
	for _, r := range rows {
		if r.prefix.Contains(a) {
			return r.why
		}
	}
	return ""
}
