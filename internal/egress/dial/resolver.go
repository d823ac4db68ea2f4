package dial

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sunaba-dev/sunaba/internal/egress/special"
	"github.com/sunaba-dev/sunaba/internal/hostname"
)

// Resolver says which addresses a name has now. An error means that nobody
// knows: who asks must not go on. No address and no error is a name that has none.
type Resolver interface {
	Resolve(ctx context.Context, name hostname.Name) ([]netip.Addr, error)
	// NAT64 says in which prefixes the IPv6 addresses that it answers with stand for
	// IPv4 addresses (RFC 7050).
	NAT64(ctx context.Context) ([]netip.Prefix, error)
}

// The patience with one server, and how long an answer is kept at most.
const (
	serverTimeout = 2 * time.Second
	keepAtMost    = time.Minute
	keepNames     = 4096
	keepFailure   = 10 * time.Second // of NAT64
	maxChain      = 16               // aliases in a row
	// An answer may have thousands of addresses, and its owner may be the box's: what
	// is kept of them, for all boxes, has a bound.
	keepAddrs = 32
)

// Servers is a resolver that asks a fixed list of DNS servers, and nothing else
// on this host: no hosts file, no search list, no C library. It remembers
// answers, values only. It is safe for concurrent use; make it with NewServers.
type Servers struct {
	list []netip.AddrPort

	mu    sync.Mutex
	kept  map[hostname.Name]kept
	nat64 struct {
		prefixes []netip.Prefix
		err      error
		until    time.Time
	}
}

type kept struct {
	addrs []netip.Addr
	until time.Time
}

// NewServers returns a resolver that asks list in turn, until one knows.
func NewServers(list []netip.AddrPort) *Servers {
	return &Servers{list: list, kept: map[hostname.Name]kept{}}
}

// Resolve asks for addresses of both versions at once.
func (s *Servers) Resolve(ctx context.Context, name hostname.Name) ([]netip.Addr, error) {
	s.mu.Lock()
	k, ok := s.kept[name]
	s.mu.Unlock()
	if ok && time.Now().Before(k.until) {
		return k.addrs, nil
	}
	type result struct {
		answer
		err error
	}
	six := make(chan result, 1)
	go func() {
		a, err := s.ask(ctx, name, dnsmessage.TypeAAAA)
		six <- result{a, err}
	}()
	a4, err4 := s.ask(ctx, name, dnsmessage.TypeA)
	r6 := <-six
	if err4 != nil && (r6.err != nil || len(r6.addrs) == 0) {
		return nil, err4
	}
	addrs := append(a4.addrs, r6.addrs...)
	s.keep(name, addrs, min(a4.ttlOr(keepAtMost), r6.ttlOr(keepAtMost)))
	return addrs, nil
}

// NAT64 asks for the IPv6 addresses of a name that has none but those which a network
// with DNS64 makes up. The question is the same for everybody, and says nothing of a box.
func (s *Servers) NAT64(ctx context.Context) ([]netip.Prefix, error) {
	s.mu.Lock()
	known := s.nat64
	s.mu.Unlock()
	if time.Now().Before(known.until) {
		return known.prefixes, known.err
	}
	a, err := s.ask(ctx, special.NAT64Name, dnsmessage.TypeAAAA)
	if ctx.Err() != nil {
		return nil, err
	}
	keep := keepAtMost
	if err != nil {
		keep = keepFailure
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nat64.prefixes, s.nat64.err, s.nat64.until = special.NAT64(a.addrs), err, time.Now().Add(keep)
	return s.nat64.prefixes, err
}

func (s *Servers) keep(name hostname.Name, addrs []netip.Addr, ttl time.Duration) {
	if len(addrs) == 0 || ttl <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.kept) >= keepNames {
		clear(s.kept)
	}
	s.kept[name] = kept{addrs, time.Now().Add(ttl)}
}

type answer struct {
	addrs []netip.Addr
	ttl   time.Duration
}

func (a answer) ttlOr(d time.Duration) time.Duration {
	if len(a.addrs) == 0 {
		return d
	}
	return a.ttl
}

// ask asks the servers in turn, twice.
func (s *Servers) ask(ctx context.Context, name hostname.Name, kind dnsmessage.Type) (answer, error) {
	err := errors.New("cannot resolve: there is no server to ask")
	for range 2 {
		for _, server := range s.list {
			var a answer
			if a, err = exchange(ctx, server, name, kind); err == nil {
				return a, nil
			}
			if ctx.Err() != nil {
				return answer{}, fmt.Errorf("cannot resolve %q: %w", string(name), ctx.Err())
			}
		}
	}
	return answer{}, err
}

var errTruncated = errors.New("read a truncated answer")

