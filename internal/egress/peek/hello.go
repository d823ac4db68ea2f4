package peek

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"slices"
)

// Hello is what a TLS client says in the clear before anything is agreed.
type Hello struct {
	// SNI is the host name as it came: hostile. Empty if there is none.
	SNI  string
	ALPN []string
	// ECH says that an extension for encrypted hellos or names is there: the true
	// name may be another. A client that only pretends (GREASE) looks the same.
	ECH bool
	// Weak says that the client speaks nothing newer than TLS 1.1, or offers no
	// cipher suite that is held for safe.
	Weak bool
}

// Extensions and record types of TLS, RFC 8446.
const (
	recordHandshake = 22
	clientHello     = 1

	extensionSNI      = 0
	extensionALPN     = 16
	extensionVersions = 43

	versionTLS12 = 0x0303
)

var errHello = errors.New("read a malformed client hello")

// assembler joins the handshake messages of TLS records until one client hello
// is whole. It looks at each byte once: a hello may come in as many pieces as it
// has bytes.
type assembler struct {
	head []byte // of a record, while it is not whole
	left int    // bytes of the record that are still to come
	msg  []byte
	rest int // bytes that were fed behind the whole hello
}

// feed takes more bytes, and reports whether the hello is whole. What comes
// behind it in records of its own is not looked at.
func (a *assembler) feed(b []byte) (whole bool, err error) {
	for len(b) > 0 {
		if a.left == 0 {
			n := min(5-len(a.head), len(b))
			a.head, b = append(a.head, b[:n]...), b[n:]
			if err := a.begin(); err != nil {
				return false, err
			}
			continue
		}
		n := min(a.left, len(b))
		a.msg, b = append(a.msg, b[:n]...), b[n:]
		a.left -= n
		if whole, err := a.whole(); whole || err != nil {
			a.rest = len(b)
			return whole, err
		}
	}
	return false, nil
}

// begin looks at the head of a record, as far as it is there.
func (a *assembler) begin() error {
	if a.head[0] != recordHandshake || len(a.head) > 1 && a.head[1] != 3 {
		return errHello
	}
	if len(a.head) < 5 {
		return nil
	}
	a.left = int(binary.BigEndian.Uint16(a.head[3:]))
	a.head = a.head[:0]
	if a.left == 0 || a.left > 1<<14 {
		return errHello
	}
	return nil
}

func (a *assembler) whole() (bool, error) {
	if a.msg[0] != clientHello {
		return false, errHello
	}
	if len(a.msg) < 4 {
		return false, nil
	}
	n := 4 + (int(a.msg[1])<<16 | int(a.msg[2])<<8 | int(a.msg[3]))
	switch {
	case n > Max, len(a.msg) > n, len(a.msg) == n && a.left > 0: // something behind it, which the client may not yet say
		return false, errHello
	}
	return len(a.msg) == n, nil
}

// parse reads a client hello strictly: what is twice there, is too short or has
// something behind it is refused, since two readers could differ about it.
func parse(msg []byte) (Hello, error) {
	r := reader{b: msg[4:]}
	legacy := r.uint16()
	r.take(32) // random
	if id := r.vector8(); len(id) > 32 {
		return Hello{}, errHello
	}
	suites := r.vector16()
	compression := r.vector8()
	if r.bad || len(suites) == 0 || len(suites)%2 != 0 || !slices.Contains(compression, 0) {
		return Hello{}, errHello
	}
	h := Hello{}
	versions := []uint16{legacy}
	if len(r.b) > 0 {
		ext := reader{b: r.vector16()}
		seen := map[uint16]bool{}
		for len(ext.b) > 0 {
			kind, body := ext.uint16(), reader{b: ext.vector16()}
			if ext.bad || seen[kind] {
				return Hello{}, errHello
			}
			seen[kind] = true
			switch kind {
			case extensionSNI:
				h.SNI = serverName(&body)
			case extensionALPN:
				h.ALPN = protocols(&body)
			case extensionVersions:
				versions = list16(body.vector8(), &body)
			default:
				h.ECH, body.b = h.ECH || encrypts(kind), nil
			}
			if body.bad || len(body.b) > 0 {
				return Hello{}, errHello
			}
		}
	}
	if r.bad || len(r.b) > 0 {
		return Hello{}, errHello
	}
	h.Weak = !modern(versions) || !slices.ContainsFunc(list16(suites, &r), safe)
	return h, nil
}

// encrypts reports whether an extension says, or may say, that the true hello or its
// name is encrypted: the standard's (0xfe0d), those of its drafts, which servers have
// spoken, and what belongs inside of an encrypted hello alone.
func encrypts(kind uint16) bool {
	switch kind {
	case 0xffce, // a name alone, drafts 2 to 6
		0xff02, 0xff03, 0xff04, 0xfe08, 0xfe09, 0xfe0a, 0xfe0b, 0xfe0c, 0xfe0d, // drafts 7, 8 to 12, and since
		0xfd00, 0xda09: // what stands outside, and that it is inside
		return true
	}
	return false
}

// serverName reads RFC 6066's list, which may hold one host name and nothing else.
func serverName(r *reader) string {
	l := reader{b: r.vector16()}
	kind, name := l.uint8(), l.vector16()
	if l.bad || len(l.b) > 0 || kind != 0 || len(name) == 0 {
		r.bad = true
	}
	return string(name)
}

func protocols(r *reader) []string {
	l := reader{b: r.vector16()}
	var out []string
	for len(l.b) > 0 && !l.bad {
		p := l.vector8()
		if len(p) == 0 {
			r.bad = true
		}
		out = append(out, string(p))
	}
	r.bad = r.bad || l.bad || len(out) == 0
	return out
}

func list16(b []byte, r *reader) []uint16 {
	if len(b)%2 != 0 || len(b) == 0 {
		r.bad = true
		return nil
	}
	var out []uint16
	for ; len(b) > 0; b = b[2:] {
		out = append(out, binary.BigEndian.Uint16(b))
	}
	return out
}

// modern reports whether TLS 1.2 or later is among versions. GREASE values
// (RFC 8701) are larger and mean nothing.
func modern(versions []uint16) bool {
	return slices.ContainsFunc(versions, func(v uint16) bool { return v >= versionTLS12 && v <= 0x03ff })
}

// safe reports whether a cipher suite is held for safe: TLS 1.3's, what Go
// itself would offer, and their counterparts with a finite-field exchange.
func safe(suite uint16) bool {
	switch suite {
	case 0x009e, 0x009f, 0xccaa: // DHE with AES-GCM or ChaCha20
		return true
	}
	return slices.ContainsFunc(tls.CipherSuites(), func(s *tls.CipherSuite) bool { return s.ID == suite })
}

// reader takes bytes from the front; bad says that there were too few.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n > len(r.b) {
		r.bad, r.b = true, nil
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) uint8() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint16() uint16 {
	if b := r.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) vector8() []byte  { return r.take(int(r.uint8())) }
func (r *reader) vector16() []byte { return r.take(int(r.uint16())) }
