package stream

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// yes reads as what yes(1) prints, size bytes of it.
func yes(size int64) io.Reader { return io.LimitReader(yesReader{}, size) }

type yesReader struct{}

func (yesReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = "y\n"[i%2]
	}
	return len(p), nil
}

func TestYesTakesNoMemory(t *testing.T) {
	const size = 200 << 20
	kept := NewCapture(64 << 10)
	ring := NewRing(64 << 10)
	live := NewCleaner(io.Discard)
	session := NewInteractive(io.Discard)
	budget := NewBudget(size-1, nil)
	out := budget.Writer(io.MultiWriter(kept, ring, live, session))

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n, err := Pump(out, yes(2*size), NewActivity())
	runtime.ReadMemStats(&after)

	if n != size-1 || !errors.Is(err, ErrOutputLimit) {
		t.Errorf("Pump = %d, %v", n, err)
	}
	if kept.Total() != size-1 || !kept.Truncated() || len(kept.Bytes()) != 64<<10 || ring.End() != size-1 {
		t.Errorf("kept %d of %d, ring at %d", len(kept.Bytes()), kept.Total(), ring.End())
	}
	if grew := after.TotalAlloc - before.TotalAlloc; grew > 1<<20 {
		t.Errorf("allocated %d bytes in total", grew)
	}
}

func TestHostileStreamTakesNoMemory(t *testing.T) {
	for _, piece := range []string{"\x1b[1;", "\x1b]52;c;", "\xff", "\u202e", "\xf0\x9f", "\r", "\x1b"} {
		p := bytes.Repeat([]byte(piece), 1<<20)
		c, i := NewCleaner(io.Discard), NewInteractive(io.Discard)
		c.Write(p[:1])
		i.Write(p[:1])
		allocs := testing.AllocsPerRun(1, func() { c.Write(p); i.Write(p) })
		// Parameters of a short sequence may be copied; nothing piles up.
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		c.Write(p)
		i.Write(p)
		runtime.GC()
		runtime.ReadMemStats(&after)
		if grew := int64(after.HeapAlloc) - int64(before.HeapAlloc); grew > 64<<10 {
			t.Errorf("%q: heap grew by %d bytes (%v allocations)", piece, grew, allocs)
		}
		runtime.KeepAlive(c)
		runtime.KeepAlive(i)
	}
}

func TestCaptureKeepsTheHead(t *testing.T) {
	tests := []struct {
		limit     int64
		writes    []string
		kept      string
		truncated bool
	}{
		{10, nil, "", false},
		{10, []string{"abc", "def"}, "abcdef", false},
		{6, []string{"abc", "def"}, "abcdef", false},
		{5, []string{"abc", "def"}, "abcde", true},
		{0, []string{"a"}, "", true},
		{-1, []string{"a"}, "", true},
		{3, []string{"a€"}, "a", true},                           // the cut splits a character
		{2, []string{"é\xff"}, "é", true},                        // it does not
		{2, []string{"a\xe2"}, "a\xe2", false},                   // the program did, not the cut
		{3, []string{"\xff\xfe\xfd", "x"}, "\xff\xfe\xfd", true}, // no text at all
	}
	for _, tt := range tests {
		c := NewCapture(tt.limit)
		total := 0
		for _, s := range tt.writes {
			io.WriteString(c, s)
			total += len(s)
			if cap(c.kept) > int(max(tt.limit, 0)) {
				t.Errorf("%q: room for %d bytes", tt.writes, cap(c.kept))
			}
		}
		if got := string(c.Bytes()); got != tt.kept || c.Truncated() != tt.truncated || c.Total() != int64(total) {
			t.Errorf("limit %d, %q: kept %q, truncated %v, total %d", tt.limit, tt.writes, got, c.Truncated(), c.Total())
		}
	}
}

func TestCaptureTakesMemoryAsBytesArrive(t *testing.T) {
	c := NewCapture(1 << 40)
	io.WriteString(c, "a")
	if cap(c.kept) > 4096 {
		t.Errorf("room for %d bytes", cap(c.kept))
	}
}

