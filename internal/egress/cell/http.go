package cell

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/internal/egress/dial"
	"github.com/sunaba-dev/sunaba/internal/egress/event"
	"github.com/sunaba-dev/sunaba/internal/egress/http1"
	"github.com/sunaba-dev/sunaba/internal/egress/httppath"
	"github.com/sunaba-dev/sunaba/internal/egress/link"
	"github.com/sunaba-dev/sunaba/internal/egress/rules"
	"github.com/sunaba-dev/sunaba/internal/hostname"
)

// exchange is one request on a connection in mode HTTP, from its head to its
// answer.
type exchange struct {
	o      *conn
	client *client
	q      *http1.Request
	path   string // canonical
	begin  time.Time

	verdict rules.Verdict
	status  int
	tx, rx  int64 // when it began, those of the connection
}

// client is the box's side of a connection in mode HTTP, server the upstream's.
type client struct {
	box *link.Conn
	in  *bufio.Reader
}

type server struct {
	up   *net.TCPConn
	in   *bufio.Reader
	used bool
}

// http carries a connection request by request. Nothing is resolved or dialled
// before a request is allowed.
func (o *conn) http(f *link.Flow) {
	box := o.accept(f)
	if box == nil {
		return
	}
	defer box.Finish()
	c := &client{box, bufio.NewReader(box)}
	s := &server{}
	defer s.close()
	for n := 0; ; n++ {
		x, err := o.next(c, n == 0)
		if err != nil {
			return
		}
		if !x.serve(s) {
			return
		}
	}
}

// next reads a request's head. Its error has been answered and told.
func (o *conn) next(c *client, first bool) (*exchange, error) {
	wait := o.cell.cfg.Timeouts.Head
	if !first { // between requests the connection's own patience holds
		if _, err := c.in.Peek(1); err != nil {
			return nil, err
		}
	}
	_ = c.box.SetReadDeadline(time.Now().Add(wait))
	if b, err := c.in.Peek(1); err == nil && b[0] == 0x16 {
		_, v := o.current()
		o.denied(rules.Verdict{Code: "not_http", Rule: v.Rule, Reason: "it is TLS, where the policy says plain HTTP", Fix: "tls: splice in the entry " + v.Rule})
		o.abort("not_http")
		return nil, errors.New("read TLS")
	}
	limits := o.cell.rule.Load().policy.Limits
	q, err := http1.ReadRequest(c.in, http1.Limits{URL: limits.URLBytes, Header: limits.HeaderBytes})
	_ = c.box.SetReadDeadline(time.Time{})
	o.moved.Store(int64(time.Since(o.begin)))
	x := &exchange{o: o, client: c, q: q, begin: time.Now(), tx: o.tx.Load(), rx: o.rx.Load()}
	if err == nil {
		return x, nil
	}
	var bad *http1.Error
	var ne net.Error
	switch {
	case errors.As(err, &bad):
		x.refuse(bad.Status, rules.Verdict{Code: rules.Code(bad.Code), Reason: bad.Why})
	case errors.As(err, &ne) && ne.Timeout():
		x.refuse(http.StatusRequestTimeout, rules.Verdict{Code: "head_timeout", Reason: "the head of the request did not come in time"})
	}
	return nil, err
}

// judge asks for whom the request is and whether it is allowed. status is what
// to answer if it is not.
func (x *exchange) judge() (status int, v rules.Verdict) {
	no := func(status int, code, reason string) (int, rules.Verdict) {
		_, v := x.o.current()
		return status, rules.Verdict{Code: rules.Code(code), Rule: v.Rule, Reason: reason}
	}
	if x.q.Method != http.MethodConnect && !x.o.named(x.q.Host) {
		return no(http.StatusMisdirectedRequest, "host_mismatch", "it is for another host than the one whose address was asked for")
	}
	if x.q.Upgrade != "" {
		return no(http.StatusForbidden, "upgrade", "it asks for another protocol, which is not passed on")
	}
	if x.q.Method != http.MethodConnect {
		path, err := httppath.Canonical(x.q.Path)
		var bad *httppath.Error
		if errors.As(err, &bad) {
			return no(http.StatusBadRequest, "path_malformed", bad.Why)
		}
		x.path = path
	}
	r := rules.Request{Method: x.q.Method, Path: x.path, Query: x.q.Query, Body: x.q.Body.Some()}
	x.o.mu.Lock()
	x.o.request = &r // before it is judged: a change of the policy finds it
	v = x.o.entry.Request(r)
	x.o.ruled = rules.Verdict{}
	below := v.Rule != x.o.verdict.Rule // a rule of the entry, with a budget of its own
	if below {
		x.o.ruled = v
	}
	x.o.mu.Unlock()
	if v.Allow && below && !x.o.cell.budgets.rate(v.Rule, v.Budget.Rate) {
		return no(http.StatusTooManyRequests, "rate_exhausted", "requests come faster than the rule's rate")
	}
	return http.StatusForbidden, v
}

