package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/egress/control"
	"github.com/sunaba-dev/sunaba/internal/egress/gate"
	"github.com/sunaba-dev/sunaba/internal/egress/keeper"
	"github.com/sunaba-dev/sunaba/internal/egress/ledger"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// gatewayUser is who the gateway is on the host if root starts it: beside the users
// of boxes, which begin at 0x70000000 and are 2^24 (frame.Site.HostUser).
const gatewayUser = 0x71000000

// newKeeper keeps a gateway, which is started for the first box that needs it.
// Resolvers are asked instead of those of /etc/resolv.conf, if there are any. Without
// a folder for ledgers they end with the keeper.
func newKeeper(resolvers []netip.AddrPort, ledgers *ledger.Folder, log *slog.Logger) *keeper.Keeper {
	c := keeper.Config{
		Start: func(f, stderr *os.File) (*host.Child, error) {
			h := host.Helper{Args: []string{gate.Argv}, Files: []*os.File{f}, Stderr: stderr}
			if host.IsRoot() {
				h.UID, h.GID = gatewayUser, gatewayUser
			}
			return h.Start()
		},
		Settings: func() (control.Settings, error) { return gatewaySettings(resolvers) },
		Log:      log,
		Ledgers:  ledgers,
	}
	if log.Enabled(context.Background(), slog.LevelInfo) {
		c.Event = func(e json.RawMessage) { log.Info("network", "event", e) }
	}
	return keeper.New(c)
}

// gatewaySettings are what the gateway cannot find out by itself, having no files.
func gatewaySettings(resolvers []netip.AddrPort) (control.Settings, error) {
	s := control.Settings{Resolvers: resolvers}
	if len(s.Resolvers) > 0 {
		return s, nil
	}
	var err error
	s.Resolvers, err = systemResolvers("/etc/resolv.conf")
	return s, err
}

// systemResolvers reads the name servers of resolv.conf(5). A host without any has
// none: then no name leads anywhere.
func systemResolvers(file string) ([]netip.AddrPort, error) {
	f, err := os.Open(file)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the host's resolvers: %w", err)
	}
	defer f.Close()
	var out []netip.AddrPort
	lines := bufio.NewScanner(f)
	for lines.Scan() && len(out) < 3 { // MAXNS of resolv.conf(5)
		w := strings.Fields(lines.Text())
		if len(w) < 2 || w[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(w[1]); err == nil {
			out = append(out, netip.AddrPortFrom(a, 53))
		}
	}
	return out, lines.Err()
}

// addResolver is --resolver: an address, with a port if it is not 53.
func addResolver(to *[]netip.AddrPort) func(string) error {
	return func(s string) error {
		a, err := netip.ParseAddrPort(s)
		if err != nil {
			var ip netip.Addr
			if ip, err = netip.ParseAddr(s); err != nil {
				return box.Errorf(box.Invalid, "configure", "cannot ask resolver %q: it is no address, nor an address with a port", s)
			}
			a = netip.AddrPortFrom(ip, 53)
		}
		*to = append(*to, a)
		return nil
	}
}