func TestBudgetDeliversExactlyTheLimit(t *testing.T) {
	var calls int
	var out, errOut strings.Builder
	b := NewBudget(10, func() { calls++ })
	stdout, stderr := b.Writer(&out), b.Writer(&errOut)
	steps := []struct {
		w     io.Writer
		p     string
		n     int
		err   error
		calls int
	}{
		{stdout, "12345", 5, nil, 0},
		{stderr, "678", 3, nil, 0},
		{stdout, "", 0, nil, 0},
		{stdout, "90", 2, nil, 0}, // exactly the limit
		{stdout, "", 0, nil, 0},
		{stderr, "x", 0, ErrOutputLimit, 1},
		{stdout, "yy", 0, ErrOutputLimit, 1},
	}
	for i, s := range steps {
		if n, err := io.WriteString(s.w, s.p); n != s.n || err != s.err || calls != s.calls {
			t.Errorf("step %d: %d, %v, %d calls", i, n, err, calls)
		}
	}
	if out.String() != "1234590" || errOut.String() != "678" {
		t.Errorf("delivered %q and %q", out.String(), errOut.String())
	}
	if stdout.Offered() != 9 || stderr.Offered() != 4 || !b.Exceeded() {
		t.Errorf("offered %d and %d", stdout.Offered(), stderr.Offered())
	}
}

func TestBudgetCutsTheWriteThatDoesNotFit(t *testing.T) {
	var out strings.Builder
	w := NewBudget(4, nil).Writer(&out)
	if n, err := io.WriteString(w, "123456"); n != 4 || err != ErrOutputLimit || out.String() != "1234" {
		t.Errorf("%d, %v, %q", n, err, out.String())
	}
}

func TestBudgetIsSharedByConcurrentStreams(t *testing.T) {
	const limit, streams = 100_003, 8
	var calls, delivered [streams]int64 // one writer each
	var called sync.Mutex
	b := NewBudget(limit, func() { called.Lock(); calls[0]++; called.Unlock() })
	var wg sync.WaitGroup
	for i := range streams {
		c := NewCapture(0)
		w := b.Writer(c)
		wg.Go(func() {
			for {
				if _, err := io.WriteString(w, "seven b"); err != nil {
					break
				}
			}
			delivered[i] = c.Total()
		})
	}
	wg.Wait()
	var sum int64
	for _, n := range delivered {
		sum += n
	}
	if sum != limit || calls[0] != 1 {
		t.Errorf("delivered %d bytes, %d calls", sum, calls[0])
	}
}

func TestBudgetTellsBeforeABlockedReader(t *testing.T) {
	exceeded := make(chan bool)
	r, w := io.Pipe() // nobody reads
	b := NewBudget(1, func() { close(exceeded) })
	done := make(chan error)
	go func() {
		_, err := b.Writer(w).Write([]byte("ab"))
		done <- err
	}()
	<-exceeded
	// Another stream is not held up either.
	if _, err := b.Writer(io.Discard).Write([]byte("c")); err != ErrOutputLimit {
		t.Error(err)
	}
	r.Close()
	if err := <-done; err != io.ErrClosedPipe {
		t.Error(err)
	}
}

func TestRingGivesWhatCameSince(t *testing.T) {
	r := NewRing(5)
	tests := []struct {
		write      string
		offset     int64
		p          string
		next, lost int64
	}{
		{"", 0, "", 0, 0},
		{"abc", 0, "abc", 3, 0},
		{"", 2, "c", 3, 0},
		{"", 3, "", 3, 0},
		{"", 9, "", 3, 0},
		{"defg", 0, "cdefg", 7, 2},
		{"", -3, "cdefg", 7, 2},
		{"", 4, "efg", 7, 0},
		{"0123456789abcdef", 7, "bcdef", 23, 11},
		{"g", 20, "defg", 24, 0},
	}
	for i, tt := range tests {
		io.WriteString(r, tt.write)
		p, next, lost := r.Since(tt.offset)
		if string(p) != tt.p || next != tt.next || lost != tt.lost {
			t.Errorf("step %d: %q, %d, %d", i, p, next, lost)
		}
	}
}

func FuzzRingAgreesWithTheWholeStream(f *testing.F) {
	f.Add([]byte("some stream of bytes"), []byte{0, 3, 9}, uint8(7), int64(5))
	f.Add([]byte("longer than the ring"), []byte{200}, uint8(3), int64(0))
	f.Fuzz(func(t *testing.T, p, cuts []byte, size uint8, offset int64) {
		r := NewRing(int(size))
		inPieces(t, r, p, cuts)
		got, next, lost := r.Since(offset)
		from := min(max(offset, 0), int64(len(p)))
		want := p[from:]
		want = want[max(0, len(want)-max(int(size), 1)):]
		if !bytes.Equal(got, want) || next != int64(len(p)) || lost != int64(len(p))-from-int64(len(want)) {
			t.Fatalf("%q, %d, %d; want %q", got, next, lost, want)
		}
		if cap(r.buf) > max(int(size), 1) {
			t.Fatalf("room for %d bytes", cap(r.buf))
		}
	})
}
