package rules

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sunaba-dev/sunaba/internal/egress/special"
	"github.com/sunaba-dev/sunaba/internal/hostname"
)

// What people write who do not write HOST:PORT, and what they should write.

// fromURL returns the host, the port and what is spoken there, of a URL, in the short
// form: a scheme that is neither of the web's is for raw bytes.
func fromURL(text string) (string, bool) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return "", false
	}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	host, port, _ := strings.Cut(rest[strings.LastIndexByte(rest, '@')+1:], ":")
	if p, err := hostname.ParsePattern(host); err != nil || p.Wild() {
		return "", false
	}
	switch scheme {
	case "https", "wss":
		if port == "" {
			return host, true
		}
	case "http", "ws":
		if port == "" {
			port = "80"
		}
		if port != "80" {
			port += "/http"
		}
	default:
		port = cmp.Or(port, usualPort(scheme), "PORT") + "/tcp"
	}
	return host + ":" + port, true
}

// usualPort is where what a scheme names is, if no port is given; empty if that is
// not known.
func usualPort(scheme string) string {
	switch scheme {
	case "ssh", "git+ssh", "sftp":
		return "22"
	case "git":
		return "9418"
	case "postgres", "postgresql":
		return "5432"
	case "mysql":
		return "3306"
	case "redis":
		return "6379"
	}
	return ""
}

// asNetwork reads an address or a network, each with a port or without.
func asNetwork(text string) (p netip.Prefix, port string, ok bool) {
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), "", true
	}
	if a, err := netip.ParseAddrPort(text); err == nil {
		return netip.PrefixFrom(a.Addr(), a.Addr().BitLen()), fmt.Sprint(a.Port()), true
	}
	if i := strings.LastIndexByte(text, ':'); i > strings.IndexByte(text, '/') {
		text, port = text[:i], text[i+1:]
	}
	p, err := netip.ParsePrefix(text)
	return p.Masked(), port, err == nil
}

// everything is said to a star that stands alone.
const everything = "a star alone would be everything, which nothing can allow: name the hosts, as in example.com or *.example.com; what a run was denied is told at its end"

// misread says what an element of the short form is that is no HOST:PORT, and the
// way out; empty if that cannot be told.
func misread(text string) string {
	if host, ok := fromURL(text); ok {
		return "it is a URL, and an entry is for all of a host; write " + host
	}
	if host, port, _ := strings.Cut(text, ":"); host == "*" && !strings.Contains(port, ":") {
		return everything
	}
	address := strings.TrimSuffix(strings.TrimSuffix(text, "/tcp"), "/http")
	if p, port, ok := asNetwork(address); ok {
		if why := special.MeetsInternal(p); why != "" {
			return "it is an IP address, not a name, and nothing can allow it: " + why
		}
		return fmt.Sprintf("it is an IP address, not a name; a private one takes a policy file, with - { cidr: %s, port: %s, protocol: tcp, sink: internal }", p, cmp.Or(port, "PORT"))
	}
	host, path, hasPath := strings.Cut(text, "/")
	below, isBelow := strings.CutPrefix(text, ".")
	switch {
	case strings.Contains(text, ","):
		return "it is more than one entry; give each by itself"
	case hasPath && isHost(host) && (path == "tcp" || path == "http"):
		return fmt.Sprintf("it has no port; write %s:PORT/%s", host, path)
	case hasPath && isHost(host):
		return "it has a path, and an entry is for all of a host; write " + host
	case isBelow && isHost(below):
		return fmt.Sprintf("it begins with a dot; for all names below %[1]s write *.%[1]s, and for itself %[1]s", below)
	}
	return ""
}

func isHost(text string) bool {
	p, err := hostname.ParsePattern(text)
	return err == nil && !p.Wild()
}

// misreadHost is the same for `host` of the long form.
func misreadHost(text string) string {
	if host, ok := fromURL(text); ok {
		host, _, _ = strings.Cut(host, ":")
		return "it is a URL; write " + host
	}
	if text == "*" {
		return everything
	}
	p, _, ok := asNetwork(text)
	if !ok {
		return ""
	}
	if why := special.MeetsInternal(p); why != "" {
		return "it is an IP address, not a name, and nothing can allow it: " + why
	}
	return fmt.Sprintf("it is an IP address, not a name; write `cidr: %s, sink: internal` instead of host", p)
}

// neverTLS reports whether a port is known for what does not begin with a TLS hello:
// SSH, SMTP, PostgreSQL, MySQL, git.
func neverTLS(port uint16) bool { return slices.Contains([]uint16{22, 25, 3306, 5432, 9418}, port) }

// SpeakFix is the line that would let a connection to n pass that does not begin
// with TLS, as h says: mode is what it seems to be, HTTP or TCP.
func (h *Host) SpeakFix(n hostname.Name, port uint16, mode Mode) string {
	switch {
	case mode == TCP && h.Host.Wild():
		return "" // raw bytes go to one host
	case h.short:
		return fmt.Sprintf("%s:%d/%s in place of %s", n, port, mode, h.Name)
	}
	return fmt.Sprintf("protocol: %s in the entry %s", mode, h.Name)
}

// addressFix is the line that would let the entry reach a private address.
func (h *Host) addressFix(a netip.Addr, port uint16) string {
	p := netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen())
	if !h.short {
		return fmt.Sprintf("add `cidr: %s, sink: internal` to the entry %s", p, h.Name)
	}
	return h.fileLine(port, p.String())
}

// privateFix is that for a name that belongs to some private network.
func (h *Host) privateFix() string { return "it takes " + h.fileLine(h.Ports[0], "NETWORK") }

func (h *Host) fileLine(port uint16, cidr string) string {
	speaks := map[Mode]string{Splice: "tls: splice", HTTP: "protocol: http", TCP: "protocol: tcp"}[h.Mode]
	if h.Mode == Splice && neverTLS(port) {
		speaks = "protocol: tcp"
	}
	return fmt.Sprintf("a policy file with - { host: %s, port: %d, %s, cidr: %s, sink: internal }", h.Host, port, speaks, cidr)
}
