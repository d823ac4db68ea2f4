package nic

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/box"
)

// TUN is the device file by which TUN devices are made: Documentation/networking/tuntap.rst
// of the kernel.
const TUN = "/dev/net/tun"

// TUNNumber is that of its device file.
func TUNNumber() uint64 { return unix.Mkdev(10, 200) }

// Make makes the interface in the network namespace of the calling process, which
// has to be a fresh one and needs CAP_NET_ADMIN over it, and for the second way
// CAP_NET_RAW and CAP_SYS_ADMIN. Names of TUN's device file are tried in order;
// where none can be opened it is a pair of Ethernet interfaces.
func Make(tun ...string) (box.Link, error) {
	var errs []error
	for _, name := range tun {
		f, err := makeTUN(name)
		if err == nil {
			return box.Link{File: f, Kind: box.LinkTUN}, nil
		}
		errs = append(errs, err)
	}
	f, err := makePair()
	if err != nil {
		return box.Link{}, errors.Join(append(errs, err)...)
	}
	return box.Link{File: f, Kind: box.LinkPacket}, nil
}

func makeTUN(name string) (_ *os.File, err error) {
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", TUN, err)
	}
	f := os.NewFile(uintptr(fd), "tun")
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	ifr, err := unix.NewIfreq(Name)
	if err != nil {
		return nil, err
	}
	ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
		return nil, fmt.Errorf("cannot make TUN device: %w", err)
	}
	n, err := openNetlink()
	if err != nil {
		return nil, err
	}
	defer n.close()
	return f, configure(n, nil)
}

// makePair makes the pair with its other end in a namespace of its own, which
// lasts as long as the socket: a program of the box sees one interface, and what it
// sends there meets no second network stack.
func makePair() (*os.File, error) {
	n, err := openNetlink()
	if err != nil {
		return nil, err
	}
	defer n.close()
	var f *os.File
	err = apart(func(ns int) error {
		if err := n.addPair(Name, "gateway", ns); err != nil {
			return err
		}
		f, err = packetSocket("gateway")
		return err
	})
	if err != nil {
		return nil, err
	}
	mac, err := net.ParseMAC(box.LinkGatewayMAC)
	if err == nil {
		err = configure(n, mac)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// apart runs fn on a thread in a new network namespace, of which ns is a
// descriptor; the thread ends after that. It is never the main one, which could not
// be thrown away and is what the kernel shows of this process.
func apart(fn func(ns int) error) error {
	result := make(chan error, 1)
	go takeThread(fn, result)
	return <-result
}

func takeThread(fn func(ns int) error, result chan<- error) {
	runtime.LockOSThread() // never unlocked but below: the thread ends with the goroutine
	if unix.Gettid() == unix.Getpid() {
		err := apart(fn) // on another thread, since this one is taken
		runtime.UnlockOSThread()
		result <- err
		return
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		result <- fmt.Errorf("cannot make a network namespace for the other end: %w", err)
		return
	}
	ns, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		result <- fmt.Errorf("cannot name a network namespace: %w", err)
		return
	}
	defer unix.Close(ns)
	result <- fn(ns)
}

// packetSocket raises an interface of the calling thread's namespace and reads it.
func packetSocket(name string) (_ *os.File, err error) {
	n, err := openNetlink()
	if err != nil {
		return nil, err
	}
	defer n.close()
	i, err := n.index(name)
	if err == nil {
		err = n.raise(i)
	}
	if err != nil {
		return nil, err
	}
	// No protocol until it is bound: else it has packets of every interface.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot make packet socket: %w", err)
	}
	f := os.NewFile(uintptr(fd), "packets")
	err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	if err == nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, room) // as much as there may be
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: swapped(unix.ETH_P_ALL), Ifindex: int(i)})
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot read interface %s: %w", name, err)
	}
	return f, nil
}

// swapped is a number of 16 bits in the order of the network.
func swapped(n uint16) uint16 { return n<<8 | n>>8 }

// configure gives the box's end its addresses and routes. With a hardware address
// the gateway is a neighbour of that one; else the interface has none.
func configure(n *netlink, gateway net.HardwareAddr) error {
	i, err := n.index(Name)
	if err != nil {
		return err
	}
	if err := n.setMTU(i, box.LinkMTU); err != nil {
		return err
	}
	for _, a := range []struct {
		addr, via string
		bits      uint8
	}{{box.LinkBox4, box.LinkGateway4, 30}, {box.LinkBox6, box.LinkGateway6, 126}} {
		addr, via := netip.MustParseAddr(a.addr), netip.MustParseAddr(a.via)
		err := n.addAddress(i, addr, a.bits)
		if addr.Is6() && (errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EACCES)) {
			continue // a kernel without it, or one where it is turned off
		}
		if err == nil && addr.Is4() {
			err = n.raise(i) // before routes, which are taken away with an interface that is down
		}
		if err == nil && gateway != nil {
			err = n.addNeighbour(i, via, gateway)
		}
		if err == nil {
			err = n.addDefault(i, via)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
