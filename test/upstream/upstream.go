package upstream

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	argvWorld = "egress-world"

	// Here4 is this host's, in the namespace of the tests.
	Here4, there4 = "10.9.0.1", "10.9.0.2"
	here6, there6 = "fd00:9::1", "fd00:9::2"

	// Resolver answers for all names that there are.
	Resolver = "9.9.9.10"
	// GoodAddr and GoodAddr6 have what most names lead to, EvilAddr the others.
	GoodAddr  = "93.184.215.14"
	GoodAddr6 = "2606:2800:21f::14"
	EvilAddr  = "93.184.215.66"
	// PrivateAddr, another one, and that of clouds' metadata service are where nobody
	// from outside should get.
	PrivateAddr  = "10.20.30.40"
	PrivateAddr2 = "10.20.31.40"
	MetadataAddr = "169.254.169.254"
	// GrownAddr and RangeAddr have grown.example.com and range.example.com, for tests
	// in which this host takes them.
	GrownAddr = "93.184.215.77"
	RangeAddr = "93.184.216.77"
	// In this network 2606:64:64::/96 stands for IPv4 (NAT64): so these are GoodAddr,
	// MetadataAddr and PrivateAddr. Who knows nothing of it takes them for public ones.
	NATGood     = "2606:64:64::5db8:d70e"
	NATMetadata = "2606:64:64::a9fe:a9fe"
	NATPrivate  = "2606:64:64::a14:1e28"
)

// Seen is one thing that came to the world.
type Seen struct {
	Kind string // packet, dns, conn, data
	At   string // address and port
	What string
	When time.Time
}

func (s Seen) String() string { return fmt.Sprintf("%s %s %.300q", s.Kind, s.At, s.What) }

// Farm is the tests' end of the world. It is safe for concurrent use.
type Farm struct {
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Scanner
	mu  sync.Mutex
}

// setUp makes the namespaces and the world in them. It is for a process in a fresh
// network namespace.
func setUp() (*Farm, error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{argvWorld}
	cmd.Env = []string{}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	f := &Farm{cmd: cmd}
	in, err := f.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := f.cmd.Start(); err != nil {
		return nil, err
	}
	f.in, f.out = in, bufio.NewScanner(out)
	f.out.Buffer(nil, 64<<20)
	for _, c := range []string{
		"link set lo up", "link add up0 type veth peer name down0", fmt.Sprintf("link set down0 netns %d", f.cmd.Process.Pid),
		"addr add " + Here4 + "/30 dev up0", "-6 addr add " + here6 + "/64 dev up0 nodad", "link set up0 up",
		"route add default via " + there4,
	} {
		if err := ip(c); err != nil {
			return nil, err
		}
	}
	var ready string
	if err := f.ask("up", &ready); err != nil {
		return nil, err
	}
	return f, ip("-6 route add default via " + there6)
}

func ip(args string) error {
	cmd := exec.Command("/usr/bin/ip", strings.Fields(args)...)
	cmd.Env = []string{}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", args, err, out)
	}
	return nil
}

func (f *Farm) ask(what string, answer any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := fmt.Fprintln(f.in, what); err != nil {
		return err
	}
	if !f.out.Scan() {
		return fmt.Errorf("the world has ended: %w", f.out.Err())
	}
	return json.Unmarshal(f.out.Bytes(), answer)
}

