package stream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCleanShowsWhatIsNotText(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"plain text", "hello, wörld — 日本語 עברית\n\tend", "hello, wörld — 日本語 עברית\n\tend"},
		{"backslash stays", `C:\new \x1b \\`, `C:\new \x1b \\`},
		{"C0", "\x00\x01\a\b\v\f\x0e\x1a\x1b\x1f", `\x00\x01\x07\x08\x0b\x0c\x0e\x1a\x1b\x1f`},
		{"DEL", "a\x7fb", `a\x7fb`},
		{"C1 in UTF-8", "\u0080\u009b31m\u009f", `\u{80}\u{9b}31m\u{9f}`},
		{"C1 raw", "\x80\x9b31m\x9f", `\x80\x9b31m\x9f`},
		{"CR LF", "a\r\nb\r\n", "a\nb\n"},
		{"CR overwrites", "rm -rf /\rls      ", `rm -rf /\rls      `},
		{"CR CR LF", "a\r\r\n", "a\\r\n"},
		{"CR at end", "a\r", `a\r`},
		{"colour", "\x1b[31mred\x1b[0m", `\x1b[31mred\x1b[0m`},
		{"title", "\x1b]0;sudo\aafter", `\x1b]0;sudo\x07after`},
		{"clipboard, OSC 52", "\x1b]52;c;cm0gLXJmIC8K\x1b\\x", `\x1b]52;c;cm0gLXJmIC8K\x1b\x`},
		{"link, OSC 8", "\x1b]8;;http://evil\x1b\\bank\x1b]8;;\x1b\\", `\x1b]8;;http://evil\x1b\bank\x1b]8;;\x1b\`},
		{"title report", "\x1b[21t", `\x1b[21t`},
		{"DECRQSS", "\x1bP$q\"p\x1b\\", `\x1bP$q"p\x1b\`},
		{"paste end", "\x1b[201~rm -rf ~\n", "\\x1b[201~rm -rf ~\n"},
		{"unterminated OSC", "\x1b]0;never ends\nnext line", "\\x1b]0;never ends\nnext line"},
		{"unterminated CSI", "\x1b[31", `\x1b[31`},
		{"unterminated DCS in C1", "\u0090 then text", `\u{90} then text`},
		{"overlong", "\xc0\x9b[2J \xe0\x80\x9b", `\xc0\x9b[2J \xe0\x80\x9b`},
		{"surrogate", "\xed\xa0\x80", `\xed\xa0\x80`},
		{"beyond Unicode", "\xf4\x90\x80\x80", `\xf4\x90\x80\x80`},
		{"cut character", "a\xe2\x80", `a\xe2\x80`},
		{"cut character, text follows", "\xe2\x80a", `\xe2\x80a`},
		{"replacement character", "\ufffd", "\ufffd"},
		{"Trojan Source", "if a {\u202e }\u2066// check\u2069", `if a {\u{202e} }\u{2066}// check\u{2069}`},
		{"tag characters", "ok\U000e0069\U000e0067", `ok\u{e0069}\u{e0067}`},
		{"joined emoji", "👩\u200d💻", `👩\u{200d}💻`},
		{"variation selector", "❤\ufe0f", `❤\u{fe0f}`},
		{"combining mark", "e\u0301", "e\u0301"},
		{"spaces", "\u00a0\u2003\u3000", "\u00a0\u2003\u3000"},
		{"Arabic end of ayah", "\u06dd", "\u06dd"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Clean([]byte(tt.in)); got != tt.want {
				t.Errorf("Clean(%q) = %q, want %q", tt.in, got, tt.want)
			}
		})
	}
}

// hidden lists characters that must never reach a reader, by code point and
// not by property, so that it does not share a mistake with the code.
var hidden = [][2]rune{
	{0x00, 0x08}, {0x0b, 0x1f}, {0x7f, 0x9f}, {0xad, 0xad}, {0x34f, 0x34f}, {0x61c, 0x61c},
	{0x115f, 0x1160}, {0x17b4, 0x17b5}, {0x180b, 0x180f}, {0x200b, 0x200f}, {0x2028, 0x202e},
	{0x2060, 0x206f}, {0x2800, 0x2800}, {0x3164, 0x3164}, {0xd800, 0xf8ff}, {0xfdd0, 0xfdef}, {0xfe00, 0xfe0f},
	{0xfeff, 0xfeff}, {0xffa0, 0xffa0}, {0xfff0, 0xfffb}, {0xfffe, 0xffff}, {0x1bca0, 0x1bca3},
	{0x1d173, 0x1d17a}, {0x1fffe, 0x1ffff}, {0xe0000, 0xe0fff}, {0xf0000, 0x10ffff},
}

func isHidden(r rune) bool {
	for _, h := range hidden {
		if h[0] <= r && r <= h[1] {
			return true
		}
	}
	return false
}

func TestEveryHiddenCharacterIsShownByItsNumber(t *testing.T) {
	for r := rune(0x80); r <= utf8.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		got := Clean([]byte(string(r)))
		shown := got == fmt.Sprintf(`\u{%x}`, r)
		if isHidden(r) && !shown || !shown && got != string(r) {
			t.Errorf("Clean(%U) = %q", r, got)
		}
	}
}

