package mcp

import (
	"crypto/rand"
	"fmt"
	"strings"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/sunaba-dev/sunaba/internal/stream"
)

// shown is how much of one stream an answer holds, in bytes, half from its
// beginning and half from its end.
const shown = 32 << 10

// nonce returns a word for the fences of one answer, which no program can know.
func nonce() string { return rand.Text() }

// fence puts text that came from a box between marks that it cannot forge.
func fence(word, attributes, text string) string {
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return fmt.Sprintf("<output %s nonce=%q>\n%s</output nonce=%q>", attributes, word, text, word)
}

func text(s string) *sdk.TextContent { return &sdk.TextContent{Text: s} }

// excerpt keeps the beginning and the end of a stream, and counts the rest. The
// zero value is ready for use.
type excerpt struct {
	head, tail []byte
	total      int64
}

// Write implements io.Writer. It never fails.
func (e *excerpt) Write(p []byte) (int, error) {
	e.total += int64(len(p))
	n := min(len(p), shown/2-len(e.head))
	e.head = append(e.head, p[:n]...)
	e.tail = append(e.tail, p[n:]...)
	if over := len(e.tail) - shown/2; over > 0 {
		e.tail = append(e.tail[:0], e.tail[over:]...)
	}
	return len(p), nil
}

// left is how many bytes are not kept.
func (e *excerpt) left() int64 { return e.total - int64(len(e.head)) - int64(len(e.tail)) }

// clean returns the kept bytes as text. Where some are missing it says how many,
// in words that hold the nonce: a program may print a line like it, but not it.
func (e *excerpt) clean(word string) string {
	if e.left() == 0 {
		return stream.Clean(append(e.head[:len(e.head):len(e.head)], e.tail...))
	}
	tail := e.tail
	for len(tail) > 0 && !utf8.RuneStart(tail[0]) {
		tail = tail[1:]
	}
	head := stream.WholeRunes(e.head)
	cut := e.total - int64(len(head)) - int64(len(tail))
	return fmt.Sprintf("%s\n[%s: %d of %d bytes left out here]\n%s",
		stream.Clean(head), word, cut, e.total, stream.Clean(tail))
}

// excerptOf is an excerpt of what is there as a whole.
func excerptOf(s string) *excerpt {
	var e excerpt
	_, _ = e.Write([]byte(s))
	return &e
}
