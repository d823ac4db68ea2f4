package gate

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/internal/egress/control"
	"github.com/sunaba-dev/sunaba/internal/egress/dial"
	"github.com/sunaba-dev/sunaba/internal/egress/link"
	"github.com/sunaba-dev/sunaba/internal/egress/rules"
)

// dialers are one for each list of resolvers that a policy names. What they
// remember are addresses, never who asked.
type dialers struct {
	mu       sync.Mutex
	settings *control.Settings
	by       map[string]*dial.Dialer
}

const maxDialers = 256

func (d *dialers) set(s control.Settings) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settings, d.by = &s, map[string]*dial.Dialer{}
}

// of is the dialer of a policy.
func (d *dialers) of(p *rules.Policy) (*dial.Dialer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.settings == nil {
		return nil, errors.New("cannot attach: the gateway was not started")
	}
	key := strings.Join(p.DNS.Resolvers, " ")
	if found := d.by[key]; found != nil {
		return found, nil
	}
	var list []netip.AddrPort
	for _, r := range p.DNS.Resolvers {
		if r == "system" {
			list = append(list, d.settings.Resolvers...)
			continue
		}
		a, err := netip.ParseAddrPort(r)
		if err != nil {
			var ip netip.Addr
			ip, err = netip.ParseAddr(r)
			a = netip.AddrPortFrom(ip, 53)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot ask resolver %q: it is no address", r)
		}
		list = append(list, a)
	}
	if len(d.by) >= maxDialers {
		clear(d.by) // those in use live on
	}
	made := &dial.Dialer{Resolver: dial.NewServers(list)}
	d.by[key] = made
	return made, nil
}

// place finds out which interface a packet socket is on.
func place(c *link.Config) error {
	name, err := unix.Getsockname(c.FD)
	if err != nil {
		return fmt.Errorf("cannot take the link: %w", err)
	}
	at, ok := name.(*unix.SockaddrLinklayer)
	if !ok {
		return errors.New("cannot take the link: it is no packet socket")
	}
	c.Interface, c.PeerMAC = at.Ifindex, boxMAC()
	return nil
}
