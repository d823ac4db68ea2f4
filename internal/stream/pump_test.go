package stream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

func TestPumpCopiesToTheEnd(t *testing.T) {
	want := strings.Repeat("0123456789", 20_000)
	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r }, "half": iotest.HalfReader, "data with EOF": iotest.DataErrReader,
	} {
		var got bytes.Buffer
		n, err := Pump(&got, wrap(strings.NewReader(want)), nil)
		if n != int64(len(want)) || err != nil || got.String() != want {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
}

func TestPumpSaysWhichEndFailed(t *testing.T) {
	broken := errors.New("broken")
	n, err := Pump(io.Discard, io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(broken)), nil)
	if n != 3 || !errors.Is(err, broken) || err.Error() != "cannot read: broken" {
		t.Errorf("%d, %v", n, err)
	}
	n, err = Pump(&limitedWriter{2, broken}, strings.NewReader("abc"), nil)
	if n != 2 || !errors.Is(err, broken) || err.Error() != "cannot write: broken" {
		t.Errorf("%d, %v", n, err)
	}
	n, err = Pump(&limitedWriter{2, nil}, strings.NewReader("abc"), nil)
	if n != 2 || !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("%d, %v", n, err)
	}
	if _, err = Pump(io.Discard, emptyReader{}, nil); !errors.Is(err, io.ErrNoProgress) {
		t.Error(err)
	}
}

type emptyReader struct{}

func (emptyReader) Read([]byte) (int, error) { return 0, nil }

// countingReader counts what was taken from it.
type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

func TestSlowReaderHoldsTheProgramBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &countingReader{r: yes(1 << 30)}
		r, w := io.Pipe()
		go Pump(w, src, nil)
		synctest.Wait() // the pump is stuck in its first write
		if src.n != pumpSize {
			t.Errorf("took %d bytes, nobody reads", src.n)
		}
		io.ReadFull(r, make([]byte, pumpSize+1))
		synctest.Wait()
		if src.n != 2*pumpSize {
			t.Errorf("took %d bytes for one byte more than a buffer", src.n)
		}
		r.Close()
	})
}

func TestIdleClockFiresWhenNothingMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		a := NewActivity()
		r, w := io.Pipe()
		go Pump(io.Discard, r, a)
		go func() {
			for range 3 {
				time.Sleep(9 * time.Second)
				w.Write([]byte("x"))
			}
		}()
		if !a.Wait(t.Context(), 10*time.Second) {
			t.Error("context ended")
		}
		if took := time.Since(start); took != 37*time.Second {
			t.Errorf("fired after %v", took)
		}
		w.Close()
	})
}

func TestIdleClockCountsASlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		a := NewActivity()
		r, w := io.Pipe()
		go Pump(w, strings.NewReader("x"), a)
		go func() {
			time.Sleep(5 * time.Second)
			r.Read(make([]byte, 1)) // the write ends here: a byte moved
		}()
		a.Wait(t.Context(), 10*time.Second)
		if took := time.Since(start); took != 15*time.Second {
			t.Errorf("fired after %v", took)
		}
	})
}

func TestIdleClockEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, idle := range []time.Duration{0, -1, time.Hour} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if NewActivity().Wait(ctx, idle) {
				t.Errorf("idle %v fired", idle)
			}
			cancel()
		}
	})
}
