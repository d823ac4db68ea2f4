// Package nic makes a box's second network interface and the descriptor at the
// host's end of it: [box.Link] says what each kind carries.
//
// No interface, route or rule of the host's own network takes part in any of
// them. A guest with a kernel of its own gets one end of a pair of sockets
// ([Pair]). A box of host processes has a network namespace, in which its first
// process, before it gives up its rights, makes a TUN device if it can open one,
// and else a pair of Ethernet interfaces (veth) whose other end it reads by a
// packet socket ([Make]). Whoever has the descriptor has the link: a device or
// packet socket stays in the namespace that it was made in, wherever its
// descriptor is passed to.
//
// The few words of rtnetlink(7) that this takes are written here; a library for
// it is larger than this package and knows every other word, too.
package nic

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// Name is what the interface is called in the box.
const Name = "eth0"

// room is how many bytes of packets may be on their way in one direction of a
// pair. A whole packet of box.LinkMTU counts about twice.
const room = 8 << 20

// Pair returns the two ends of a link of kind box.LinkSeqpacket. An ordinary user
// gets less room than root, by net.core.wmem_max: more packets are dropped then,
// and sent again.
func Pair() (ours, theirs *os.File, err error) {
	if ours, theirs, err = host.PacketPair(); err != nil {
		return nil, nil, err
	}
	for _, f := range []*os.File{ours, theirs} {
		fd := int(f.Fd())
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, room) == nil {
			continue
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, room); err != nil {
			ours.Close()
			theirs.Close()
			return nil, nil, fmt.Errorf("cannot make room for packets: %w", err)
		}
	}
	return ours, theirs, nil
}

// Check makes sure that a descriptor from somebody who is not trusted is of the
// kind that it should be.
func Check(l box.Link) error {
	fd := int(l.File.Fd())
	var want [][2]int
	switch l.Kind {
	case box.LinkSeqpacket:
		want = [][2]int{{unix.SO_DOMAIN, unix.AF_UNIX}, {unix.SO_TYPE, unix.SOCK_SEQPACKET}, {unix.SO_ACCEPTCONN, 0}}
	case box.LinkPacket:
		want = [][2]int{{unix.SO_DOMAIN, unix.AF_PACKET}, {unix.SO_TYPE, unix.SOCK_DGRAM}}
	case box.LinkTUN:
		return checkTUN(fd)
	default:
		return fmt.Errorf("cannot use link: there is no kind %q", l.Kind)
	}
	for _, w := range want {
		if got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, w[0]); err != nil || got != w[1] {
			return fmt.Errorf("cannot use link: what came is no %s", l.Kind)
		}
	}
	return nil
}

// checkTUN asks the device for its flags: TUNGETIFF.
func checkTUN(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(10, 200) {
		return errors.New("cannot use link: what came is no TUN device")
	}
	ifr, err := unix.NewIfreq("")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.TUNGETIFF, ifr); err != nil {
		return fmt.Errorf("cannot use link: %w", err)
	}
	if got := ifr.Uint16(); got&(unix.IFF_TUN|unix.IFF_NO_PI|unix.IFF_VNET_HDR|unix.IFF_TAP) != unix.IFF_TUN|unix.IFF_NO_PI {
		return fmt.Errorf("cannot use link: a TUN device with flags %#x", got)
	}
	return nil
}
