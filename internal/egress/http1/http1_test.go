package http1_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/internal/egress/http1"
	"github.com/sunaba-dev/sunaba/internal/egress/httppath"
)

var limits = http1.Limits{URL: 8 << 10, Header: 32 << 10}

// rewrite does to one request what the gateway does. ok is false if it is refused.
func rewrite(in *bufio.Reader) (out []byte, q *http1.Request, body []byte, ok bool) {
	q, err := http1.ReadRequest(in, limits)
	if err != nil || q.Upgrade != "" || q.Method == http.MethodConnect {
		return nil, nil, nil, false
	}
	path, err := httppath.Canonical(q.Path)
	if err != nil {
		return nil, nil, nil, false
	}
	out = q.Forward("host.example.com", path, true)
	body, err = io.ReadAll(q.Body.Reader(in))
	if err != nil {
		return nil, nil, nil, false
	}
	if q.Body.Kind == http1.Chunked {
		if len(body) > 0 {
			out = http1.AppendChunk(out, body)
		}
		return http1.AppendChunk(out, nil), q, body, true
	}
	return append(out, body...), q, body, true
}

func TestPipelinedRequestsAreCutWhereTheyEnd(t *testing.T) {
	in := bufio.NewReaderSize(strings.NewReader("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"+
		"POST /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nde\r\n1\r\nf\r\n0\r\nT: 1\r\n\r\n"+
		"GET /c HTTP/1.1\r\nHost: x\r\n\r\n"), 16)
	for _, want := range []string{"/a abc", "/b def", "/c "} {
		_, q, body, ok := rewrite(in)
		if !ok || q.Path+" "+string(body) != want {
			t.Fatalf("%+v %q %v, want %s", q, body, ok, want)
		}
	}
	if _, err := http1.ReadRequest(in, limits); !errors.Is(err, io.EOF) {
		t.Errorf("behind the last: %v", err)
	}
}

func TestABodyThatEndsEarlyIsAnError(t *testing.T) {
	for _, body := range []string{
		"Content-Length: 4\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n4\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc",
		"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n", "Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
		"Transfer-Encoding: chunked\r\n\r\n-1\r\n", "Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n 3\r\nabc\r\n0\r\n\r\n",
		"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n", "Transfer-Encoding: chunked\r\n\r\n3;" + strings.Repeat("x", 200) + "\r\nabc\r\n0\r\n\r\n",
		"Transfer-Encoding: chunked\r\n\r\n0\r\n" + strings.Repeat("X: y\r\n", 200) + "\r\n",
	} {
		in := bufio.NewReader(strings.NewReader("POST / HTTP/1.1\r\nHost: x\r\n" + body))
		q, err := http1.ReadRequest(in, limits)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(q.Body.Reader(in)); err == nil {
			t.Errorf("%q: %q is a whole body", body, b)
		}
	}
}

// What goes to an upstream is one request to its reader, with the method, host,
// path and body that were judged, and nothing behind it.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST /a?b HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", "PUT http://a/b HTTP/1.0\r\nHost: a\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: 1\r\n\r\nGET / HTTP/1.1\r\nHost: b\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: close, x\r\nX: 1\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		out, q, body, ok := rewrite(bufio.NewReader(bytes.NewReader(b)))
		if !ok {
			return
		}
		up := bufio.NewReader(bytes.NewReader(out))
		r, err := http.ReadRequest(up)
		if err != nil {
			return // the upstream refuses it
		}
		got, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatalf("the upstream reads half of %q: %v", out, err)
		}
		path, _ := httppath.Canonical(q.Path)
		if r.Method != q.Method || r.Host != "host.example.com" || r.URL.EscapedPath() != path && r.URL.Path != path || !bytes.Equal(got, body) {
			t.Errorf("judged %s %s %q, the upstream reads %s %s %s %q of %q", q.Method, path, body, r.Method, r.Host, r.URL.EscapedPath(), got, out)
		}
		if rest, _ := io.ReadAll(up); len(rest) > 0 {
			t.Errorf("the upstream reads another request: %q", rest)
		}
		if len(body) > 0 && !r.Close {
			t.Errorf("another request may follow the body of %q", out)
		}
		for name := range r.Header { // as gateways to programs see it
			plain := strings.Map(func(r rune) rune {
				if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
					return r
				}
				return '-'
			}, strings.ToLower(name))
			switch plain {
			case "upgrade", "te", "x-http-method-override", "proxy-authorization", "host", "transfer-encoding", "x-forwarded-host":
				t.Errorf("%s goes on", name)
			case "content-length":
				if name != "Content-Length" || q.Body.Kind != http1.Length {
					t.Errorf("%s goes on", name)
				}
			}
		}
	})
}

// The same for answers.
func FuzzResponse(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\nok", "HTTP/1.1 304 x\r\nContent-Length: 5\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		in := bufio.NewReader(bytes.NewReader(b))
		p, err := http1.ReadResponse(in, http.MethodGet, 32<<10)
		if err != nil || p.Status < 200 {
			return
		}
		var body []byte
		frame := p.Body
		if !p.Bodiless(http.MethodGet) {
			if body, err = io.ReadAll(p.Body.Reader(in)); err != nil {
				return
			}
			if frame.Kind == http1.UntilClose {
				frame = http1.Body{Kind: http1.Chunked}
			}
		}
		out := p.Forward(frame, false)
		switch {
		case p.Bodiless(http.MethodGet):
		case frame.Kind == http1.Chunked:
			if len(body) > 0 {
				out = http1.AppendChunk(out, body)
			}
			out = http1.AppendChunk(out, nil)
		default:
			out = append(out, body...)
		}
		box := bufio.NewReader(bytes.NewReader(out))
		r, err := http.ReadResponse(box, nil)
		if err != nil {
			return // the box refuses it
		}
		got, err := io.ReadAll(r.Body)
		if rest, _ := io.ReadAll(box); err != nil || r.StatusCode != p.Status || !bytes.Equal(got, body) || len(rest) > 0 || r.Header.Get("Alt-Svc") != "" {
			t.Errorf("%d %q, the box reads %d %q and %q of %q: %v", p.Status, body, r.StatusCode, got, rest, out, err)
		}
	})
}
