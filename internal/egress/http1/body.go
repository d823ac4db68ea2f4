package http1

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// BodyKind is how a body tells its end.
type BodyKind int

const (
	None BodyKind = iota
	Length
	Chunked
	UntilClose // of a response only
)

// Body is what a head says of the body that follows.
type Body struct {
	Kind   BodyKind
	Length int64 // for Length; 0 is a body of no bytes
}

// bodyOf reads the framing fields of RFC 9112, 6.3; where that knows what to do
// with a contradiction, this refuses it.
func bodyOf(f Fields, old bool) (Body, error) {
	te, hasTE, err := f.Get("Transfer-Encoding")
	if err != nil {
		return Body{}, refuse(http.StatusNotImplemented, "http_framing", "it has two fields Transfer-Encoding")
	}
	cl, hasCL, err := f.Get("Content-Length")
	if err != nil {
		return Body{}, err
	}
	switch {
	case hasTE && hasCL:
		return Body{}, refuse(http.StatusBadRequest, "http_framing", "it has both Transfer-Encoding and Content-Length")
	case hasTE && old:
		return Body{}, refuse(http.StatusBadRequest, "http_framing", "it has Transfer-Encoding, which HTTP/1.0 does not know")
	case hasTE && !strings.EqualFold(te, "chunked"):
		return Body{}, refuse(http.StatusNotImplemented, "http_framing", "its Transfer-Encoding is not chunked alone")
	case hasTE:
		return Body{Kind: Chunked}, nil
	case !hasCL:
		return Body{}, nil
	}
	if len(cl) == 0 || len(cl) > 18 || strings.Trim(cl, "0123456789") != "" {
		return Body{}, refuse(http.StatusBadRequest, "http_framing", "its Content-Length is no number")
	}
	n, err := strconv.ParseInt(cl, 10, 64)
	if err != nil {
		return Body{}, refuse(http.StatusBadRequest, "http_framing", "its Content-Length is no number")
	}
	return Body{Kind: Length, Length: n}, nil
}

// Some reports whether bytes may follow the head.
func (b Body) Some() bool { return b.Kind != None && (b.Kind != Length || b.Length > 0) }

// field appends the line that frames the body.
func (b Body) field(head []byte) []byte {
	switch b.Kind {
	case Length:
		return append(head, "Content-Length: "+strconv.FormatInt(b.Length, 10)+"\r\n"...)
	case Chunked:
		return append(head, "Transfer-Encoding: chunked\r\n"...)
	}
	return head
}

// Reader reads the bytes of the body from r and no further. It ends with io.EOF
// only when the whole body was read. Trailers are read and dropped.
func (b Body) Reader(r *bufio.Reader) io.Reader {
	switch b.Kind {
	case Length:
		return &lengthReader{r, b.Length}
	case Chunked:
		return &chunkReader{r: r}
	case UntilClose:
		return r
	}
	return strings.NewReader("")
}

type lengthReader struct {
	r    *bufio.Reader
	left int64
}

// Read reads what is left of the body.
func (l *lengthReader) Read(p []byte) (int, error) {
	if l.left == 0 {
		return 0, io.EOF
	}
	n, err := l.r.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	if errors.Is(err, io.EOF) && l.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Bounds of what surrounds the bytes of a chunked body.
const (
	maxChunkLine = 128 // a size with its extensions, which are dropped
	maxTrailers  = 8 << 10
)

type chunkReader struct {
	r     *bufio.Reader
	left  int64 // of this chunk
	begun bool
	err   error
}

// Read reads from the chunks as if they were one.
func (c *chunkReader) Read(p []byte) (int, error) {
	if c.err == nil && c.left == 0 {
		c.err = c.next()
	}
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.r.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	c.err = err
	return n, err
}

// next reads the end of one chunk and the begin of another.
func (c *chunkReader) next() error {
	fail := func(err error) error {
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		return err
	}
	budget := maxChunkLine
	if c.begun {
		line, err := readLine(c.r, &budget)
		if err != nil {
			return fail(err)
		}
		if line != "" {
			return malformed("a chunk is longer than it says")
		}
	}
	c.begun = true
	budget = maxChunkLine
	line, err := readLine(c.r, &budget)
	if err != nil {
		return fail(err)
	}
	size, _, _ := strings.Cut(line, ";")
	if size == "" || len(size) > 15 || strings.Trim(size, "0123456789abcdefABCDEF") != "" {
		return malformed("a chunk's size is no number")
	}
	n, err := strconv.ParseInt(size, 16, 64)
	if err != nil {
		return malformed("a chunk's size is no number")
	}
	if n > 0 {
		c.left = n
		return nil
	}
	budget = maxTrailers
	if _, err := readFields(c.r, &budget); err != nil {
		return fail(err)
	}
	return io.EOF
}

// AppendChunk appends one chunk of a chunked body; of no bytes, its end.
func AppendChunk(b, data []byte) []byte {
	b = fmt.Appendf(b, "%x\r\n", len(data))
	b = append(b, data...)
	return append(b, '\r', '\n')
}
