package cell

import (
	"encoding/binary"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/sunaba-dev/sunaba/internal/egress/dnswire"
	"github.com/sunaba-dev/sunaba/internal/egress/event"
	"github.com/sunaba-dev/sunaba/internal/egress/link"
	"github.com/sunaba-dev/sunaba/internal/hostname"
)

// ingress is what the wire calls.
type ingress struct{ c *Cell }

// DNS answers a question. It looks at the policy, and resolves nothing.
func (i ingress) DNS(msg []byte) (answer []byte) {
	c := i.c
	defer func() {
		if recover() != nil {
			c.record.panicked()
			answer = nil
		}
	}()
	q, answer, ok := dnswire.Parse(msg)
	if !ok {
		c.emit(event.Event{Kind: event.DNS, Decision: event.Deny, Code: "dns_malformed", Reason: "it is no question that can be answered"})
		return answer
	}
	r := c.rule.Load()
	e := event.Event{Kind: event.DNS, Decision: event.Deny, Generation: r.generation}
	name, err := hostname.Parse(q.Name)
	if err != nil {
		var bad *hostname.Error
		e.Name, e.Code, e.Reason = quoted(q.Name), "name_malformed", "it is no host name"
		if errors.As(err, &bad) {
			e.Code, e.Reason = string(bad.Code), bad.Why
		}
		c.emit(e)
		return q.NXDomain()
	}
	e.Name = string(name)
	switch {
	case !q.IN():
		return q.Refused()
	case !r.policy.Name(name):
		_, v := r.policy.Host(name, 443)
		e.Code, e.Rule, e.Reason, e.Fix = string(v.Code), v.Rule, v.Reason, v.Fix
		c.emit(e)
		return q.NXDomain()
	case q.Type != dnswire.TypeA && q.Type != dnswire.TypeAAAA:
		return q.NoData()
	case !c.budgets.name(r.policy, name):
		e.Code, e.Reason = "names_exhausted", "the policy's number of names below this wildcard is used up"
		c.emit(e)
		return q.NXDomain()
	}
	v4, v6, fresh, err := c.address(name, r.generation)
	if err != nil {
		e.Code, e.Reason = "names_exhausted", "no further name of this box can be written down"
		c.emit(e)
		return q.NXDomain()
	}
	a := v4
	if q.Type == dnswire.TypeAAAA {
		a = v6
	}
	if fresh {
		e.Decision, e.Addr = event.Allow, a.String()
		c.emit(e)
	}
	return q.Address(a)
}

// clip bounds hostile text in an event.
func clip(s string) string { return s[:min(len(s), 300)] }

// quoted makes text that may be anything printable.
func quoted(s string) string {
	q := strconv.QuoteToASCII(s)
	return clip(q[1 : len(q)-1])
}

const (
	dnsPort = 53
	// A connection for questions answers this many, and waits for each this long.
	maxQuestions    = 128
	questionTimeout = 10 * time.Second
)

// questions answers DNS over TCP (RFC 1035, 4.2.2).
func (i ingress) questions(box *link.Conn) {
	for range maxQuestions {
		if box.SetDeadline(time.Now().Add(questionTimeout)) != nil {
			return
		}
		var size [2]byte
		if _, err := io.ReadFull(box, size[:]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint16(size[:]))
		if n > dnswire.MaxQuery {
			return
		}
		msg := make([]byte, n)
		if _, err := io.ReadFull(box, msg); err != nil {
			return
		}
		answer := i.DNS(msg)
		if answer == nil {
			return
		}
		if _, err := box.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}
