package http1

import (
	"bufio"
	"errors"
	"net/http"
	"strings"
)

// Request is the head of a request.
type Request struct {
	Method string // as it came: any token
	// Host is the authority: that of the target if it has one, else the field's.
	Host string
	// Path and Query are the target's, as they came. A CONNECT has neither.
	Path, Query string
	Old         bool // HTTP/1.0
	Fields      Fields
	Body        Body
	// Close says that the client wants no further answer. Expect says that it
	// waits for a word before it sends its body. Upgrade is what else it would speak.
	Close, Expect bool
	Upgrade       string

	dropped map[string]bool // fields for this hop
}

// ReadRequest reads a head. io.EOF is the end before its first byte; a refusal
// is an *Error.
func ReadRequest(r *bufio.Reader, limits Limits) (*Request, error) {
	budget := limits.Header + limits.URL
	line, err := readLine(r, &budget)
	var bad *Error
	if errors.As(err, &bad) && bad.Status == http.StatusRequestHeaderFieldsTooLarge {
		return nil, tooLong()
	}
	if err != nil {
		return nil, err
	}
	method, rest, ok := strings.Cut(line, " ")
	target, version, ok2 := strings.Cut(rest, " ")
	if !ok || !ok2 || !token(method) || target == "" || strings.Contains(version, " ") {
		return nil, malformed("its first line is no request")
	}
	if len(target) > limits.URL {
		return nil, tooLong()
	}
	q := &Request{Method: method}
	switch version {
	case "HTTP/1.1":
	case "HTTP/1.0":
		q.Old = true
	default:
		return nil, refuse(http.StatusHTTPVersionNotSupported, "http_version", "it is neither HTTP/1.1 nor HTTP/1.0")
	}
	budget = min(budget, limits.Header)
	if q.Fields, err = readFields(r, &budget); err != nil {
		return nil, err
	}
	host, found, err := q.Fields.Get("Host")
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, malformed("it has no Host")
	}
	q.Host = host
	if err := q.target(target); err != nil {
		return nil, err
	}
	return q, q.framing()
}

func tooLong() error {
	return refuse(http.StatusRequestURITooLong, "url_too_long", "its URL is longer than the policy allows")
}

// target reads the forms of RFC 9112, 3.2.
func (q *Request) target(t string) error {
	for i := range len(t) {
		if t[i] <= 0x20 || t[i] >= 0x7f || t[i] == '#' {
			return malformed("its target has a character that no URL has")
		}
	}
	if q.Method == http.MethodConnect {
		q.Host = t
		return nil
	}
	if !strings.HasPrefix(t, "/") {
		scheme, rest, ok := strings.Cut(t, "://")
		if !ok || !strings.EqualFold(scheme, "http") {
			return malformed("its target is neither a path nor an http URL")
		}
		i := strings.IndexAny(rest, "/?")
		if i < 0 {
			i = len(rest)
		}
		q.Host, t = rest[:i], rest[i:]
		if !strings.HasPrefix(t, "/") {
			t = "/" + t
		}
	}
	q.Path, q.Query, _ = strings.Cut(t, "?")
	if strings.Contains(t, "?") {
		q.Query = "?" + q.Query
	}
	return nil
}

// framing decides where the message ends, and what is for this hop.
func (q *Request) framing() error {
	names, closes, keeps, err := nominated(q.Fields)
	if err != nil {
		return err
	}
	q.dropped = names
	q.Close = closes || q.Old && !keeps
	if q.Body, err = bodyOf(q.Fields, q.Old); err != nil {
		return err
	}
	q.Upgrade, _, err = q.Fields.Get("Upgrade")
	if err != nil {
		return err
	}
	expect, found, err := q.Fields.Get("Expect")
	switch {
	case err != nil:
		return err
	case found && !strings.EqualFold(expect, "100-continue"):
		return refuse(http.StatusExpectationFailed, "http_expect", "it expects what nobody here can give")
	}
	q.Expect = found && !q.Old && q.Body.Kind != None
	return nil
}

// Forward returns the head as it goes to the upstream: for host, in origin form
// with path, as HTTP/1.1. Fields by which some servers let a client replace the host
// are left out; if override is true, those for method and path, too.
//
// Behind a body no other request may come: some servers do not read the body that
// a handler has not asked for, and take its bytes for the next request on the
// connection, whose method, path and host nobody judged. Of a connection that is
// to be closed they read none.
func (q *Request) Forward(host, path string, override bool) []byte {
	b := make([]byte, 0, 512)
	b = append(b, q.Method+" "+path+q.Query+" HTTP/1.1\r\nHost: "+host+"\r\n"...)
	for _, f := range q.Fields {
		name := strings.ToLower(f.Name)
		if name == "host" || name == "content-length" || name == "expect" || hop(name) || q.dropped[name] || overridesHost(name) || override && overrides(name) {
			continue
		}
		b = append(b, f.Name+": "+f.Value+"\r\n"...)
	}
	b = q.Body.field(b)
	if q.Body.Some() {
		b = append(b, "Connection: close\r\n"...)
	}
	return append(b, '\r', '\n')
}

// overrides reports whether some server takes method or path from the field, which
// is in lower case.
func overrides(name string) bool {
	switch plain(name) {
	case "x-http-method-override", "x-http-method", "x-method-override", "x-method", "x-original-method", "x-forwarded-method",
		"x-original-url", "x-original-uri", "x-original-path", "x-rewrite-url", "x-override-url", "x-request-uri", "x-request-url", "x-http-path-override",
		"x-forwarded-uri", "x-forwarded-url", "x-forwarded-path", "x-forwarded-prefix", "x-script-name", "x-envoy-original-path":
		return true
	}
	return false
}

// overridesHost reports whether some server takes the host from the field, which is
// in lower case.
func overridesHost(name string) bool {
	switch plain(name) {
	case "x-forwarded-host", "x-forwarded-server", "x-original-host", "x-envoy-original-host", "x-http-host-override", "x-real-host", "x-host",
		"host-override", "x-http-destinationurl", "forwarded":
		return true
	}
	return false
}
