// Package dnswire reads the DNS questions of boxes and writes the answers.
//
// It is a small part of DNS on purpose: one question, no compression, nothing
// but an address as an answer. What is not a well-formed question is answered
// FORMERR or not at all, and never looked at further. Nothing here resolves a
// name; see internal/egress/dial for who asks the world.
package dnswire

import (
	"encoding/binary"
	"net/netip"
)

// TTL is how long a box may keep an answer, in seconds: short, since its policy
// may change.
const TTL = 5

// MaxQuery is the size of the largest question that is read, in bytes.
const MaxQuery = 1024

// Types of questions that have an answer.
const (
	TypeA    = 1
	TypeAAAA = 28
	typeOPT  = 41
	classIN  = 1
)

const (
	rcodeFormErr  = 1
	rcodeNXDomain = 3
	rcodeNotImp   = 4
	rcodeRefused  = 5
)

// Question is what a box asks.
type Question struct {
	// Name is the name with dots between its labels and none at its end, in the
	// case and with the bytes that came: hostile. A label that has a dot in it
	// is refused before.
	Name  string
	Type  uint16
	Class uint16

	head []byte // the first 12 bytes
	raw  []byte // the question, which an answer repeats
}

// Parse reads a message. If ok is false, answer is what to say to it; nil is
// nothing.
func Parse(msg []byte) (q Question, answer []byte, ok bool) {
	if len(msg) < 12 || len(msg) > MaxQuery || msg[2]&0x80 != 0 { // a response is never answered: that would be a loop
		return Question{}, nil, false
	}
	q.head = msg[:12]
	if msg[2]>>3&0xf != 0 {
		return Question{}, q.answer(rcodeNotImp, nil), false
	}
	rest, ok := q.parse(msg[12:])
	count := func(i int) uint16 { return binary.BigEndian.Uint16(msg[4+2*i:]) }
	if !ok || count(0) != 1 || count(1) != 0 || count(2) != 0 || count(3) > 1 || !onlyOPT(rest, int(count(3))) {
		q.raw = nil
		return Question{}, q.answer(rcodeFormErr, nil), false
	}
	return q, nil, true
}

// parse reads the question and returns what is behind it.
func (q *Question) parse(b []byte) (rest []byte, ok bool) {
	name := make([]byte, 0, 64)
	at := 0
	for {
		if at >= len(b) {
			return nil, false
		}
		n := int(b[at])
		at++
		if n == 0 {
			break
		}
		if n > 63 || at+n > len(b) || at+n > 254 { // also a compression pointer: there is nothing that it could mean
			return nil, false
		}
		for _, c := range b[at : at+n] {
			if c == '.' {
				return nil, false
			}
		}
		if len(name) > 0 {
			name = append(name, '.')
		}
		name = append(name, b[at:at+n]...)
		at += n
	}
	if at+4 > len(b) {
		return nil, false
	}
	q.Name = string(name)
	q.Type, q.Class = binary.BigEndian.Uint16(b[at:]), binary.BigEndian.Uint16(b[at+2:])
	q.raw = b[:at+4]
	return b[at+4:], true
}

// onlyOPT reports whether b is n records and nothing behind, and each is the
// one that tells the size of messages (EDNS, RFC 6891).
func onlyOPT(b []byte, n int) bool {
	for range n {
		if len(b) < 11 || b[0] != 0 || binary.BigEndian.Uint16(b[1:]) != typeOPT {
			return false
		}
		size := 11 + int(binary.BigEndian.Uint16(b[9:]))
		if size > len(b) || !options(b[11:size]) {
			return false
		}
		b = b[size:]
	}
	return len(b) == 0
}

// options reports whether b is whole options, each a code, a length and so many
// bytes (RFC 6891 6.1.2). Nothing is done by them.
func options(b []byte) bool {
	for len(b) >= 4 {
		size := 4 + int(binary.BigEndian.Uint16(b[2:]))
		if size > len(b) {
			return false
		}
		b = b[size:]
	}
	return len(b) == 0
}

// IN reports whether the question is about the Internet; no other class has
// answers.
func (q Question) IN() bool { return q.Class == classIN }

// Address answers with one address, whose version must be that of the type asked for.
func (q Question) Address(a netip.Addr) []byte {
	data := a.AsSlice()
	rr := []byte{0xc0, 12} // the name of the question
	rr = binary.BigEndian.AppendUint16(rr, q.Type)
	rr = binary.BigEndian.AppendUint16(rr, classIN)
	rr = binary.BigEndian.AppendUint32(rr, TTL)
	rr = binary.BigEndian.AppendUint16(rr, uint16(len(data)))
	return q.answer(0, append(rr, data...))
}

// NoData answers that the name exists and has nothing of this type.
func (q Question) NoData() []byte { return q.answer(0, nil) }

// NXDomain answers that there is no such name.
func (q Question) NXDomain() []byte { return q.answer(rcodeNXDomain, nil) }

// Refused answers that the question is not answered.
func (q Question) Refused() []byte { return q.answer(rcodeRefused, nil) }

func (q Question) answer(rcode byte, record []byte) []byte {
	b := make([]byte, 12, 12+len(q.raw)+len(record))
	copy(b, q.head[:2])
	b[2] = 0x84 | q.head[2]&0x79 // a response, from who knows it; opcode and RD as they came
	b[3] = 0x80 | rcode          // recursion available
	if q.raw != nil {
		b[5] = 1
	}
	if record != nil {
		b[7] = 1
	}
	return append(append(b, q.raw...), record...)
}
