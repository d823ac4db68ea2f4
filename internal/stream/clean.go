package stream

import "io"

// Clean returns p as text that is safe to print on a UTF-8 terminal, to write
// to a log and to give to a model.
//
// Visible characters, spaces, newlines and tabs stay as they are, and "\r\n"
// becomes a newline. Everything else is shown:
//
//	\r         a carriage return that no newline follows
//	\x1b       an ASCII control character, DEL, or a byte that is not UTF-8
//	\u{202e}   any other character that is invisible, private, unassigned or
//	           changes the look of its neighbours
//
// Backslashes in p are not doubled, so text stays readable (paths, regular
// expressions, source code) and the result cannot be turned back into p: keep p
// where that matters. Clean(Clean(p)) equals Clean(p). The result is valid
// UTF-8 and at most four times as long as p.
//
// Blank characters that take up space (such as U+00A0 and U+2800), combining
// marks, and letters that look like other letters are text and stay.
func Clean(p []byte) string {
	out, _ := clean(make([]byte, 0, len(p)), p, true)
	return string(out)
}

// Cleaner is a writer that passes on what [Clean] makes of a stream, however
// the stream is cut into writes. It holds back at most three bytes (an
// unfinished character or a carriage return) and uses about 20 KiB whatever
// comes. It is not safe for concurrent use.
type Cleaner struct{ f filter }

// NewCleaner returns a Cleaner that writes to w.
func NewCleaner(w io.Writer) *Cleaner {
	return &Cleaner{filter{w: w, step: clean}}
}

// Write cleans p and writes the result. An error is that of the writer below;
// the count is then of bytes in p that went through before it.
func (c *Cleaner) Write(p []byte) (int, error) { return c.f.Write(p) }

// Close writes what was held back. It does not close the writer below. Later
// writes fail with io.ErrClosedPipe.
func (c *Cleaner) Close() error { return c.f.finish("") }

// clean is the step of Clean and Cleaner.
func clean(dst, src []byte, final bool) ([]byte, int) {
	i := 0
	for i < len(src) {
		start := i
		for i < len(src) && (printable(src[i]) || src[i] == '\n' || src[i] == '\t') {
			i++
		}
		dst = append(dst, src[start:i]...)
		if i == len(src) {
			break
		}
		if src[i] == '\r' {
			if i+1 == len(src) && !final {
				break
			}
			if i+1 == len(src) || src[i+1] != '\n' {
				dst = append(dst, `\r`...)
			}
			i++
			continue
		}
		var n int
		if dst, n = appendRune(dst, src[i:], final); n == 0 {
			break
		}
		i += n
	}
	return dst, i
}
