package cell

import (
	"errors"
	"io"
	"net"
	"sync/atomic"

	"github.com/sunaba-dev/sunaba/internal/egress/dial"
	"github.com/sunaba-dev/sunaba/internal/egress/event"
	"github.com/sunaba-dev/sunaba/internal/egress/link"
	"github.com/sunaba-dev/sunaba/internal/egress/peek"
	"github.com/sunaba-dev/sunaba/internal/egress/rules"
	"github.com/sunaba-dev/sunaba/internal/hostname"
)

// tunnel carries a connection whose bytes are not read beyond the first. The
// upstream is dialled before the box's handshake ends, so one that refuses is
// seen in the box as what it is.
func (o *conn) tunnel(f *link.Flow) {
	up, err := o.connect()
	if o.ctx.Err() != nil {
		o.deny(o.why(), "the connection ended while its upstream was dialled")
		return
	}
	if err != nil {
		o.denied(rules.Verdict{Code: rules.Code(dial.CodeOf(err)), Reason: err.Error(), Fix: dial.FixOf(err)})
		return
	}
	defer up.Close()
	box := o.accept(f)
	if box == nil {
		return
	}
	defer box.Finish()
	o.mu.Lock()
	e, entry := o.event(event.Connect), o.entry
	o.mu.Unlock()
	e.Decision, e.Code = event.Allow, string(rules.Allowed)
	first := peek.First{}
	if entry.Mode == rules.Splice {
		seen, err := peek.Read(box, o.cell.cfg.Timeouts.Hello)
		if v, ok := o.identify(seen, err); !ok {
			o.denied(v)
			o.abort(string(v.Code))
			return
		}
		first, e.SNI = seen, seen.Hello.SNI
	}
	o.cell.emit(e)
	o.splice(box, up, first)
	_ = up.Close() // while the box takes what it has been sent
}

// identify compares what the first bytes say with the name that the box asked for.
func (o *conn) identify(f peek.First, err error) (rules.Verdict, bool) {
	entry, v := o.current()
	no := func(code, reason, fix string) (rules.Verdict, bool) {
		return rules.Verdict{Rule: v.Rule, Code: rules.Code(code), Reason: reason, Fix: fix}, false
	}
	speaks := func(m rules.Mode) string { return entry.SpeakFix(o.name, o.dst.Port(), m) }
	switch {
	case errors.Is(err, peek.ErrTimeout) && len(f.Bytes) == 0:
		return no("hello_timeout", "the client said nothing, where TLS begins with its hello; perhaps it waits for the server to begin", speaks(rules.TCP))
	case errors.Is(err, peek.ErrTimeout):
		return no("hello_timeout", "the client did not begin TLS in time", "")
	case err != nil && f.Kind == peek.TLS:
		return no("hello_malformed", "the TLS hello cannot be read, or what follows it is no TLS", "")
	case err != nil && len(f.Bytes) == 0:
		return no("hello_missing", "the client said nothing and went away, where TLS begins with its hello; perhaps it waits for the server to begin", speaks(rules.TCP))
	case err != nil:
		return no("hello_missing", "the client sent no whole first message", "")
	case f.Kind == peek.SSH:
		return no("not_tls", "it is SSH, where the policy says TLS", speaks(rules.TCP))
	case f.Kind == peek.HTTP1:
		return no("not_tls", "it is plain HTTP, where the policy says TLS", speaks(rules.HTTP))
	case f.Kind != peek.TLS:
		return no("not_tls", "it is not TLS, as the policy says", speaks(rules.TCP))
	case f.Hello.ECH:
		return no("ech", "an encrypted hello can be for any host, and is not passed on", "")
	case f.Hello.Weak:
		return no("tls_weak", "the client offers nothing newer than TLS 1.1, or no safe cipher suite", "")
	case f.Hello.SNI == "" && entry.SNIOptional:
		return rules.Verdict{}, true
	case f.Hello.SNI == "":
		return no("sni_missing", "the TLS hello names no host", "sni: optional in the entry "+v.Rule)
	}
	name, bad := hostname.ParseWire(f.Hello.SNI) // the upstream gets these very bytes
	if bad != nil || name != o.name || o.name == "" {
		return no("sni_mismatch", "the TLS hello is for another host than the one whose address was asked for", "")
	}
	return rules.Verdict{}, true
}

// splice passes bytes on in both directions until both have ended. An end in
// one direction is passed on as such; an error ends both with a reset. A hello
// goes first, since an upstream waits for it.
func (o *conn) splice(box *link.Conn, up *net.TCPConn, first peek.First) {
	var answered atomic.Bool // so that no second hello follows
	hello := len(first.Bytes) - first.Rest
	out := upward{o: o, up: up, answered: &answered}
	if hello > 0 {
		if !out.write(first.Bytes[:hello]) {
			return
		}
		out.watch = &peek.Watch{}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer o.guard()
		if first.Rest > 0 && !out.pass(first.Bytes[hello:]) {
			return
		}
		o.copy(box, up, "box_reset", "upstream_reset", out.pass)
	}()
	var reply peek.Reply
	o.copy(up, box, "upstream_reset", "box_reset", func(b []byte) bool {
		if reply.Feed(b) {
			answered.Store(true) // before the box sees it
		}
		if !o.pass(0, int64(len(b))) {
			return false
		}
		if _, err := box.Write(b); err != nil {
			o.abort("box_reset")
			return false
		}
		return true
	})
	<-done
}

// upward is the direction to the upstream. Where the box speaks TLS, a second
// hello is judged like the first.
type upward struct {
	o     *conn
	up    *net.TCPConn
	watch *peek.Watch // nil where nothing is watched for
	// answered says that the server has not asked for a second hello.
	answered *atomic.Bool
}

func (u *upward) pass(b []byte) bool {
	if u.watch == nil {
		return u.write(b)
	}
	if u.answered.Load() {
		u.watch.Answered()
	}
	out, hello, err := u.watch.Feed(b)
	if err != nil || hello != nil {
		f := peek.First{Kind: peek.TLS}
		if hello != nil {
			f.Hello = *hello
		}
		if v, ok := u.o.identify(f, err); !ok {
			u.o.denied(v)
			u.o.abort(string(v.Code))
			return false
		}
	}
	return len(out) == 0 || u.write(out)
}

func (u *upward) write(b []byte) bool {
	if !u.o.pass(int64(len(b)), 0) {
		return false
	}
	if _, err := u.up.Write(b); err != nil {
		u.o.abort("upstream_reset")
		return false
	}
	return true
}

// guard turns a panic of a goroutine into the end of its connection.
func (o *conn) guard() {
	if recover() != nil {
		o.cell.record.panicked()
		o.abort("internal")
	}
}

type halfCloser interface {
	io.ReadWriter
	CloseWrite() error
}

// copy reads until the end and gives pass each piece; false ends it.
func (o *conn) copy(from, to halfCloser, readCode, closeCode string, pass func([]byte) bool) {
	p := o.cell.pieces()
	defer p.end()
	for {
		b, err := p.read(from)
		if len(b) > 0 && !pass(b) {
			return
		}
		if errors.Is(err, io.EOF) {
			if to.CloseWrite() != nil {
				o.abort(closeCode)
			}
			return
		}
		if err != nil {
			o.abort(readCode)
			return
		}
	}
}
