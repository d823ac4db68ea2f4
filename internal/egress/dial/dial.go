// Package dial is the only door from the gateway to the world.
//
// It asks a pinned resolver which addresses a name has, holds each against the
// table of special addresses (internal/egress/special), and connects to one
// that passed, as a literal: between the check and the connect nothing is
// resolved again. The socket's own hook compares once more, so a mistake here
// is a connection that fails. Nobody who knows is nobody: an error of the
// resolver is a refusal, never "not private".
//
// Which addresses are this host's own changes while boxes run. The kernel is asked
// for each connection where it would go, and who does not get an answer does not
// connect.
package dial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/internal/egress/rules"
	"github.com/sunaba-dev/sunaba/internal/egress/special"
	"github.com/sunaba-dev/sunaba/internal/hostname"
)

// Code is the stable reason of a failure.
type Code string

const (
	NameUnknown     Code = "name_unknown"     // it has no address
	ResolverFailed  Code = "resolver_failed"  // nobody knows its addresses
	AddressDenied   Code = "address_denied"   // it has none that may be reached
	UpstreamRefused Code = "upstream_refused" // nobody listens, or no way leads there
	UpstreamTimeout Code = "upstream_timeout" // no answer
)

// Error is why there is no connection.
type Error struct {
	Code Code
	Err  error
	Fix  string // the line of a policy that would allow it; empty if there is none
}

// Error returns the reason for people.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// CodeOf returns the code of an error of Dial.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return UpstreamRefused
}

// FixOf returns the line of a policy that would allow what an error of Dial is
// about; empty if there is none.
func FixOf(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Fix
	}
	return ""
}

// Target is where to.
type Target struct {
	// Name is resolved. If it is empty, Addr is dialled.
	Name hostname.Name
	Addr netip.Addr
	Port uint16
	// Entry is the entry of the policy that allows it, and judges each address.
	Entry *rules.Host
}

// Dialer is safe for concurrent use.
type Dialer struct {
	Resolver Resolver
	// Timeout bounds resolving and connecting together; 0 means 10 s.
	Timeout time.Duration
	// Map replaces an address after it has passed all checks, and then the kernel
	// is not asked whose it is. It is for tests, which have no Internet; nil changes
	// nothing.
	Map func(netip.AddrPort) netip.AddrPort

	special atomic.Pointer[special.Table] // with what the resolver said last of NAT64
}

// Special is what is known of special addresses now.
func (d *Dialer) Special() special.Table {
	if t := d.special.Load(); t != nil {
		return *t
	}
	return special.Table{}
}

const (
	defaultTimeout = 10 * time.Second
	// addressTimeout bounds one of several addresses.
	addressTimeout = 4 * time.Second
	maxAddresses   = 8
)

