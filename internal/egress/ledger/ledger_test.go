package ledger

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/hostname"
)

// again opens the file of a ledger once more, as the next gateway does. The one
// before was killed: nothing of it was closed.
func again(t *testing.T, f *os.File) (*Ledger, []Name) {
	t.Helper()
	own, err := host.Dup(f)
	if err != nil {
		t.Fatal(err)
	}
	l, names, err := Open(own)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, names
}

func file(t *testing.T, names string) *os.File {
	t.Helper()
	f, err := Memory([]byte(names))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestWhatIsSpentStaysSpentForTheNextGateway(t *testing.T) {
	f := file(t, "")
	l, _ := again(t, f)
	if !l.Spend("", 60, 5, 100, 0) || !l.Spend("hosts[0]", 10, 0, 15, 0) || !l.Spend("hosts[1]", 1, 1, 1, 1) {
		t.Fatal("what is allowed is refused")
	}
	if l.Spend("", 41, 0, 100, 0) || l.Spend("hosts[0]", 6, 0, 15, 0) {
		t.Error("more than is allowed is spent")
	}
	next, _ := again(t, f)
	if s, r := next.Spent(""); s != 60 || r != 5 {
		t.Errorf("%d sent, %d received", s, r)
	}
	if next.Spend("", 41, 0, 100, 0) || !next.Spend("", 40, 0, 100, 0) || next.Spend("", 1, 0, 100, 0) {
		t.Error("the box's own budget is another than before")
	}
	if next.Spend("hosts[0]", 6, 0, 15, 0) || !next.Spend("hosts[0]", 5, 0, 15, 0) || next.Spend("hosts[1]", 0, 1, 1, 1) {
		t.Error("an entry's budget is another than before")
	}
}

func TestTokensComeBackWithTimeAndNotWithAGateway(t *testing.T) {
	f := file(t, "")
	l, _ := again(t, f)
	now := time.Unix(1_800_000_000, 0)
	take := func(l *Ledger, rule string) (n int) {
		l.now = func() time.Time { return now }
		for l.Take(rule, 3, time.Minute) {
			n++
		}
		return n
	}
	if n := take(l, ""); n != 3 {
		t.Errorf("%d tokens at first", n)
	}
	take(l, "a rule")
	next, _ := again(t, f)
	if n := take(next, "") + take(next, "a rule"); n != 0 {
		t.Errorf("%d tokens for the next gateway", n)
	}
	now = now.Add(41 * time.Second)
	if n := take(next, ""); n != 2 {
		t.Errorf("%d tokens after two thirds of a minute", n)
	}
	now = now.Add(-24 * time.Hour) // the clock is set back: none now, and no day without any
	if n := take(next, ""); n != 0 {
		t.Errorf("%d tokens by a clock that went back", n)
	}
	now = now.Add(time.Minute)
	if n := take(next, ""); n != 3 {
		t.Errorf("%d tokens a minute after the clock was set", n)
	}
	if !next.Take("", 0, 0) {
		t.Error("no limit is one")
	}
}

func TestNamesAreKnownToTheNextGateway(t *testing.T) {
	f := file(t, "300 first.example.com\n")
	l, names := again(t, f)
	if len(names) != 1 || names[0] != (Name{"first.example.com", 300}) {
		t.Fatalf("it begins with %v", names)
	}
	for i := range 3 {
		if err := l.Note(Name{hostname.Name(fmt.Sprintf("n%d.example.com", i)), uint32(400 + i)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.WriteAt([]byte("500 half.exam"), l.end); err != nil { // killed while it wrote
		t.Fatal(err)
	}
	next, names := again(t, f)
	if len(names) != 4 || names[3] != (Name{"n2.example.com", 402}) {
		t.Errorf("%v", names)
	}
	if err := next.Note(Name{"next.example.com", 501}); err != nil {
		t.Fatal(err)
	}
	text, err := Names(f)
	if want := "300 first.example.com\n400 n0.example.com\n401 n1.example.com\n402 n2.example.com\n501 next.example.com\n"; err != nil || string(text) != want {
		t.Errorf("%q (%v)", text, err)
	}
}

// Names that a box is told again take no more room, but for a place that had another
// name meanwhile.
func TestWhatIsWrittenDownIsNotWrittenAgain(t *testing.T) {
	f := file(t, "300 a.example.com\n")
	l, _ := again(t, f)
	for _, n := range []Name{{"a.example.com", 300}, {"b.example.com", 301}, {"a.example.com", 300}, {"b.example.com", 301}, {"c.example.com", 300}, {"c.example.com", 300}, {"a.example.com", 300}} {
		if err := l.Note(n); err != nil {
			t.Fatal(err)
		}
	}
	text, err := Names(f)
	if want := "300 a.example.com\n301 b.example.com\n300 c.example.com\n300 a.example.com\n"; err != nil || string(text) != want {
		t.Errorf("%q (%v)", text, err)
	}
}

func TestAFullLedgerRefuses(t *testing.T) {
	f := file(t, "")
	l, _ := again(t, f)
	for i := 1; i < slots; i++ {
		if !l.Spend(fmt.Sprint("rule", i), 1, 0, 1, 0) {
			t.Fatalf("rule %d is refused", i)
		}
	}
	if l.Spend("one more", 1, 0, 1, 0) || l.Take("one more", 1, time.Second) {
		t.Error("a rule without a slot may be used")
	}
	if l.Spend("rule7", 1, 0, 1, 0) || !l.Spend("rule7", 1, 0, 2, 0) {
		t.Error("a rule with a slot is another than before")
	}
	long := hostname.Name(strings.Repeat("a23456789.", 25) + "com")
	var err error
	for n := 0; err == nil && n < lines; n++ {
		err = l.Note(Name{long, uint32(300 + n)})
	}
	if st, serr := f.Stat(); !errors.Is(err, ErrFull) || serr != nil || st.Size() > Size {
		t.Errorf("%v, %d bytes", err, st.Size())
	}
}

func TestAfterItsEndNothingIsSpent(t *testing.T) {
	l, err := New()
	if err != nil {
		t.Fatal(err)
	}
	if !l.Spend("", 1, 1, 1, 1) || l.Note(Name{"a.example.com", 300}) != nil {
		t.Error("a ledger without a file does not count")
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if l.Spend("", 0, 0, 0, 0) || l.Take("x", 1, time.Second) || l.Note(Name{"b.example.com", 301}) == nil {
		t.Error("something is spent after the end")
	}
}

func TestWhatIsNoLedgerIsRefused(t *testing.T) {
	for what, do := range map[string]func(f *os.File) error{
		"short":     func(f *os.File) error { return f.Truncate(counts - 1) },
		"long":      func(f *os.File) error { return f.Truncate(Size + 1) },
		"of others": func(f *os.File) error { _, err := f.WriteAt([]byte("\x7fELF"), 0); return err },
		"no place":  func(f *os.File) error { _, err := f.WriteAt([]byte("x a.example.com\n"), counts); return err },
		"no name":   func(f *os.File) error { _, err := f.WriteAt([]byte("300 a..b\n"), counts); return err },
	} {
		f := file(t, "")
		if err := do(f); err != nil {
			t.Fatal(err)
		}
		own, err := host.Dup(f)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := Open(own); err == nil {
			t.Errorf("%s: it is a ledger", what)
		}
	}
	if f, err := Memory([]byte("300 \x1b[2J\n")); err == nil {
		f.Close()
		t.Error("a copy begins with what is no name")
	}
}

func TestAFolderKeepsEachBoxsAsLongAsTheBox(t *testing.T) {
	d, err := OpenFolder(t.TempDir() + "/network")
	if err != nil {
		t.Fatal(err)
	}
	a, b := box.NewID(), box.NewID()
	for _, id := range []box.ID{a, b} {
		f, err := d.File(id, []byte("300 a.example.com\n"))
		if err != nil {
			t.Fatal(err)
		}
		l, _ := again(t, f)
		l.Spend("", 7, 0, 0, 0)
		f.Close()
	}
	f, err := d.File(a, []byte("300 other.example.com\n")) // only a new one begins with names
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	l, names := again(t, f)
	if s, _ := l.Spent(""); s != 7 || len(names) != 1 || names[0].Name != "a.example.com" {
		t.Errorf("%d sent, names %v", s, names)
	}
	if err := d.Sweep(func(id box.ID) bool { return id == a }); err != nil {
		t.Fatal(err)
	}
	if all, err := os.ReadDir(d.dir); err != nil || len(all) != 1 || all[0].Name() != string(a) {
		t.Errorf("%v (%v)", all, err)
	}
	for range 2 {
		if err := d.Remove(a); err != nil {
			t.Error(err)
		}
	}
	if err := os.Symlink("/etc/passwd", d.path(b)); err != nil {
		t.Fatal(err)
	}
	if f, err := d.File(b, nil); !errors.Is(err, unix.ELOOP) {
		t.Errorf("%v %v", f, err)
	}
}

// What is too much for one rule is counted under none.
func TestWhatIsRefusedIsSpentNowhere(t *testing.T) {
	l, err := New()
	if err != nil {
		t.Fatal(err)
	}
	bounds := []Bound{{"", 100, 0}, {"web", 50, 7}, {"web/read", 0, 0}, {"web/say", 20, 0}}
	for _, c := range []struct {
		sent, received int64
		want           int
	}{{15, 1, -1}, {6, 0, 3}, {5, 7, 1}, {5, 6, -1}, {1, 0, 3}, {200, 0, 0}} {
		if got := l.SpendAll(c.sent, c.received, bounds...); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
	for rule, want := range map[string][2]int64{"": {20, 7}, "web": {20, 7}, "web/say": {20, 7}, "web/read": {0, 0}} {
		if sent, received := l.Spent(rule); sent != want[0] || received != want[1] {
			t.Errorf("%q: %d, %d; want %v", rule, sent, received, want)
		}
	}
}