// named reports whether an authority is the host of the connection.
func (o *conn) named(authority string) bool {
	host, port := authority, "80"
	if o.name == "" {
		a, err := netip.ParseAddrPort(authority)
		if err != nil {
			b, err := netip.ParseAddr(strings.Trim(authority, "[]"))
			a = netip.AddrPortFrom(b, 80)
			if err != nil {
				return false
			}
		}
		return a == o.dst
	}
	if h, p, ok := strings.Cut(authority, ":"); ok {
		host, port = h, p
	}
	if port != strconv.Itoa(int(o.dst.Port())) {
		return false
	}
	name, err := hostname.Parse(host)
	return err == nil && name == o.name
}

// authority is the Host that the upstream is told.
func (o *conn) authority() string {
	host := string(o.name)
	if host == "" {
		if host = o.dst.Addr().String(); o.dst.Addr().Is6() {
			host = "[" + host + "]"
		}
	}
	if o.dst.Port() != 80 {
		host += ":" + strconv.Itoa(int(o.dst.Port()))
	}
	return host
}

// serve judges the request and carries it. It reports whether another may
// follow on the connection.
func (x *exchange) serve(s *server) bool {
	status, v := x.judge()
	x.verdict = v
	if !v.Allow {
		x.refuse(status, v)
		return false
	}
	defer x.done()
	if x.q.Expect && !x.write([]byte("HTTP/1.1 100 Continue\r\n\r\n")) {
		return false
	}
	p, sent, err := x.ask(s)
	if err != nil {
		x.failed(err)
		return false
	}
	keep := x.answer(s, p)
	late := time.NewTimer(lingering)
	defer late.Stop()
	select {
	case err := <-sent:
		keep = keep && err == nil
		if bad := (*http1.Error)(nil); errors.As(err, &bad) { // the upstream has not waited for the body
			x.verdict = rules.Verdict{Rule: x.verdict.Rule, Code: rules.Code(bad.Code), Reason: bad.Why}
			e := x.event()
			e.Decision, e.Code, e.Status, e.Reason = event.Deny, bad.Code, x.status, bad.Why
			x.o.cell.emit(e)
		}
	case <-late.C: // the upstream has answered before it had the whole request
		x.o.abort("upstream_early")
		<-sent
		return false
	}
	if p.Close || !keep || x.q.Body.Some() || s.in.Buffered() > 0 { // what came unasked must not answer the next request
		s.close()
	}
	return keep && !x.q.Close
}

// errUpstream is what is told of an upstream whose answer cannot be passed on.
var errUpstream = errors.New("read an answer that is not passed on")

// ask sends the request and reads the head of its answer. sent tells when the
// body has gone.
func (x *exchange) ask(s *server) (*http1.Response, chan error, error) {
	o := x.o
	entry, _ := o.current()
	head := x.q.Forward(o.authority(), x.path, len(entry.Rules) > 0)
	for {
		again := s.used // an upstream may have closed a connection that waited
		if s.up == nil {
			up, err := o.connect()
			if err != nil {
				return nil, nil, err
			}
			s.up, s.in, again = up, bufio.NewReader(up), false
		}
		s.used = true
		sent := make(chan error, 1)
		if !o.pass(int64(len(head)), 0) {
			return nil, nil, net.ErrClosed
		}
		if _, err := s.up.Write(head); err != nil {
			if again && x.repeatable() {
				s.close()
				continue
			}
			return nil, nil, err
		}
		go x.post(s.up, sent)
		p, err := x.response(s)
		if err != nil && again && x.repeatable() && (errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || isReset(err)) {
			<-sent
			s.close()
			continue
		}
		if err != nil {
			select {
			case e := <-sent: // why there is no answer, if the body was the box's fault
				if bad := (*http1.Error)(nil); errors.As(e, &bad) {
					err = e
				}
			default:
			}
			return nil, nil, err
		}
		return p, sent, nil
	}
}

func isReset(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && !op.Timeout()
}

// repeatable reports whether the request may be sent once more, if an upstream
// has not begun to answer it.
func (x *exchange) repeatable() bool {
	switch x.q.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return x.q.Body.Kind == http1.None
	}
	return false
}

// maxInterim is how many interim answers (1xx) are passed over.
const maxInterim = 8

// response reads the head of the final answer.
func (x *exchange) response(s *server) (*http1.Response, error) {
	limits := x.o.cell.rule.Load().policy.Limits
	if x.q.Body.Kind == http1.None { // just before nothing moved for too long, so that the box can be told
		_ = s.up.SetReadDeadline(time.Now().Add(x.o.cell.idleFor() * 9 / 10))
		defer func() { _ = s.up.SetReadDeadline(time.Time{}) }()
	}
	for range maxInterim {
		p, err := http1.ReadResponse(s.in, x.q.Method, max(limits.HeaderBytes, 64<<10))
		var bad *http1.Error
		if errors.As(err, &bad) {
			return nil, errors.Join(errUpstream, err)
		}
		if err != nil {
			return nil, err
		}
		if p.Status == http.StatusSwitchingProtocols {
			return nil, errUpstream // nobody asked for it
		}
		if p.Status >= 200 {
			return p, nil
		}
	}
	return nil, errUpstream
}