func TestLettersOfLivingScriptsStay(t *testing.T) {
	const text = "Straße Ελληνικά русский עִבְרִית العربية हिन्दी বাংলা தமிழ் ไทย ភាសា ᠮᠣᠩᠭᠣᠯ 中文 かな 한국어 አማርኛ ±√∞ €𝒳 😀"
	if got := Clean([]byte(text)); got != text {
		t.Errorf("got %q", got)
	}
}

// checkClean fails unless out is something that Clean may return.
func checkClean(t *testing.T, out string) {
	t.Helper()
	if !utf8.ValidString(out) {
		t.Fatalf("not UTF-8: %q", out)
	}
	for _, r := range out {
		if isHidden(r) {
			t.Fatalf("%U in %q", r, out)
		}
	}
}

// inPieces writes p in pieces whose lengths are the bytes of cuts, plus one.
func inPieces(t *testing.T, w io.Writer, p, cuts []byte) {
	t.Helper()
	for i := 0; len(p) > 0; i++ {
		n := len(p)
		if len(cuts) > 0 {
			n = min(n, 1+int(cuts[i%len(cuts)]))
		}
		if m, err := w.Write(p[:n]); m != n || err != nil {
			t.Fatalf("Write = %d, %v, want %d", m, err, n)
		}
		p = p[n:]
	}
}

func FuzzCleanerGivesWhatCleanGives(f *testing.F) {
	for _, s := range attacks {
		f.Add([]byte(s), []byte{0})
		f.Add([]byte(s), []byte{1, 0, 6})
	}
	f.Fuzz(func(t *testing.T, p, cuts []byte) {
		want := Clean(p)
		checkClean(t, want)
		if again := Clean([]byte(want)); again != want {
			t.Fatalf("not idempotent: %q then %q", want, again)
		}
		if len(want) > 4*len(p) {
			t.Fatalf("%d bytes became %d", len(p), len(want))
		}
		var got strings.Builder
		c := NewCleaner(&got)
		inPieces(t, c, p, cuts)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if got.String() != want {
			t.Fatalf("in pieces %q, at once %q", got.String(), want)
		}
		checkNothingSwallowed(t, p, want)
	})
}

// checkNothingSwallowed fails unless all ASCII text of p is in out, in order.
func checkNothingSwallowed(t *testing.T, p []byte, out string) {
	t.Helper()
	rest := out
	for i, c := range p {
		if !printable(c) && c != '\n' && c != '\t' {
			continue
		}
		at := strings.IndexByte(rest, c)
		if at < 0 {
			t.Fatalf("byte %d (%q) of %q is missing from %q", i, c, p, out)
		}
		rest = rest[at+1:]
	}
}

func TestCleanerCutsAtEveryPlace(t *testing.T) {
	for _, s := range attacks {
		want := Clean([]byte(s))
		for i := range len(s) + 1 {
			var got strings.Builder
			c := NewCleaner(&got)
			io.WriteString(c, s[:i])
			io.WriteString(c, s[i:])
			c.Close()
			if got.String() != want {
				t.Errorf("%q cut at %d: %q, want %q", s, i, got.String(), want)
			}
		}
	}
}

func TestCleanerPassesTextOnAtOnce(t *testing.T) {
	var got strings.Builder
	io.WriteString(NewCleaner(&got), "password: ")
	if got.String() != "password: " {
		t.Errorf("got %q before Close", got.String())
	}
}

func TestFilterReportsTheWriterBelow(t *testing.T) {
	broken := errors.New("broken")
	w := &limitedWriter{left: 2 * chunkSize, err: broken}
	c := NewCleaner(w)
	n, err := c.Write(bytes.Repeat([]byte("a"), 10*chunkSize))
	if n != 2*chunkSize || err != broken {
		t.Errorf("Write = %d, %v", n, err)
	}
	if n, err := c.Write([]byte("a")); n != 0 || err != broken {
		t.Errorf("next Write = %d, %v", n, err)
	}
	if err := c.Close(); err != broken {
		t.Errorf("Close = %v", err)
	}
}

func TestClosedFilterRefusesWrites(t *testing.T) {
	c := NewCleaner(io.Discard)
	c.Write([]byte("a\r"))
	for range 2 {
		if err := c.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	}
	if _, err := c.Write([]byte("a")); err != io.ErrClosedPipe {
		t.Errorf("Write = %v", err)
	}
}

// limitedWriter takes so many bytes and then fails.
type limitedWriter struct {
	left int
	err  error
}

func (w *limitedWriter) Write(p []byte) (int, error) {
	if len(p) > w.left {
		return w.left, w.err
	}
	w.left -= len(p)
	return len(p), nil
}

func BenchmarkCleaner(b *testing.B) {
	for name, s := range map[string]string{"ASCII": "plain text of a program\n", "Han": "日本語のテキスト\n", "escapes": "\x1b[31mred\x1b[0m\n"} {
		b.Run(name, func(b *testing.B) {
			p := bytes.Repeat([]byte(s), 1000)
			c := NewCleaner(io.Discard)
			b.SetBytes(int64(len(p)))
			for b.Loop() {
				c.Write(p)
			}
		})
	}
}
