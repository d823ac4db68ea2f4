package special

import "net/netip"

// NAT64Name is the name whose IPv6 addresses, where there are any, say how a network
// hides IPv4 addresses in IPv6 (RFC 7050).
const NAT64Name = "ipv4only.arpa"

// embedding is one of the six places for an IPv4 address in an IPv6 one (RFC 6052, 2.2):
// the length of the prefix, and the bytes after it. Byte 8 is 0 but in the longest.
type embedding struct {
	bits int
	at   [4]int
}

func embeddings() []embedding {
	return []embedding{
		{32, [4]int{4, 5, 6, 7}}, {40, [4]int{5, 6, 7, 9}}, {48, [4]int{6, 7, 9, 10}},
		{56, [4]int{7, 9, 10, 11}}, {64, [4]int{9, 10, 11, 12}}, {96, [4]int{12, 13, 14, 15}},
	}
}

func (e embedding) of(a netip.Addr) netip.Addr {
	b := a.As16()
	return netip.AddrFrom4([4]byte{b[e.at[0]], b[e.at[1]], b[e.at[2]], b[e.at[3]]})
}

// NAT64 reads the addresses of [NAT64Name]: prefixes in which one of the two addresses
// of that name lies. If it lies there in more than one way, all are returned, and all
// have to agree.
func NAT64(answer []netip.Addr) (out []netip.Prefix) {
	known := func(a netip.Addr) bool {
		return a == netip.AddrFrom4([4]byte{192, 0, 0, 170}) || a == netip.AddrFrom4([4]byte{192, 0, 0, 171})
	}
	for _, a := range answer {
		if !a.Is6() || a.Is4In6() {
			continue
		}
		for _, e := range embeddings() {
			if p, err := a.WithZone("").Prefix(e.bits); err == nil && known(e.of(a)) && (e.bits == 96 || a.As16()[8] == 0) {
				out = append(out, p)
			}
		}
	}
	return out
}

// Translated lists the IPv4 addresses that a may stand for in this network; none, if it
// is in no prefix of NAT64's.
func (t Table) Translated(a netip.Addr) (out []netip.Addr) {
	a = a.WithZone("")
	for _, p := range t.nat64 {
		if !p.Contains(a) {
			continue
		}
		for _, e := range embeddings() {
			if e.bits == p.Bits() {
				out = append(out, e.of(a))
			}
		}
	}
	return out
}