// post sends the body, and tells sent that it has ended, however it did. If the
// box breaks it off, the upstream must not wait for the rest; if the upstream
// does, it may have answered all the same.
func (x *exchange) post(up net.Conn, sent chan<- error) {
	err, broken := error(net.ErrClosed), true
	defer func() {
		sent <- err
		if broken {
			_ = up.Close()
		}
	}()
	defer x.o.guard()
	if x.q.Body.Kind == http1.None {
		err, broken = nil, false
		return
	}
	to := &sink{w: up}
	err = relay(x.o.cell.pieces(), to, x.q.Body.Reader(x.client.in), x.q.Body.Kind == http1.Chunked, func(n int) bool { return x.o.pass(int64(n), 0) })
	broken = err != nil && !to.failed
}

// sink remembers that it was the one that failed.
type sink struct {
	w      io.Writer
	failed bool
}

// Write passes on.
func (s *sink) Write(b []byte) (int, error) {
	n, err := s.w.Write(b)
	s.failed = s.failed || err != nil
	return n, err
}

// answer passes the answer on, and reports whether the connection can go on.
func (x *exchange) answer(s *server, p *http1.Response) bool {
	x.status = p.Status
	body, closes := p.Body, p.Body.Kind == http1.UntilClose || x.q.Close
	if body.Kind == http1.UntilClose || body.Kind == http1.Chunked {
		body = http1.Body{Kind: http1.Chunked}
		if x.q.Old { // which knows no chunks
			body, closes = http1.Body{}, true
		}
	}
	head := p.Forward(body, closes)
	if !x.o.pass(0, int64(len(head))) || !x.write(head) {
		return false
	}
	if p.Bodiless(x.q.Method) {
		return !closes
	}
	err := relay(x.o.cell.pieces(), x.client.box, p.Body.Reader(s.in), body.Kind == http1.Chunked, func(n int) bool { return x.o.pass(0, int64(n)) })
	if err != nil {
		x.o.abort("answer_broken") // a reset: what came must not look whole
		return false
	}
	return !closes
}

// relay copies a body, in chunks if chunked. pass is asked before bytes go on.
func relay(p *pieces, to io.Writer, from io.Reader, chunked bool, pass func(int) bool) error {
	defer p.end()
	var out []byte
	for {
		data, err := p.read(from)
		if len(data) > 0 {
			if !pass(len(data)) {
				return net.ErrClosed
			}
			if chunked {
				out = http1.AppendChunk(out[:0], data)
				data = out
			}
			if _, err := to.Write(data); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			if chunked {
				_, err = to.Write(http1.AppendChunk(nil, nil))
				return err
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (x *exchange) write(b []byte) bool {
	_, err := x.client.box.Write(b)
	return err == nil
}

// failed tells the box and the operator that an allowed request got no answer.
func (x *exchange) failed(err error) {
	code := dial.CodeOf(err)
	status, v := http.StatusBadGateway, rules.Verdict{Rule: x.verdict.Rule, Code: rules.Code(code), Reason: err.Error(), Fix: dial.FixOf(err)}
	var bad *http1.Error
	var ne net.Error
	switch {
	case errors.As(err, &ne) && ne.Timeout() && code == dial.UpstreamRefused:
		status, v.Code, v.Reason = http.StatusGatewayTimeout, rules.Code(dial.UpstreamTimeout), "the upstream does not answer"
	case errors.As(err, &bad) && !errors.Is(err, errUpstream):
		status, v.Code, v.Reason = bad.Status, rules.Code(bad.Code), bad.Why
	case errors.Is(err, errUpstream):
		v.Code, v.Reason = "upstream_malformed", "the upstream's answer cannot be passed on"
	case code == dial.UpstreamTimeout:
		status = http.StatusGatewayTimeout
	case code == noRoom:
		status = http.StatusServiceUnavailable
	case code == dial.AddressDenied:
		status = http.StatusForbidden
	}
	x.verdict = v
	x.refuse(status, v)
}

// done tells of a request that was allowed.
func (x *exchange) done() {
	if !x.verdict.Allow {
		return // told by failed
	}
	e := x.event()
	e.Decision, e.Code, e.Status = event.Allow, string(x.verdict.Code), x.status
	e.TX, e.RX, e.MS = x.o.tx.Load()-x.tx, x.o.rx.Load()-x.rx, time.Since(x.begin).Milliseconds()
	x.o.cell.emit(e)
}

func (x *exchange) event() event.Event {
	x.o.mu.Lock()
	e := x.o.event(event.HTTP)
	x.o.mu.Unlock()
	if x.verdict.Rule != "" {
		e.Rule = x.verdict.Rule
	}
	if x.q != nil {
		e.Method, e.Path = clip(x.q.Method), clip(x.path)
	}
	return e
}
