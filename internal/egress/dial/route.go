package dial

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// way is what the kernel does with a packet to an address.
type way int

const (
	wayOut  way = iota // to another host
	wayHere            // it is this host's, or goes to all on a network
	wayNone            // nowhere
)

// Ready reports an error if the kernel does not say which addresses are this host's:
// then nothing can be dialled.
func Ready() error {
	_, err := ask(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 80))
	return err
}

// ask asks the kernel's routing tables about a TCP connection of this process: they
// know each address as soon as it is this host's, by whatever it became so, and are what
// the connection itself will follow. It never waits: the kernel has answered before the
// question is sent.
func ask(to netip.AddrPort) (way, error) {
	w, err := route(to)
	switch {
	case err == nil:
		return w, nil
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		return wayNone, nil
	}
	return wayNone, fmt.Errorf("cannot ask the kernel whose address %s is: %w", to.Addr(), err)
}

func route(to netip.AddrPort) (way, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return wayNone, err
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, routeQuestion(to), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return wayNone, err
	}
	b := make([]byte, 8<<10)
	n, from, err := unix.Recvfrom(fd, b, unix.MSG_DONTWAIT)
	if err != nil {
		return wayNone, fmt.Errorf("read the answer: %w", err)
	}
	if nl, ok := from.(*unix.SockaddrNetlink); !ok || nl.Pid != 0 {
		return wayNone, errors.New("read an answer that is not the kernel's")
	}
	return routeAnswer(b[:n])
}

// routeQuestion is RTM_GETROUTE; see rtnetlink(7).
func routeQuestion(to netip.AddrPort) []byte {
	family, addr := byte(unix.AF_INET), to.Addr().AsSlice()
	if to.Addr().Is6() {
		family = unix.AF_INET6
	}
	b := make([]byte, unix.SizeofNlMsghdr+unix.SizeofRtMsg)
	b[unix.SizeofNlMsghdr], b[unix.SizeofNlMsghdr+1] = family, byte(8*len(addr))
	attr := func(kind uint16, value []byte) {
		b = binary.NativeEndian.AppendUint16(b, uint16(4+len(value)))
		b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
		for len(b)%4 != 0 {
			b = append(b, 0)
		}
	}
	attr(unix.RTA_DST, addr)
	attr(unix.RTA_IP_PROTO, []byte{unix.IPPROTO_TCP})
	attr(unix.RTA_DPORT, binary.BigEndian.AppendUint16(nil, to.Port()))
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], unix.RTM_GETROUTE)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST)
	return b
}

// routeAnswer reads one message: a route, or an error.
func routeAnswer(b []byte) (way, error) {
	if len(b) < unix.SizeofNlMsghdr+4 {
		return wayNone, errors.New("read a short answer")
	}
	body := b[unix.SizeofNlMsghdr:]
	switch kind := binary.NativeEndian.Uint16(b[4:]); {
	case kind == unix.NLMSG_ERROR:
		if n := int32(binary.NativeEndian.Uint32(body)); n < 0 {
			return wayNone, unix.Errno(-n)
		}
		return wayNone, errors.New("read an answer without a route")
	case kind != unix.RTM_NEWROUTE || len(body) < unix.SizeofRtMsg:
		return wayNone, fmt.Errorf("read an answer of kind %d", kind)
	}
	switch body[7] { // rtm_type
	case unix.RTN_UNICAST:
		return wayOut, nil
	case unix.RTN_LOCAL, unix.RTN_BROADCAST, unix.RTN_ANYCAST, unix.RTN_MULTICAST:
		return wayHere, nil
	}
	return wayNone, nil
}
