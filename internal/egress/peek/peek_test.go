package peek

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// oracle is what crypto/tls reads of a client's first bytes; nil if it refuses
// them before it asks.
func oracle(b []byte) *tls.ClientHelloInfo {
	var seen *tls.ClientHelloInfo
	s := tls.Server(&tape{r: bytes.NewReader(b)}, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		seen = h
		return nil, errors.New("that is all")
	}})
	_ = s.Handshake()
	return seen
}

// tape is a connection on which bytes come and nothing goes.
type tape struct {
	net.Conn
	r io.Reader
}

func (t *tape) Read(b []byte) (int, error)       { return t.r.Read(b) }
func (t *tape) Write(b []byte) (int, error)      { return len(b), nil }
func (t *tape) Close() error                     { return nil }
func (t *tape) SetDeadline(time.Time) error      { return nil }
func (t *tape) SetReadDeadline(time.Time) error  { return nil }
func (t *tape) SetWriteDeadline(time.Time) error { return nil }

// client returns what crypto/tls says first.
func client(cfg *tls.Config) []byte {
	a, b := net.Pipe()
	go func() {
		_ = tls.Client(a, cfg).Handshake()
		a.Close()
	}()
	buf := make([]byte, 1<<15)
	n, _ := b.Read(buf)
	b.Close()
	return buf[:n]
}

func hellos() [][]byte {
	return [][]byte{
		client(&tls.Config{ServerName: "a.example.com"}),
		client(&tls.Config{ServerName: "a.example.com", NextProtos: []string{"h2", "http/1.1"}, MaxVersion: tls.VersionTLS12}),
		client(&tls.Config{ServerName: "a.example.com", MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}),
		client(&tls.Config{InsecureSkipVerify: true}),
	}
}

func TestFirstBytesSayWhatAConnectionIs(t *testing.T) {
	for text, want := range map[string]Kind{
		"GET / HTTP/1.1\r\n": HTTP1, "P": Unknown, "PUT /": HTTP1, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n": HTTP2, "PRIX /": HTTP1, "SSH-2.0-x": SSH, "SSX": Unknown,
		"get /": Unknown, " GET": Unknown, "\x00": Unknown, "\x80\x2e\x01": Unknown, "ABCDEFGHIJKLMNOPQRSTUVWXYZABC /": Unknown,
	} {
		for name, r := range map[string]io.Reader{"whole": bytes.NewReader([]byte(text)), "byte by byte": iotest.OneByteReader(bytes.NewReader([]byte(text)))} {
			f, err := read(r)
			if err == nil && f.Kind != want || err != nil && want != Unknown {
				t.Errorf("%q, %s: %s, %v, want %s", text, name, f.Kind, err, want)
			}
		}
	}
}

func TestAHelloIsReadInAnySplitAndKept(t *testing.T) {
	for i, b := range hellos() {
		want := oracle(b)
		for name, r := range map[string]io.Reader{
			"whole": bytes.NewReader(b), "byte by byte": iotest.OneByteReader(bytes.NewReader(b)),
			"one byte a record": iotest.HalfReader(bytes.NewReader(cut(b, 1))), "7 bytes a record": bytes.NewReader(cut(b, 7)),
		} {
			var kept bytes.Buffer
			f, err := read(io.TeeReader(r, &kept))
			if err != nil || f.Kind != TLS {
				t.Fatalf("%d, %s: %s, %v", i, name, f.Kind, err)
			}
			if f.Hello.SNI != want.ServerName || !slices.Equal(f.Hello.ALPN, want.SupportedProtos) || f.Hello.ECH || f.Hello.Weak != (i == 2) {
				t.Errorf("%d, %s: %+v, want %s %v", i, name, f.Hello, want.ServerName, want.SupportedProtos)
			}
			if !bytes.Equal(f.Bytes, kept.Bytes()) {
				t.Errorf("%d, %s: it does not keep what it read", i, name)
			}
		}
	}
}

// cut puts the handshake of one record into records of n bytes.
func cut(b []byte, n int) []byte {
	var out []byte
	for msg := b[5:]; len(msg) > 0; {
		k := min(n, len(msg))
		out = append(append(out, 22, 3, 1, 0, byte(k)), msg[:k]...)
		msg = msg[k:]
	}
	return out
}

func TestAClientThatSaysTooLittleIsGivenUp(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := a.Write(hellos()[0][:50]); err != nil { // which are there before they are waited for
		t.Fatal(err)
	}
	if f, err := Read(b, time.Second); !errors.Is(err, ErrTimeout) || len(f.Bytes) != 50 {
		t.Errorf("%d bytes, %v", len(f.Bytes), err)
	}
	if _, err := read(bytes.NewReader(hellos()[0][:50])); !errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
	long := cut(append(make([]byte, 5), append([]byte{1, 0, 0x7f, 0xff}, make([]byte, 0x7fff)...)...), 255)
	if _, err := read(bytes.NewReader(long)); !errors.Is(err, errHello) {
		t.Errorf("a hello that claims 32 KiB: %v", err)
	}
}

