package gvisor

import (
	"errors"
	"fmt"
	"net"
	"os"

	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/wire"
	"github.com/sunaba-dev/sunaba/internal/host"
	hostnic "github.com/sunaba-dev/sunaba/internal/host/nic"
)

// networkOf is what the guest's kernel is to have: a loopback interface, and with
// one end of a link a card whose cable that is. Its packets have no Ethernet
// header, since there is no address on it, and no checksum, since nothing on a
// socket of this host changes them.
func networkOf(nic *os.File) *boot.CreateLinksAndRoutesArgs {
	args := &boot.CreateLinksAndRoutesArgs{LoopbackLinks: []boot.LoopbackLink{boot.DefaultLoopbackLink}}
	if nic == nil {
		return args
	}
	v4, v6 := net.ParseIP(box.LinkBox4).To4(), net.ParseIP(box.LinkBox6)
	near := func(ip net.IP, mask net.IPMask) boot.Route {
		return boot.Route{Destination: net.IPNet{IP: ip.Mask(mask), Mask: mask}}
	}
	def := func(gateway net.IP, bits int) boot.DefaultRoute {
		zero := make(net.IP, bits/8)
		return boot.DefaultRoute{Name: hostnic.Name, Route: boot.Route{Destination: net.IPNet{IP: zero, Mask: net.CIDRMask(0, bits)}, Gateway: gateway}}
	}
	args.FDBasedLinks = []boot.FDBasedLink{{
		Name: hostnic.Name, MTU: box.LinkMTU, NumChannels: 1, QDisc: config.QDiscNone,
		TXChecksumOffload: true, RXChecksumOffload: true,
		Addresses: []boot.IPWithPrefix{{Address: v4, PrefixLen: 30}, {Address: v6, PrefixLen: 126}},
		Routes:    []boot.Route{near(v4, net.CIDRMask(30, 32)), near(v6, net.CIDRMask(126, 128))},
	}}
	args.Defaultv4Gateway = def(net.ParseIP(box.LinkGateway4).To4(), 32)
	args.Defaultv6Gateway = def(net.ParseIP(box.LinkGateway6), 128)
	args.FilePayload = urpc.FilePayload{Files: []*os.File{nic}}
	return args
}

// start starts the guest's kernel with its network.
func (r *runner) start(c *container.Container, conf *config.Config, nic *os.File) error {
	if nic == nil {
		return c.Start(conf)
	}
	r.c = c
	err := r.ask(boot.ContMgrSetNetworkArgs, networkOf(nic))
	r.c = nil
	if err != nil {
		return fmt.Errorf("cannot set up the network: %w", err)
	}
	// Start would set up another one, except by this mode, which it does not use for
	// anything else: the kernel has been told its own already.
	left := *conf
	left.Network = config.NetworkHost
	return c.Start(&left)
}

// giveLink answers with the host's end of the link.
func (r *runner) giveLink() (any, error) {
	if r.far == nil {
		return nil, errors.New("cannot give the link: this box has none")
	}
	f, err := host.Dup(r.far)
	if err != nil {
		return nil, err
	}
	return wire.WithFiles{Body: wire.LinkKind{Kind: box.LinkSeqpacket}, Files: []*os.File{f}}, nil
}