// Take returns what has come since the last time.
func (f *Farm) Take(t testing.TB) []Seen {
	t.Helper()
	var all []Seen
	if err := f.ask("take", &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// world is the process itself.
type world struct {
	mu    sync.Mutex
	all   []Seen
	flips map[string]int
}

func (w *world) note(kind, at, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, Seen{kind, at, what, time.Now()})
}

func worldMain() error {
	w := &world{flips: map[string]int{}}
	out := json.NewEncoder(os.Stdout)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch in.Text() {
		case "up":
			if err := w.up(); err != nil {
				return err
			}
			if err := out.Encode("up"); err != nil {
				return err
			}
		case "take":
			w.mu.Lock()
			all := w.all
			w.all = nil
			w.mu.Unlock()
			if all == nil {
				all = []Seen{}
			}
			if err := out.Encode(all); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *world) up() error {
	cmds := []string{"link set lo up", "addr add " + there4 + "/30 dev down0", "-6 addr add " + there6 + "/64 dev down0 nodad", "link set down0 up", "-6 addr add " + GoodAddr6 + "/128 dev lo nodad"}
	for _, a := range []string{Resolver, GoodAddr, EvilAddr, PrivateAddr, PrivateAddr2, MetadataAddr, GrownAddr, RangeAddr} {
		cmds = append(cmds, "addr add "+a+"/32 dev lo")
	}
	for _, a := range []string{NATGood, NATMetadata, NATPrivate} {
		cmds = append(cmds, "-6 addr add "+a+"/128 dev lo nodad")
	}
	for _, c := range cmds {
		if err := ip(c); err != nil {
			return err
		}
	}
	if err := w.watch(); err != nil {
		return err
	}
	pc, err := net.ListenPacket("udp", Resolver+":53")
	if err != nil {
		return err
	}
	go w.dns(pc)
	cert, err := certificate()
	if err != nil {
		return err
	}
	conf := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS10}
	for _, a := range []string{GoodAddr, GoodAddr6, EvilAddr, PrivateAddr, PrivateAddr2, MetadataAddr, GrownAddr, RangeAddr, NATGood, NATMetadata, NATPrivate} {
		for port, serve := range map[string]func(net.Conn, string){
			"80": w.http, "8080": w.http, "443": func(c net.Conn, at string) { w.http(tls.Server(c, conf), at) },
			"5432": w.echo, "6379": w.echo, "853": w.echo, "22": func(c net.Conn, at string) { fmt.Fprint(c, "SSH-2.0-world\r\n"); w.echo(c, at) },
		} {
			l, err := net.Listen("tcp", net.JoinHostPort(a, port))
			if err != nil {
				return err
			}
			go w.accept(l, serve)
		}
	}
	return nil
}

// watch writes down every IP packet that comes in, but for neighbours' talk.
func (w *world) watch() error {
	fd, err := syscall.Socket(syscall.AF_PACKET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0x0300) // ETH_P_ALL, in the order of the network
	if err != nil {
		return err
	}
	// Packets that nobody reads in time are lost, and a busy host is late: among them
	// may be the one that is looked for.
	const room = 64 << 20
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_RCVBUFFORCE, room); err != nil {
		return fmt.Errorf("cannot have room for packets: %w", err)
	}
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, from, err := syscall.Recvfrom(fd, buf, 0)
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, "world: cannot read packets:", err)
				return
			}
			ll, ok := from.(*syscall.SockaddrLinklayer)
			if !ok || ll.Pkttype == syscall.PACKET_OUTGOING || ll.Hatype == syscall.ARPHRD_LOOPBACK || n < 20 {
				continue
			}
			switch b := buf[:n]; {
			case b[0]>>4 == 4:
				w.packet(netip.AddrFrom4([4]byte(b[16:20])), b[9], b[min(4*int(b[0]&15), n):])
			case b[0]>>4 == 6 && n >= 40 && b[6] != syscall.IPPROTO_ICMPV6 && b[24] != 0xff:
				w.packet(netip.AddrFrom16([16]byte(b[24:40])), b[6], b[40:])
			}
		}
	}()
	return nil
}

// packet writes down one, unless it belongs to a connection whose begin was written
// down: its end may come late.
func (w *world) packet(to netip.Addr, protocol byte, rest []byte) {
	if protocol == syscall.IPPROTO_TCP && len(rest) > 13 && rest[13]&0x12 != 0x02 { // a SYN alone begins
		return
	}
	w.note("packet", to.String(), fmt.Sprint("protocol ", protocol))
}

func (w *world) accept(l net.Listener, serve func(net.Conn, string)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		w.note("conn", l.Addr().String(), "")
		go func() {
			defer c.Close()
			serve(c, l.Addr().String())
		}()
	}
}

