package http1

import (
	"bufio"
	"net/http"
	"strconv"
	"strings"
)

// Response is the head of a response.
type Response struct {
	Status int
	Reason string
	Fields Fields
	Body   Body
	Close  bool // the upstream wants no further request

	dropped map[string]bool
}

// ReadResponse reads the head of the response to a request with the given method.
func ReadResponse(r *bufio.Reader, method string, header int) (*Response, error) {
	budget := header
	line, err := readLine(r, &budget)
	if err != nil {
		return nil, err
	}
	version, rest, _ := strings.Cut(line, " ")
	code, reason, _ := strings.Cut(rest, " ")
	if version != "HTTP/1.1" && version != "HTTP/1.0" || len(code) != 3 || strings.Trim(code, "0123456789") != "" || code[0] == '0' {
		return nil, malformed("its first line is no response")
	}
	p := &Response{Reason: reason}
	if p.Status, err = strconv.Atoi(code); err != nil {
		return nil, malformed("its status is no number")
	}
	if p.Fields, err = readFields(r, &budget); err != nil {
		return nil, err
	}
	names, closes, keeps, err := nominated(p.Fields)
	if err != nil {
		return nil, err
	}
	old := version == "HTTP/1.0"
	p.dropped, p.Close = names, closes || old && !keeps
	if p.Body, err = bodyOf(p.Fields, old); err != nil {
		return nil, err
	}
	switch {
	case p.Status < 200 || p.Status == http.StatusNoContent:
		p.Body = Body{}
	case method == http.MethodHead || p.Status == http.StatusNotModified:
		// What it says of a body is of one that another request would have got.
		if p.Body.Kind == Chunked {
			p.Body = Body{}
		}
	case p.Body.Kind == None:
		p.Body, p.Close = Body{Kind: UntilClose}, true
	}
	return p, nil
}

// Bodiless reports whether no body follows, whatever the head says.
func (p *Response) Bodiless(method string) bool {
	return method == http.MethodHead || p.Status < 200 || p.Status == http.StatusNoContent || p.Status == http.StatusNotModified
}

// Forward returns the head as it goes to the client, with a body that is framed
// like body. Alt-Svc and its ancestor are left out: they would lead the client where nothing is read.
func (p *Response) Forward(body Body, closes bool) []byte {
	b := make([]byte, 0, 512)
	b = append(b, "HTTP/1.1 "+strconv.Itoa(p.Status)+" "+p.Reason+"\r\n"...)
	for _, f := range p.Fields {
		name := strings.ToLower(f.Name)
		if name == "content-length" || name == "alt-svc" || name == "alternate-protocol" || hop(name) && name != "proxy-authenticate" || p.dropped[name] {
			continue
		}
		b = append(b, f.Name+": "+f.Value+"\r\n"...)
	}
	b = body.field(b)
	if closes {
		b = append(b, "Connection: close\r\n"...)
	}
	return append(b, '\r', '\n')
}
