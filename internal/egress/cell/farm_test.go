package cell

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"github.com/sunaba-dev/sunaba/internal/egress/dial"
	"github.com/sunaba-dev/sunaba/internal/egress/event"
	"github.com/sunaba-dev/sunaba/internal/egress/link"
	"github.com/sunaba-dev/sunaba/internal/egress/rules"
	"github.com/sunaba-dev/sunaba/internal/hostname"
)

// farm is a box with a cell, and a world that records what reaches it.
type farm struct {
	t     testing.TB
	cell  *Cell
	stack *stack.Stack // the box's kernel
	world *world

	dialer *dial.Dialer // the cell's
	mu     sync.Mutex
	events []event.Event
}

// world is all that is outside: names, and what listens at addresses.
type world struct {
	mu    sync.Mutex
	names map[string][]netip.Addr
	err   error               // of the resolver
	asked []string            // names that were resolved
	at    map[string]net.Addr // "8.8.8.8:443": where that is here
	dials []string            // addresses that were dialled
}

func newWorld() *world {
	return &world{names: map[string][]netip.Addr{}, at: map[string]net.Addr{}}
}

func (w *world) Resolve(_ context.Context, n hostname.Name) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, string(n))
	return w.names[string(n)], w.err
}

func (w *world) NAT64(context.Context) ([]netip.Prefix, error) { return nil, nil }

func (w *world) place(a netip.AddrPort) netip.AddrPort {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dials = append(w.dials, a.String())
	if at := w.at[a.String()]; at != nil {
		return netip.MustParseAddrPort(at.String())
	}
	return netip.MustParseAddrPort("127.0.0.1:1") // nobody
}

// touched returns how often the world was asked for anything.
func (w *world) touched() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.asked) + len(w.dials)
}

// host says that name has the address, and serves it with a function for each
// connection.
func (w *world) host(t *testing.T, name, addr string, port string, serve func(net.Conn)) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	w.mu.Lock()
	a := netip.MustParseAddr(addr)
	if !slices.Contains(w.names[name], a) {
		w.names[name] = append(w.names[name], a)
	}
	w.at[net.JoinHostPort(addr, port)] = l.Addr()
	w.mu.Unlock()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
}

// recorder keeps what an upstream received.
type recorder struct {
	mu    sync.Mutex
	conns int
	data  []byte
}

func (r *recorder) serve(c net.Conn) {
	r.mu.Lock()
	r.conns++
	r.mu.Unlock()
	buf := make([]byte, 4096)
	for {
		n, err := c.Read(buf)
		r.mu.Lock()
		r.data = append(r.data, buf[:n]...)
		r.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(r.data)
}

func policy(t *testing.T, hosts ...string) *rules.Policy {
	t.Helper()
	p, err := rules.FromAllowlist(hosts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// seqpacket returns the two ends of a wire: the gateway's, the box's.
func seqpacket(t testing.TB) [2]int {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func newFarm(t testing.TB, w *world, p *rules.Policy, change ...func(*Config)) *farm {
	t.Helper()
	pair := seqpacket(t)
	f := &farm{t: t, world: w}
	cfg := Config{
		ID: "b1", Policy: p, Generation: 1,
		Wire:   link.Config{FD: pair[0], Kind: link.Seqpacket, Offload: true, Addresses: link.Plan()},
		Dialer: &dial.Dialer{Resolver: w, Map: w.place, Timeout: patience},
		Events: func(e event.Event) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.events = append(f.events, e)
		},
	}
	for _, c := range change {
		c(&cfg)
	}
	f.dialer = cfg.Dialer
	var err error
	f.cell, err = New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- f.cell.Run(context.Background()) }()
	f.stack = boxStack(t, pair[1])
	t.Cleanup(func() {
		f.cell.Close()
		if err := <-done; err != nil {
			t.Errorf("the cell ended with %v", err)
		}
	})
	return f
}

// boxStack is a TCP/IP stack as a box's kernel has it.
func boxStack(t testing.TB, fd int) *stack.Stack {
	t.Helper()
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
	})
	ep := channel.New(1024, link.MTU, "")
	ep.LinkEPCapabilities = stack.CapabilityRXChecksumOffload | stack.CapabilityTXChecksumOffload
	if err := s.CreateNIC(1, ep); err != nil {
		t.Fatal(err)
	}
	pump(t, fd, ep)
	plan := link.Plan()
	for _, a := range []struct {
		p tcpip.NetworkProtocolNumber
		a netip.Addr
	}{{ipv4.ProtocolNumber, plan.Box4}, {ipv6.ProtocolNumber, plan.Box6}} {
		pa := tcpip.ProtocolAddress{Protocol: a.p, AddressWithPrefix: tcpip.AddrFromSlice(a.a.AsSlice()).WithPrefix()}
		if err := s.AddProtocolAddress(1, pa, stack.AddressProperties{}); err != nil {
			t.Fatal(err)
		}
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: 1}, {Destination: header.IPv6EmptySubnet, NIC: 1}})
	t.Cleanup(s.Close)
	return s
}