// echo answers with what it hears.
func (w *world) echo(c net.Conn, at string) {
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		if n > 0 {
			w.note("data", at, string(buf[:n]))
			if _, werr := c.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// http answers every head that ends, whatever is in it, and writes down its bytes.
func (w *world) http(c net.Conn, at string) {
	var all []byte
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		if n > 0 {
			w.note("data", at, string(buf[:n]))
			all = append(all, buf[:n]...)
		}
		for {
			i := bytes.Index(all, []byte("\r\n\r\n"))
			if i < 0 {
				break
			}
			head := string(all[:i])
			all = all[i+4:]
			answer := "HTTP/1.1 200 OK\r\nAlt-Svc: h3=\":443\"\r\nContent-Length: 5\r\n\r\nhello"
			if strings.Contains(head, "/public/switch") {
				answer = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"
			}
			if _, rest, said := strings.Cut(head, " /say/"); said { // what it says is what was asked for
				word, _, _ := strings.Cut(rest, " ")
				answer = fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(word), word)
			}
			if strings.Contains(head, "/slow") {
				answer = "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nbegin"
			}
			if _, err := io.WriteString(c, answer); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// dns answers from a table; what is not in it does not exist.
func (w *world) dns(pc net.PacketConn) {
	buf := make([]byte, 4096)
	for {
		n, from, err := pc.ReadFrom(buf)
		if err != nil {
			return
		}
		var q dnsmessage.Message
		if q.Unpack(buf[:n]) != nil || len(q.Questions) != 1 {
			continue
		}
		name := strings.TrimSuffix(q.Questions[0].Name.String(), ".")
		w.note("dns", Resolver, name+" "+strings.TrimPrefix(q.Questions[0].Type.String(), "Type"))
		a := dnsmessage.Message{Header: dnsmessage.Header{ID: q.ID, Response: true, RecursionAvailable: true}, Questions: q.Questions}
		switch name {
		case "hang.example.com":
			continue
		case "fail.example.com":
			a.RCode = dnsmessage.RCodeServerFailure
		default:
			a.RCode = w.answer(&a, name)
		}
		if script, ok := strings.CutSuffix(name, Scripted); ok {
			play(&a, script)
		}
		if b, err := a.Pack(); err == nil {
			_, _ = pc.WriteTo(b, from)
		}
	}
}

func (w *world) answer(a *dnsmessage.Message, name string) dnsmessage.RCode {
	owner := a.Questions[0].Name
	var addrs []string
	switch {
	case name == "cname.example.com":
		a.Answers = append(a.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: owner, Class: dnsmessage.ClassINET}, Body: &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName("priv.example.com.")}})
		owner = dnsmessage.MustNewName("priv.example.com.")
		addrs = []string{PrivateAddr}
	case name == "flip.example.com":
		w.mu.Lock()
		w.flips[a.Questions[0].Type.String()]++
		odd := w.flips[a.Questions[0].Type.String()]%2 == 1
		w.mu.Unlock()
		addrs = []string{MetadataAddr}
		if odd {
			addrs = []string{GoodAddr}
		}
	default:
		addrs = names()[name]
		if addrs == nil && strings.HasSuffix(name, ".wild.example.com") {
			addrs = []string{GoodAddr}
		}
	}
	if addrs == nil {
		return dnsmessage.RCodeNameError
	}
	for _, s := range addrs {
		ip := netip.MustParseAddr(s)
		head := dnsmessage.ResourceHeader{Name: owner, Class: dnsmessage.ClassINET}
		switch {
		case ip.Is4() && a.Questions[0].Type == dnsmessage.TypeA:
			a.Answers = append(a.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AResource{A: ip.As4()}})
		case ip.Is6() && a.Questions[0].Type == dnsmessage.TypeAAAA:
			a.Answers = append(a.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AAAAResource{AAAA: ip.As16()}})
		}
	}
	return dnsmessage.RCodeSuccess
}

