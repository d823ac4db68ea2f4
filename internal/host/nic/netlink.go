package nic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/box"
)

// netlink asks the kernel for changes to one network namespace, that of the thread
// which opened it: rtnetlink(7).
type netlink struct {
	fd  int
	seq uint32
}

func openNetlink() (*netlink, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err == nil {
		if err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			unix.Close(fd)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot ask for network interfaces: %w", err)
	}
	return &netlink{fd: fd}, nil
}

func (n *netlink) close() { unix.Close(n.fd) }

// order is the byte order of the host, which netlink's words are in.
func order() binary.ByteOrder { return binary.NativeEndian }

// attr is one attribute, with its padding.
func attr(kind uint16, value []byte) []byte {
	b := make([]byte, 4, 4+len(value)+3)
	order().PutUint16(b, uint16(4+len(value)))
	order().PutUint16(b[2:], kind)
	b = append(b, value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func text(s string) []byte { return append([]byte(s), 0) }

func word(n uint32) []byte {
	b := make([]byte, 4)
	order().PutUint32(b, n)
	return b
}

func join(parts ...[]byte) (all []byte) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// do sends one request and waits for its acknowledgement.
func (n *netlink) do(kind, flags uint16, body ...[]byte) error {
	n.seq++
	b := join(body...)
	head := make([]byte, unix.SizeofNlMsghdr)
	order().PutUint32(head, uint32(len(head)+len(b)))
	order().PutUint16(head[4:], kind)
	order().PutUint16(head[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK|flags)
	order().PutUint32(head[8:], n.seq)
	if err := unix.Sendto(n.fd, append(head, b...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	in := make([]byte, 8<<10)
	for {
		m, _, err := unix.Recvfrom(n.fd, in, 0)
		if err != nil {
			return err
		}
		if m < unix.SizeofNlMsghdr+4 || order().Uint32(in[8:]) != n.seq {
			continue
		}
		if order().Uint16(in[4:]) != unix.NLMSG_ERROR {
			return errors.New("the kernel's answer is none")
		}
		if code := int32(order().Uint32(in[unix.SizeofNlMsghdr:])); code != 0 {
			return unix.Errno(-code)
		}
		return nil
	}
}

const create = unix.NLM_F_CREATE | unix.NLM_F_EXCL

// linkMessage is a struct ifinfomsg.
func linkMessage(index, flags, change uint32) []byte {
	return join([]byte{unix.AF_UNSPEC, 0, 0, 0}, word(index), word(flags), word(change))
}

// quiet keeps IPv6 from making addresses of its own for an interface, and from
// asking for routers.
func quiet() []byte {
	const none = 1 // IN6_ADDR_GEN_MODE_NONE of linux/if_link.h
	return attr(unix.IFLA_AF_SPEC, attr(unix.AF_INET6, attr(unix.IFLA_INET6_ADDR_GEN_MODE, []byte{none})))
}

// addPair makes a pair of Ethernet interfaces: veth(4). The peer is in the
// namespace of a descriptor.
func (n *netlink) addPair(name, peer string, peerNS int) error {
	mac, err := net.ParseMAC(box.LinkBoxMAC)
	if err != nil {
		return err
	}
	gateway, err := net.ParseMAC(box.LinkGatewayMAC)
	if err != nil {
		return err
	}
	const vethInfoPeer = 1 // linux/veth.h
	other := join(linkMessage(0, 0, 0), attr(unix.IFLA_IFNAME, text(peer)), attr(unix.IFLA_ADDRESS, gateway),
		attr(unix.IFLA_MTU, word(box.LinkMTU)), attr(unix.IFLA_NET_NS_FD, word(uint32(peerNS))))
	err = n.do(unix.RTM_NEWLINK, create, linkMessage(0, 0, 0), attr(unix.IFLA_IFNAME, text(name)), attr(unix.IFLA_ADDRESS, mac),
		attr(unix.IFLA_LINKINFO, join(attr(unix.IFLA_INFO_KIND, []byte("veth")), attr(unix.IFLA_INFO_DATA, attr(vethInfoPeer, other)))))
	if err != nil {
		return fmt.Errorf("cannot make a pair of interfaces: %w", err)
	}
	return nil
}

// index finds an interface of the calling thread's namespace.
func (n *netlink) index(name string) (uint32, error) {
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("cannot find interface %s: %w", name, err)
	}
	defer unix.Close(s)
	if err := unix.IoctlIfreq(s, unix.SIOCGIFINDEX, ifr); err != nil {
		return 0, fmt.Errorf("cannot find interface %s: %w", name, err)
	}
	return ifr.Uint32(), nil
}

// raise turns an interface on.
func (n *netlink) raise(i uint32) error {
	_ = n.do(unix.RTM_NEWLINK, 0, linkMessage(i, 0, 0), quiet()) // a kernel without IPv6 knows nothing of it
	if err := n.do(unix.RTM_NEWLINK, 0, linkMessage(i, unix.IFF_UP, unix.IFF_UP)); err != nil {
		return fmt.Errorf("cannot turn interface on: %w", err)
	}
	return nil
}

func (n *netlink) setMTU(i, mtu uint32) error {
	if err := n.do(unix.RTM_NEWLINK, 0, linkMessage(i, 0, 0), attr(unix.IFLA_MTU, word(mtu))); err != nil {
		return fmt.Errorf("cannot set MTU to %d: %w", mtu, err)
	}
	return nil
}

func family(a netip.Addr) byte {
	if a.Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// addAddress adds an address, without asking the network whether another has it.
func (n *netlink) addAddress(i uint32, a netip.Addr, bits uint8) error {
	msg := join([]byte{family(a), bits, unix.IFA_F_NODAD, unix.RT_SCOPE_UNIVERSE}, word(i)) // struct ifaddrmsg
	if err := n.do(unix.RTM_NEWADDR, create, msg, attr(unix.IFA_LOCAL, a.AsSlice()), attr(unix.IFA_ADDRESS, a.AsSlice())); err != nil {
		return fmt.Errorf("cannot add address %v: %w", a, err)
	}
	return nil
}

// addNeighbour says for good what hardware address an address has.
func (n *netlink) addNeighbour(i uint32, a netip.Addr, mac net.HardwareAddr) error {
	state := make([]byte, 2)
	order().PutUint16(state, unix.NUD_PERMANENT)
	msg := join([]byte{family(a), 0, 0, 0}, word(i), state, []byte{0, 0}) // struct ndmsg
	if err := n.do(unix.RTM_NEWNEIGH, create, msg, attr(unix.NDA_DST, a.AsSlice()), attr(unix.NDA_LLADDR, mac)); err != nil {
		return fmt.Errorf("cannot add neighbour %v: %w", a, err)
	}
	return nil
}

// addDefault sends all that is for nobody here to a neighbour.
func (n *netlink) addDefault(i uint32, via netip.Addr) error {
	msg := []byte{family(via), 0, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_STATIC, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST, 0, 0, 0, 0} // struct rtmsg
	if err := n.do(unix.RTM_NEWROUTE, create, msg, attr(unix.RTA_GATEWAY, via.AsSlice()), attr(unix.RTA_OIF, word(i))); err != nil {
		return fmt.Errorf("cannot add route by %v: %w", via, os.NewSyscallError("rtnetlink", err))
	}
	return nil
}