// Dial resolves, checks and connects. It returns the connection and the address
// that was checked. Its errors are of type *Error.
func (d *Dialer) Dial(ctx context.Context, t Target) (*net.TCPConn, netip.AddrPort, error) {
	timeout := d.Timeout
	if timeout == 0 {
		timeout = defaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	addrs, err := d.addresses(ctx, t)
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	var last error
	for _, a := range addrs {
		to := netip.AddrPortFrom(a, t.Port)
		c, err := d.connect(ctx, t, to)
		if err == nil {
			return c, to, nil
		}
		last = err
		if ctx.Err() != nil {
			break
		}
	}
	code := UpstreamRefused
	var ne net.Error
	if errors.As(last, &ne) && ne.Timeout() {
		code = UpstreamTimeout
	}
	return nil, netip.AddrPort{}, &Error{Code: code, Err: fmt.Errorf("cannot connect: %w", last)}
}

// addresses returns what may be dialled, version 4 first.
func (d *Dialer) addresses(ctx context.Context, t Target) ([]netip.Addr, error) {
	all := []netip.Addr{t.Addr}
	if t.Name != "" {
		if d.Resolver == nil {
			return nil, &Error{Code: ResolverFailed, Err: errors.New("cannot resolve: there is no resolver")}
		}
		var err error
		if all, err = d.Resolver.Resolve(ctx, t.Name); err != nil {
			return nil, &Error{Code: ResolverFailed, Err: err}
		}
		if len(all) == 0 {
			return nil, &Error{Code: NameUnknown, Err: fmt.Errorf("cannot resolve %q: it has no address", string(t.Name))}
		}
		if all, err = d.translated(ctx, all); err != nil {
			return nil, &Error{Code: ResolverFailed, Err: fmt.Errorf("cannot tell what the IPv6 addresses of %q stand for: %w", string(t.Name), err)}
		}
	}
	var good []netip.Addr
	var refused []string
	fix := ""
	for _, a := range all {
		a = a.Unmap()
		if v := d.check(a, t); !v.Allow {
			refused, fix = append(refused, v.Reason), cmp.Or(fix, v.Fix)
		} else if len(good) < maxAddresses && !slices.Contains(good, a) {
			good = append(good, a)
		}
	}
	if len(good) == 0 {
		return nil, &Error{Code: AddressDenied, Err: fmt.Errorf("cannot connect to an address that may not be reached: %s", strings.Join(refused[:min(len(refused), 3)], "; ")), Fix: fix}
	}
	slices.SortStableFunc(good, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	return good, nil
}

// translated finds out for which IPv4 addresses IPv6 ones stand in this network. While
// nobody knows, they are left out: one could be any address.
func (d *Dialer) translated(ctx context.Context, all []netip.Addr) ([]netip.Addr, error) {
	six := func(a netip.Addr) bool { return a.Unmap().Is6() }
	if !slices.ContainsFunc(all, six) {
		return all, nil
	}
	prefixes, err := d.Resolver.NAT64(ctx)
	if err == nil {
		t := special.New(prefixes)
		d.special.Store(&t)
		return all, nil
	}
	if all = slices.DeleteFunc(slices.Clone(all), six); len(all) > 0 {
		err = nil
	}
	return all, err
}

func (d *Dialer) check(a netip.Addr, t Target) rules.Verdict {
	if t.Entry == nil {
		return rules.Verdict{Reason: "no entry of a policy allows it"}
	}
	to := netip.AddrPortFrom(a, t.Port)
	known := d.Special()
	v := t.Entry.Address(known, to)
	if !v.Allow || d.Map != nil {
		return v
	}
	for _, is := range append(known.Translated(a), a) {
		switch w, err := ask(netip.AddrPortFrom(is, t.Port)); {
		case err != nil:
			return rules.Verdict{Reason: err.Error()}
		case w == wayHere:
			return rules.Verdict{Reason: fmt.Sprintf("the address %s is refused: it is an address of this host", is)}
		}
	}
	return v // where no way leads the connect fails
}

func (d *Dialer) connect(ctx context.Context, t Target, to netip.AddrPort) (*net.TCPConn, error) {
	at := to
	if d.Map != nil {
		at = d.Map(to)
	}
	nd := net.Dialer{
		Timeout:   addressTimeout,
		KeepAlive: 30 * time.Second,
		ControlContext: func(_ context.Context, _, address string, raw syscall.RawConn) error {
			return errors.Join(d.veto(t, to, at, address), patience(raw))
		},
	}
	c, err := nd.DialContext(ctx, "tcp", at.String())
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// unanswered is how long an upstream may leave bytes unanswered, also those that
// are still to be sent when nobody here waits for them any more.
const unanswered = time.Minute

func patience(raw syscall.RawConn) error {
	var err error
	if e := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unanswered.Milliseconds()))
	}); e != nil {
		return e
	}
	return err
}

// veto looks at the address that the socket is about to connect to.
func (d *Dialer) veto(t Target, checked, want netip.AddrPort, address string) error {
	got, err := netip.ParseAddrPort(address)
	if err != nil || got != want {
		return fmt.Errorf("refuse to connect to %q: it is not what was checked", address)
	}
	if v := d.check(checked.Addr(), t); !v.Allow {
		return fmt.Errorf("refuse to connect: %s", v.Reason)
	}
	return nil
}
