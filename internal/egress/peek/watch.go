package peek

// Watch looks at what a TLS client sends after its hello, for a second one.
//
// A server may ask for one more hello in the clear (HelloRetryRequest, RFC 8446,
// 4.1.4), and some take the host name from the later. So it is held back until
// it is judged, too. Everything else passes as it comes: the records of TLS are
// walked over, and none is read. After the second hello, or a first message of
// the handshake that is none, no other can come: a server takes one at one
// place only.
type Watch struct {
	head   []byte // of a record, while it is not whole
	left   int    // bytes of the record that are still to come
	second *assembler
	held   []byte
	done   bool
	// answered says that the server has not asked for a second hello.
	answered bool
}

// Answered says that the server has not asked for a second hello. No honest client
// sends one then, and a record that looks like one may be the ciphertext of a
// handshake that is resumed (TLS 1.2), which begins with any byte. So it is judged if
// it is a hello from its first byte to its last, and passes if not. What is held back
// already stays what it was taken for.
func (w *Watch) Answered() {
	if w.second == nil {
		w.answered = true
	}
}

// maxRecord is the length of an encrypted record, in bytes: RFC 5246, 6.2.3.
const maxRecord = 1<<14 + 2048

// Feed takes what came next. pass is what may go on now; hello, if not nil, is a
// second one, whose bytes are at the end of pass and must be judged before they
// go. An error is a stream that is not TLS, or a hello that cannot be read. b
// must not be changed before pass was used.
func (w *Watch) Feed(b []byte) (pass []byte, hello *Hello, err error) {
	if w.done {
		return b, nil, nil
	}
	if w.second != nil {
		return w.hold(b)
	}
	for at := 0; at < len(b); {
		if w.left > 0 {
			n := min(w.left, len(b)-at)
			w.left -= n
			at += n
			continue
		}
		n := min(5-len(w.head), len(b)-at)
		w.head = append(w.head, b[at:at+n]...)
		at += n
		handshake, err := w.record()
		if err != nil {
			return nil, nil, err
		}
		if !handshake {
			continue
		}
		w.second = &assembler{left: w.left}
		rest, hello, err := w.hold(b[at:])
		return append(b[:at:at], rest...), hello, err
	}
	return b, nil, nil
}

// record looks at the head of a record once it is whole, and reports whether a
// message of the handshake begins.
func (w *Watch) record() (handshake bool, err error) {
	if len(w.head) < 5 {
		return false, nil
	}
	kind, n := w.head[0], int(w.head[3])<<8|int(w.head[4])
	// An empty record of the handshake, which some servers pass over, would hide
	// the first byte of the message.
	if kind < 20 || kind > 24 || w.head[1] != 3 || n > maxRecord || kind == recordHandshake && n == 0 {
		return false, errHello
	}
	w.head, w.left = w.head[:0], n
	return kind == recordHandshake, nil
}

// hold keeps what may be a hello until it is whole.
func (w *Watch) hold(b []byte) ([]byte, *Hello, error) {
	w.held = append(w.held, b...)
	if len(w.held) == 0 {
		return nil, nil, nil
	}
	if w.held[0] != clientHello {
		return w.release(nil)
	}
	if w.answered { // what is behind the record is none of it
		b = b[:min(w.second.left, len(b))]
	}
	whole, err := w.second.feed(b)
	var h Hello
	switch {
	case err != nil:
	case whole:
		h, err = parse(w.second.msg)
	case w.answered && w.second.left == 0:
		err = errHello // it goes on in another record
	default:
		return nil, nil, nil
	}
	switch {
	case err != nil && w.answered:
		return w.release(nil)
	case err != nil:
		return nil, nil, err
	}
	return w.release(&h)
}

// Reply looks at the first that a server says: whether it asks for a second hello.
// If it does not, none follows in the clear ([Watch.Answered]).
type Reply struct {
	head []byte
	done bool
}

// What is looked at: the heads of a record and a message, a version, and 32 bytes
// that are random, or these if a second hello is asked for (RFC 8446, 4.1.3).
const (
	serverHello = 2
	replyLength = 5 + 4 + 2 + 32
	retryRandom = "\xcf\x21\xad\x74\xe5\x9a\x61\x11\xbe\x1d\x8c\x02\x1e\x65\xb8\x91\xc2\xa2\x11\x16\x7a\xbb\x8c\x5e\x07\x9e\x09\xe2\xc8\xa8\x33\x9c"
)

// Feed takes what the server says next, and reports whether it is known now that
// it asks for no second hello. What is cut in an odd way is never known.
func (r *Reply) Feed(b []byte) bool {
	if r.done {
		return false
	}
	r.head = append(r.head, b[:min(len(b), replyLength-len(r.head))]...)
	if len(r.head) < replyLength {
		return false
	}
	h := r.head
	*r = Reply{done: true}
	record := int(h[3])<<8 | int(h[4])
	return h[0] == recordHandshake && h[1] == 3 && record >= replyLength-5 && h[5] == serverHello && string(h[11:]) != retryRandom
}

func (w *Watch) release(h *Hello) ([]byte, *Hello, error) {
	out := w.held
	*w = Watch{done: true}
	return out, h, nil
}