// pump moves packets between a stack and its end of a wire, until the test ends.
func pump(t testing.TB, fd int, ep *channel.Endpoint) {
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "box")
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(func() { stop(); file.Close() })
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, err := file.Read(buf)
			if err != nil {
				return
			}
			pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(buf[:n])})
			protocol := ipv4.ProtocolNumber
			if buf[0]>>4 == 6 {
				protocol = ipv6.ProtocolNumber
			}
			ep.InjectInbound(protocol, pkt)
			pkt.DecRef()
		}
	}()
	go func() {
		for {
			pkt := ep.ReadContext(ctx)
			if pkt == nil {
				return
			}
			_, err := file.Write(bytes.Join(pkt.AsSlices(), nil))
			pkt.DecRef()
			if err != nil {
				return
			}
		}
	}()
}

func full(a netip.AddrPort) (tcpip.FullAddress, tcpip.NetworkProtocolNumber) {
	n := ipv4.ProtocolNumber
	if a.Addr().Is6() {
		n = ipv6.ProtocolNumber
	}
	return tcpip.FullAddress{NIC: 1, Addr: tcpip.AddrFromSlice(a.Addr().AsSlice()), Port: a.Port()}, n
}

// patience is for what comes at last, however busy the host is.
const patience = time.Minute

// dial connects from the box.
func (f *farm) dial(to string) (*gonet.TCPConn, error) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	a, n := full(netip.MustParseAddrPort(to))
	c, err := gonet.DialContextTCP(ctx, f.stack, a, n)
	if err == nil {
		_ = c.SetDeadline(time.Now().Add(patience))
		f.t.Cleanup(func() { c.Close() })
	}
	return c, err
}

// knock begins a connection to an address that leads nowhere, and does not wait
// for long.
func (f *farm) knock(i int) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	a, n := full(netip.AddrPortFrom(netip.MustParseAddr("203.0.113.9"), uint16(1000+i)))
	if c, err := gonet.DialContextTCP(ctx, f.stack, a, n); err == nil {
		c.Close()
	}
}

// dialName asks for the name and connects to what was told.
func (f *farm) dialName(name, port string) *gonet.TCPConn {
	f.t.Helper()
	c, err := f.dial(net.JoinHostPort(f.lookup(name).String(), port))
	if err != nil {
		f.t.Fatalf("cannot connect to %s: %v", name, err)
	}
	return c
}

// ask sends a DNS message to a resolver somewhere and returns the answer.
func (f *farm) ask(to string, msg []byte) ([]byte, error) {
	f.t.Helper()
	return f.askFor(patience, to, msg)
}

// askFor waits for an answer only so long.
func (f *farm) askFor(wait time.Duration, to string, msg []byte) ([]byte, error) {
	f.t.Helper()
	a, n := full(netip.MustParseAddrPort(to))
	c, err := gonet.DialUDP(f.stack, nil, &a, n)
	if err != nil {
		f.t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(wait))
	if _, err := c.Write(msg); err != nil {
		f.t.Fatal(err)
	}
	buf := make([]byte, 2048)
	k, err := c.Read(buf)
	return buf[:k], err
}

func query(t testing.TB, name string, kind dnsmessage.Type) []byte {
	t.Helper()
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 77, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}}}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (f *farm) resolve(name string, kind dnsmessage.Type) (dnsmessage.RCode, []netip.Addr) {
	f.t.Helper()
	b, err := f.ask("8.8.8.8:53", query(f.t, name, kind))
	if err != nil {
		f.t.Fatalf("no answer for %s: %v", name, err)
	}
	return unpack(f.t, b)
}

func unpack(t testing.TB, b []byte) (dnsmessage.RCode, []netip.Addr) {
	t.Helper()
	var m dnsmessage.Message
	if err := m.Unpack(b); err != nil {
		t.Fatalf("malformed answer %x: %v", b, err)
	}
	var out []netip.Addr
	for _, r := range m.Answers {
		switch body := r.Body.(type) {
		case *dnsmessage.AResource:
			out = append(out, netip.AddrFrom4(body.A))
		case *dnsmessage.AAAAResource:
			out = append(out, netip.AddrFrom16(body.AAAA))
		}
	}
	return m.RCode, out
}

func (f *farm) lookup(name string) netip.Addr {
	f.t.Helper()
	code, addrs := f.resolve(name+".", dnsmessage.TypeA)
	if code != dnsmessage.RCodeSuccess || len(addrs) != 1 {
		f.t.Fatalf("%s: %v %v, want one address", name, code, addrs)
	}
	return addrs[0]
}

// denied waits for a denial with the code.
func (f *farm) denied(code string) event.Event {
	f.t.Helper()
	return f.event(func(e event.Event) bool { return e.Decision == event.Deny && e.Code == code }, "a denial with the code "+code)
}

func (f *farm) event(is func(event.Event) bool, what string) event.Event {
	f.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		f.mu.Lock()
		for _, e := range f.events {
			if is(e) {
				f.mu.Unlock()
				return e
			}
		}
		f.mu.Unlock()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	text, _ := json.MarshalIndent(f.events, "", " ")
	f.t.Fatalf("no event: want %s, have %s", what, text)
	return event.Event{}
}

// ended reports whether reading fails or ends, and not for want of time.
func ended(c net.Conn) bool {
	_, err := io.Copy(io.Discard, c)
	var ne net.Error
	return !errors.As(err, &ne) || !ne.Timeout()
}

// certificate is a self-signed one for a test's upstream.
func certificate(t *testing.T, name string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

type (
	hostName = hostname.Name
	addr     = netip.Addr
)