func exchange(ctx context.Context, server netip.AddrPort, name hostname.Name, kind dnsmessage.Type) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	id, query, err := question(name, kind)
	if err != nil {
		return answer{}, err
	}
	a, err := over(ctx, "udp", server, query, func(msg []byte) (answer, error) { return parse(msg, id, name, kind) })
	if errors.Is(err, errTruncated) {
		a, err = over(ctx, "tcp", server, query, func(msg []byte) (answer, error) { return parse(msg, id, name, kind) })
	}
	if err != nil {
		return answer{}, fmt.Errorf("cannot resolve %q at %v: %w", string(name), server, err)
	}
	return a, nil
}

func question(name hostname.Name, kind dnsmessage.Type) (uint16, []byte, error) {
	var id [2]byte
	if _, err := rand.Read(id[:]); err != nil {
		return 0, nil, fmt.Errorf("cannot make a question: %w", err)
	}
	n, err := dnsmessage.NewName(string(name) + ".")
	if err != nil {
		return 0, nil, fmt.Errorf("cannot ask for %q: %w", string(name), err)
	}
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: binary.BigEndian.Uint16(id[:]), RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: n, Type: kind, Class: dnsmessage.ClassINET}},
	}
	var opt dnsmessage.ResourceHeader
	if err := opt.SetEDNS0(1232, dnsmessage.RCodeSuccess, false); err != nil {
		return 0, nil, fmt.Errorf("cannot make a question: %w", err)
	}
	m.Additionals = []dnsmessage.Resource{{Header: opt, Body: &dnsmessage.OPTResource{}}}
	query, err := m.Pack()
	if err != nil {
		return 0, nil, fmt.Errorf("cannot make a question: %w", err)
	}
	return m.ID, query, nil
}

// over sends query and reads until an answer to it comes. Over UDP what does
// not belong to the question is passed over: anybody can send it.
func over(ctx context.Context, network string, server netip.AddrPort, query []byte, read func([]byte) (answer, error)) (answer, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, server.String())
	if err != nil {
		return answer{}, err
	}
	defer c.Close()
	if t, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(t)
	}
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	if network == "tcp" {
		query = append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)
	}
	if _, err := c.Write(query); err != nil {
		return answer{}, err
	}
	if network == "tcp" {
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return answer{}, err
		}
		msg := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, msg); err != nil {
			return answer{}, err
		}
		return read(msg)
	}
	buf := make([]byte, 4096)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return answer{}, err
		}
		if a, err := read(buf[:n]); !errors.Is(err, errForeign) {
			return a, err
		}
	}
}

var errForeign = errors.New("read an answer to another question")

// parse reads an answer, and follows aliases from the name that was asked for.
func parse(msg []byte, id uint16, name hostname.Name, kind dnsmessage.Type) (answer, error) {
	var p dnsmessage.Parser
	h, err := p.Start(msg)
	if err != nil || !h.Response || h.ID != id {
		return answer{}, errForeign
	}
	qs, err := p.AllQuestions()
	if err != nil || len(qs) != 1 || qs[0].Type != kind || !same(qs[0].Name, string(name)) {
		return answer{}, errForeign
	}
	if h.Truncated {
		return answer{}, errTruncated
	}
	if h.RCode == dnsmessage.RCodeNameError {
		return answer{}, nil
	}
	if h.RCode != dnsmessage.RCodeSuccess {
		return answer{}, fmt.Errorf("read the answer %v", h.RCode)
	}
	records, err := p.AllAnswers()
	if err != nil {
		return answer{}, fmt.Errorf("read a malformed answer: %w", err)
	}
	out := answer{ttl: keepAtMost}
	at := string(name)
	for range maxChain {
		next := ""
		for _, r := range records {
			if !same(r.Header.Name, at) {
				continue
			}
			switch body := r.Body.(type) {
			case *dnsmessage.AResource:
				out.add(netip.AddrFrom4(body.A))
			case *dnsmessage.AAAAResource:
				out.add(netip.AddrFrom16(body.AAAA))
			case *dnsmessage.CNAMEResource:
				next = strings.TrimSuffix(strings.ToLower(body.CNAME.String()), ".")
			}
			out.ttl = min(out.ttl, time.Duration(r.Header.TTL)*time.Second)
		}
		if len(out.addrs) > 0 || next == "" {
			break
		}
		at = next
	}
	return out, nil
}

func (a *answer) add(addr netip.Addr) {
	if len(a.addrs) < keepAddrs {
		a.addrs = append(a.addrs, addr)
	}
}

func same(a dnsmessage.Name, b string) bool {
	return strings.EqualFold(strings.TrimSuffix(a.String(), "."), b)
}
