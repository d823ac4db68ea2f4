package terminal

import (
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// fixture is a progress line on a real terminal, with time in the test's hand.
type fixture struct {
	*Progress
	t               *testing.T
	master, replica *os.File
	start           time.Time
	ticks           chan time.Time
	stops           int
}

func newFixture(t *testing.T, cols uint16) *fixture {
	f := &fixture{t: t, start: time.Now(), ticks: make(chan time.Time)}
	f.master, f.replica = openPTY(t, box.WindowSize{Rows: 24, Cols: cols})
	f.Progress = newProgress(f.replica, f.start, f.ticks, func() { f.stops++ })
	t.Cleanup(f.Stop)
	return f
}

// at draws as a tick at this time after the start does, without the goroutine.
func (f *fixture) at(elapsed time.Duration) { f.draw(elapsed) }

// want checks what the terminal got since the last call. A mark written after
// it shows that there is nothing more.
func (f *fixture) want(want string) {
	f.t.Helper()
	io.WriteString(f.replica, "|")
	var got []byte
	for len(got) == 0 || got[len(got)-1] != '|' {
		p := make([]byte, 1)
		if _, err := f.master.Read(p); err != nil {
			f.t.Fatalf("read %q: %v", got, err)
		}
		got = append(got, p...)
	}
	if got := string(got[:len(got)-1]); got != want {
		f.t.Errorf("terminal got %q, want %q", got, want)
	}
}

func TestProgressAppearsAfterOneSecond(t *testing.T) {
	f := newFixture(t, 80)
	f.Phase("starting box")
	f.at(0)
	f.at(999 * time.Millisecond)
	f.want("")
	f.at(time.Second)
	f.want("\r\x1b[K[1s] starting box")
	f.at(1900 * time.Millisecond) // nothing new to say
	f.want("")
	f.Phase("running")
	f.at(75 * time.Second)
	f.want("\r\x1b[K[1m15s] running")
	f.Stop()
	f.want("\r\x1b[K")
}

func TestProgressFollowsItsClock(t *testing.T) {
	f := newFixture(t, 80)
	for _, elapsed := range []time.Duration{0, 999, 1000, 1999, 2000} {
		f.ticks <- f.start.Add(elapsed * time.Millisecond)
	}
	const want = "\r\x1b[K[1s]\r\x1b[K[2s]"
	if got := read(t, f.master, len(want)); got != want {
		t.Errorf("terminal got %q", got)
	}
}

func TestProgressWritesNothingAfterStop(t *testing.T) {
	f := newFixture(t, 80)
	f.Stop()
	f.Stop()
	select {
	case f.ticks <- f.start.Add(time.Hour):
		t.Error("ticks are still handled")
	default:
	}
	f.draw(time.Hour)
	f.Phase("late")
	io.WriteString(f.Writer(io.Discard), "x")
	f.want("")
	if f.stops != 1 {
		t.Errorf("clock stopped %d times", f.stops)
	}
}

func TestProgressGivesWayToOutput(t *testing.T) {
	f := newFixture(t, 80)
	w := f.Writer(f.replica)
	io.WriteString(w, "early\n")
	f.want("early\r\n")
	f.at(time.Second)
	f.want("\r\x1b[K[1s]")
	io.WriteString(w, "")
	f.want("")
	io.WriteString(w, "half a ")
	f.want("\r\x1b[Khalf a ")
	f.at(2 * time.Second)
	f.want("") // it would land behind "half a "
	io.WriteString(w, "line\n")
	f.want("line\r\n")
	f.at(3 * time.Second)
	f.want("\r\x1b[K[3s]")
}

func TestProgressStaysOnOneLine(t *testing.T) {
	f := newFixture(t, 20)
	for phase, want := range map[string]string{
		"unpacking 1234567890": "[1s] unpacking 1234",
		"名前名前名前名前":             "[1s] 名前名前名前名",
		"a\nb\tc":              "[1s] a b c",
		"\x1b]0;t\a\u202e":     `[1s] \x1b]0;t\x07\u`,
		"exactly fit in":       "[1s] exactly fit in",
		"exactly fits in":      "[1s] exactly fits i",
	} {
		f.Phase(phase)
		f.at(time.Second)
		f.want("\r\x1b[K" + want)
	}
}

func TestProgressIsSilentWithoutATerminal(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, f := range []*os.File{w, nil} {
		ticks := make(chan time.Time, 1)
		ticks <- time.Now()
		p := newProgress(f, time.Now().Add(-time.Hour), ticks, func() {})
		p.Phase("starting box")
		if out := p.Writer(w); out != io.Writer(w) {
			t.Error("output takes a detour")
		}
		p.Stop()
		p.Stop()
	}
	w.Close()
	if got, err := io.ReadAll(r); len(got) != 0 || err != nil {
		t.Errorf("pipe got %q, %v", got, err)
	}
}

func TestProgressWithoutASizeAssumesEightyColumns(t *testing.T) {
	f := newFixture(t, 0)
	f.Phase("starting box")
	f.at(time.Second)
	f.want("\r\x1b[K[1s] starting box")
}

func TestProgressIsSafeForConcurrentUse(t *testing.T) {
	f := newFixture(t, 80)
	go io.Copy(io.Discard, f.master)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			w := f.Writer(f.replica)
			for n := range 100 {
				f.Phase(string(rune('a' + n%26)))
				io.WriteString(w, "line\n")
				f.draw(time.Duration(n) * time.Second)
				if i == 0 && n == 50 {
					f.Stop()
				}
			}
		})
	}
	wg.Wait()
}

func TestRealClockProgressStops(t *testing.T) {
	_, replica := openPTY(t, box.WindowSize{Rows: 24, Cols: 80})
	p := NewProgress(replica)
	p.Stop()
	NewProgress(nil).Stop()
}
