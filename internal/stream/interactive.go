package stream

import "io"

// Term is the TERM whose every sequence an ordinary program needs passes
// [Interactive]. It is in ncurses-base, so it is present wherever ncurses is.
// With TERM=xterm programs also push window titles and ask for the terminal's
// version; those requests would be shown as text.
const Term = "screen-256color"

// Interactive is a writer for a live session in a terminal: it passes the
// sequences that a shell, a pager and an editor need to draw, and shows
// everything else as [Clean] does. It passes:
//
//   - \n \t \r \b, and shift in and out (0x0e, 0x0f)
//   - ESC 7 8 = > E M, and ESC ( or ) with B or 0 (character sets)
//   - CSI ... m (colours and the like)
//   - CSI with A B C D E F G H Z a cursor move, f d, L M P @ X S T (insert,
//     delete, scroll), J (0 to 2), K, r, s, u
//   - CSI h and l for the modes 4, 34, ?1, ?7, ?25, ?1049 and ?2004
//
// Numbers have at most five digits, since some terminals loop as often as a
// sequence says (CVE-2012-2738). CSI 3 J is not passed: what the caller had
// scrolled away is not the box's to erase. Nothing that passes makes a terminal
// answer, talk to the clipboard, the window system or a file, or change what
// the keyboard sends beyond the two standard cursor key and keypad modes.
//
// A sequence that is not on the list loses its power by having its escape
// character shown as \x1b; the rest of it is ordinary text, whether or not it
// has an end. So does one that is longer than 64 bytes. Interactive holds back
// at most that much and uses about 20 KiB whatever comes. It is not safe for
// concurrent use, and nothing else may write to the terminal meanwhile.
//
// See ECMA-48 and the xterm control sequences (ctlseqs) for what these do.
type Interactive struct {
	// Bell passes the bell character on. Otherwise it is shown. Set it before
	// the first write.
	Bell bool

	f    filter
	used bool // something that outlives its own write was passed
	alt  bool // the alternate screen is on
}

// NewInteractive returns an Interactive that writes to w.
func NewInteractive(w io.Writer) *Interactive {
	i := &Interactive{}
	i.f = filter{w: w, step: i.filter}
	return i
}

// Write filters p and writes the result. An error is that of the writer below;
// the count is then of bytes in p that went through before it.
func (i *Interactive) Write(p []byte) (int, error) { return i.f.Write(p) }

// Close shows what was held back and takes back every mode that the box may
// have left behind: alternate screen, colours, character set, hidden cursor,
// scroll region, insert mode, key modes. A stream without any sequence gets no
// such ending. Close does not close the writer below. Later writes fail with
// io.ErrClosedPipe.
func (i *Interactive) Close() error {
	// What is held back is an unfinished sequence, which Close will show: it
	// cannot change alt or used.
	tail := ""
	if i.alt {
		tail = "\x1b[?1049l"
	}
	if i.used {
		tail += restore
	}
	return i.f.finish(tail)
}

// restore sets back what the allowed sequences can change. Resetting the
// scroll region moves the cursor to the top, hence the save and restore.
const restore = "\x1b7\x1b[r\x1b8" + "\x0f\x1b(B\x1b)B\x1b[m" + "\x1b[4l\x1b[?1l\x1b>\x1b[?7h\x1b[?25h\x1b[?2004l"

const (
	bell     = 0x07
	shiftOut = 0x0e
	shiftIn  = 0x0f
	escape   = 0x1b
)

// filter is the step of Interactive.
func (i *Interactive) filter(dst, src []byte, final bool) ([]byte, int) {
	at := 0
	for at < len(src) {
		n := 1
		switch c := src[at]; {
		case printable(c), c == '\n', c == '\t', c == '\r', c == '\b', c == bell && i.Bell:
			dst = append(dst, c)
		case c == shiftOut, c == shiftIn:
			i.used = true
			dst = append(dst, c)
		case c == escape:
			var v verdict
			n, v = sequence(src[at:])
			switch {
			case v == allowed:
				i.note(src[at : at+n])
				dst = append(dst, src[at:at+n]...)
			case v == unfinished && !final:
				return dst, at
			default:
				n = 1
				dst = appendByte(dst, escape)
			}
		default:
			if dst, n = appendRune(dst, src[at:], final); n == 0 {
				return dst, at
			}
		}
		at += n
	}
	return dst, at
}

// note keeps track of what Close has to take back.
func (i *Interactive) note(seq []byte) {
	i.used = true
	if p, ok := privateModes(seq); ok {
		for _, mode := range p {
			if mode == "1049" {
				i.alt = seq[len(seq)-1] == 'h'
			}
		}
	}
}
