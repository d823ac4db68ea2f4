package rules

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/sunaba-dev/sunaba/internal/hostname"
)

// DefaultLimits returns the limits of a policy that says nothing of them.
func DefaultLimits() Limits {
	return Limits{Conns: 256, Names: 1024, URLBytes: 8 << 10, HeaderBytes: 32 << 10}
}

func defaultDNS() DNS { return DNS{Resolvers: []string{"system"}, Answer: "synthetic"} }

// ParseEntry reads one line of the short form: HOST:PORT, or HOST for port 443.
// Port 80 is plain HTTP; every other port is TLS to the host that is named,
// passed on unread. HOST:PORT/http and HOST:PORT/tcp say what is spoken instead.
// The result's name is the text.
func ParseEntry(text string) (Host, error) {
	host, port, hasPort := strings.Cut(text, ":")
	h := Host{Name: text, Ports: []uint16{443}, Mode: Splice}
	if why := misread(text); why != "" {
		return h, errors.New(why)
	}
	port, protocol, said := strings.Cut(port, "/")
	if strings.ContainsAny(host+port+protocol, "[]/:") {
		return h, errors.New("it is no host:port")
	}
	if hasPort {
		n, err := parsePort(port)
		if err != nil {
			return h, err
		}
		h.Ports[0] = n
		if n == 80 {
			h.Mode = HTTP
		}
	}
	switch {
	case !said:
	case protocol == "tcp":
		h.Mode = TCP
	case protocol == "http":
		h.Mode = HTTP
	default:
		return h, fmt.Errorf("%+.16q is nothing that can be told apart; allowed: http, tcp; without one it is TLS", protocol)
	}
	p, err := hostname.ParsePattern(host)
	var e *hostname.Error
	switch {
	case errors.As(err, &e) && e.Fix != "":
		return h, fmt.Errorf("%s; write %s", e.Why, e.Fix)
	case errors.As(err, &e):
		return h, errors.New(e.Why)
	case err != nil:
		return h, err
	}
	h.Host = p
	return h, nil
}

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != s {
		return 0, fmt.Errorf("%+.16q is no port; allowed: one of 1 to 65535", s)
	}
	return uint16(n), nil
}

// CheckEntry says what is wrong with one element of the short form, the text
// itself left out: a bare reason.
func CheckEntry(text string) error {
	h, err := ParseEntry(text)
	if err != nil {
		return err
	}
	p := &Policy{Version: Version, Short: true, Limits: DefaultLimits(), DNS: defaultDNS(), Hosts: []Host{h}}
	for _, pr := range p.problems() {
		switch {
		case pr.warn:
		case pr.fix != "":
			return fmt.Errorf("%s; %s", pr.msg, pr.fix)
		default:
			return errors.New(pr.msg)
		}
	}
	return nil
}

// FromAllowlist makes a policy of the short form: each element is as for
// [ParseEntry]. An empty list allows nothing.
func FromAllowlist(entries []string) (*Policy, error) {
	p := &Policy{Version: Version, Short: true, Limits: DefaultLimits(), DNS: defaultDNS(), Hosts: []Host{}}
	for _, text := range entries {
		h, err := ParseEntry(text)
		if err != nil {
			return nil, fmt.Errorf("cannot allow %+.80q: %w", text, err)
		}
		p.Hosts = append(p.Hosts, h)
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	return p, nil
}