// What is accepted here means to crypto/tls what it means here.
func FuzzHello(f *testing.F) {
	// Small and always the same, or the fuzzer is busy with making them smaller.
	for _, ext := range []string{
		"", "\x00\x00\x00\x06\x00\x04\x00\x00\x01a", "\x00\x2b\x00\x05\x04\x03\x04\x03\x03", "\x00\x10\x00\x05\x00\x03\x02h2", "\xfe\x0d\x00\x01\x00",
	} {
		body := "\x03\x03" + strings.Repeat("r", 32) + "\x00\x00\x02\x13\x01\x01\x00\x00" + string(rune(len(ext))) + ext
		msg := "\x01\x00\x00" + string(rune(len(body))) + body
		b := []byte("\x16\x03\x01\x00" + string(rune(len(msg))) + msg)
		if got, err := read(bytes.NewReader(b)); err != nil || got.Kind != TLS || oracle(b) == nil && !got.Hello.ECH {
			f.Fatalf("a seed is no hello: %v", err)
		}
		f.Add(b)
		f.Add(cut(b, 9))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := read(bytes.NewReader(b))
		if !bytes.HasPrefix(b, got.Bytes) {
			t.Fatal("it keeps what did not come")
		}
		again, err2 := read(iotest.OneByteReader(bytes.NewReader(b)))
		if (err == nil) != (err2 == nil) || err == nil && got.Kind != again.Kind {
			t.Fatalf("whole: %s %v, byte by byte: %s %v", got.Kind, err, again.Kind, err2)
		}
		if err != nil || got.Kind != TLS {
			return
		}
		want := oracle(b)
		if want == nil {
			return // it refuses more than we do; so would the upstream
		}
		if got.Hello.SNI != want.ServerName || !slices.Equal(got.Hello.ALPN, want.SupportedProtos) || got.Hello.ECH != slices.ContainsFunc(want.Extensions, encrypts) {
			t.Errorf("%+v, crypto/tls reads %q %v %v", got.Hello, want.ServerName, want.SupportedProtos, want.Extensions)
		}
		if strong := slices.ContainsFunc(want.SupportedVersions, func(v uint16) bool { return v >= versionTLS12 && v <= 0x03ff }); !strong && !got.Hello.Weak {
			t.Errorf("it is not weak, and offers %x", want.SupportedVersions)
		}
	})
}

// watch feeds b in pieces of n bytes. passed is what went on before the second
// hello was told, or all.
func watch(b []byte, n int) (passed []byte, hello *Hello, err error) {
	return watchWith(&Watch{}, b, n)
}

func watchWith(w *Watch, b []byte, n int) (passed []byte, hello *Hello, err error) {
	for len(b) > 0 {
		k := min(n, len(b))
		out, h, err := w.Feed(b[:k])
		if err != nil || h != nil {
			return passed, h, err
		}
		passed = append(passed, out...)
		b = b[k:]
	}
	return passed, nil, nil
}

// However a stream is cut, the same passes, and no byte of a hello before it is
// told.
func FuzzWatch(f *testing.F) {
	hello := []byte("\x16\x03\x01\x00\x2d\x01\x00\x00\x29\x03\x03" + strings.Repeat("r", 32) + "\x00\x00\x02\x13\x01\x01\x00")
	if _, h, err := watch(hello, 1); h == nil || err != nil {
		f.Fatalf("a seed is no hello: %v", err)
	}
	f.Add(hello)
	f.Add(append([]byte("\x14\x03\x03\x00\x01\x01\x17\x03\x03\x00\x02xx"), hello...))
	f.Add([]byte("\x16\x03\x03\x00\x01\x10\x16\x03\x03\x00\x01\x01"))
	f.Add([]byte("\x16\x03\x03\x00\x00"))
	f.Add([]byte("\x14\x03\x03\x00\x01\x01\x16\x03\x03\x00\x28\x01\xff" + strings.Repeat("c", 38)))
	f.Add([]byte("\x16\x03\x03\x00\x2a\x02\x00\x00\x26\x03\x03" + strings.Repeat("r", 36)))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, h1, err1 := watch(b, len(b)+1)
		each, h2, err2 := watch(b, 1)
		if (h1 == nil) != (h2 == nil) || (err1 == nil) != (err2 == nil) || h1 == nil && err1 == nil && !bytes.Equal(all, each) {
			t.Fatalf("whole: %q %v %v; byte by byte: %q %v %v", all, h1, err1, each, h2, err2)
		}
		if !bytes.HasPrefix(b, each) {
			t.Fatalf("%q passes of %q", each, b)
		}
		// Once the server has answered, the same that is told is told, if it lies in one
		// record, and what was refused for what is in a record passes.
		answered, each3 := &Watch{}, &Watch{}
		answered.Answered()
		each3.Answered()
		late, h3, err3 := watchWith(answered, b, len(b)+1)
		late4, h4, err4 := watchWith(each3, b, 1)
		if (h3 == nil) != (h4 == nil) || (err3 == nil) != (err4 == nil) || h3 == nil && err3 == nil && !bytes.Equal(late, late4) {
			t.Fatalf("answered, whole: %q %v %v; byte by byte: %q %v %v", late, h3, err3, late4, h4, err4)
		}
		if h3 != nil && (h1 == nil || h3.SNI != h1.SNI) || err3 != nil && err1 == nil {
			t.Fatalf("answered: %v %v; before: %v %v", h3, err3, h1, err1)
		}
		var reply, replyEach Reply
		asks, asksEach := reply.Feed(b), false
		for i := range b {
			asksEach = replyEach.Feed(b[i:i+1]) || asksEach
		}
		if asks != asksEach {
			t.Fatalf("whole: %v; byte by byte: %v", asks, asksEach)
		}
		// A slow reader of the same: no record of the handshake that begins with a
		// hello has passed but as its head, as far as the first one.
		for at := 0; at+5 <= len(each); {
			n := int(each[at+3])<<8 | int(each[at+4])
			if each[at] == recordHandshake {
				if n == 0 || at+5 < len(each) && each[at+5] == clientHello {
					t.Fatalf("a hello has passed: %q", each)
				}
				break
			}
			at += 5 + n
		}
	})
}