// Scripted is the end of names that say what they are answered with: words with hyphens
// between them. a and eight hexadecimal digits are an address of version 4, s and 32 one
// of version 6; refused, notimp, cut (truncated, with the addresses), id (of another
// question), other (another question), question (no answer), alias (to a name in the
// same answer), loop, stranger (an address of another name beside) do what they say.
const Scripted = ".to.example.com"

func play(a *dnsmessage.Message, script string) {
	a.RCode = dnsmessage.RCodeSuccess
	q := a.Questions[0]
	owner := q.Name
	add := func(owner dnsmessage.Name, body dnsmessage.ResourceBody) {
		a.Answers = append(a.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: owner, Class: dnsmessage.ClassINET}, Body: body})
	}
	for word := range strings.SplitSeq(strings.ToLower(script), "-") {
		switch word {
		case "refused":
			a.RCode = dnsmessage.RCodeRefused
		case "notimp":
			a.RCode = dnsmessage.RCodeNotImplemented
		case "nx":
			a.RCode = dnsmessage.RCodeNameError
		case "cut":
			a.Truncated = true
		case "id":
			a.ID ^= 0x5555
		case "other":
			a.Questions[0].Name = dnsmessage.MustNewName("other.example.com.")
		case "question":
			a.Response = false
		case "alias":
			next := dnsmessage.MustNewName("inner.example.com.")
			add(owner, &dnsmessage.CNAMEResource{CNAME: next})
			owner = next
		case "loop":
			add(owner, &dnsmessage.CNAMEResource{CNAME: owner})
		case "stranger":
			if q.Type == dnsmessage.TypeA {
				add(dnsmessage.MustNewName("stranger.example.com."), &dnsmessage.AResource{A: netip.MustParseAddr(EvilAddr).As4()})
			}
		default:
			b, err := hex.DecodeString(word[min(1, len(word)):])
			switch {
			case err != nil:
			case q.Type == dnsmessage.TypeA && len(b) == 4 && word[0] == 'a':
				add(owner, &dnsmessage.AResource{A: [4]byte(b)})
			case q.Type == dnsmessage.TypeAAAA && len(b) == 16 && word[0] == 's':
				add(owner, &dnsmessage.AAAAResource{AAAA: [16]byte(b)})
			}
		}
	}
}

// names are those of the world.
func names() map[string][]string {
	return map[string][]string{
		"api.example.com": {GoodAddr}, "open.example.com": {GoodAddr}, "ssh.example.com": {GoodAddr}, "raw.example.com": {GoodAddr}, "other.example.com": {GoodAddr},
		"grown.example.com": {GrownAddr}, "range.example.com": {RangeAddr},
		"ipv4only.arpa":        {"192.0.0.170", "192.0.0.171", "2606:64:64::c000:aa", "2606:64:64::c000:ab"},
		"nat-good.example.com": {NATGood}, "nat-meta.example.com": {NATMetadata}, "nat-priv.example.com": {NATPrivate},
		"six.example.com": {GoodAddr6}, "evil.example.net": {EvilAddr}, "evil-wild.example.com": {EvilAddr}, "wild.example.com": {GoodAddr},
		"meta.example.com": {MetadataAddr}, "loop.example.com": {"127.0.0.1"}, "priv.example.com": {PrivateAddr}, "mixed.example.com": {GoodAddr, MetadataAddr},
		"mapped.example.com": {"::ffff:127.0.0.1"}, "nat64.example.com": {"64:ff9b::a9fe:a9fe"}, "self.example.com": {Here4}, "zero.example.com": {"0.0.0.0"}, "doc.example.com": {"192.0.2.1"},
		"cgnat.example.com": {"100.64.0.1"}, "bench.example.com": {"198.18.0.1"}, "sixtofour.example.com": {"2002:a9fe:a9fe::1"}, "db.example.com": {PrivateAddr}, "dbout.example.com": {GoodAddr},
	}
}

func certificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "world"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"api.example.com", "*.wild.example.com", "six.example.com", "evil.example.net"}, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
