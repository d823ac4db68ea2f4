package frame

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// slowly is a reader that takes longer than a holder in the background gets.
type slowly struct{ bytes.Buffer }

func (s *slowly) Write(p []byte) (int, error) {
	time.Sleep(drainTime * 6 / 5)
	return s.Buffer.Write(p)
}

func TestAllThatWasWrittenBeforeTheEndIsDelivered(t *testing.T) {
	for name, c := range map[string]struct {
		rounds, size int
		holder       bool // the pipe stays open
		dst          func() (io.Writer, *bytes.Buffer)
	}{
		"pipe closed":            {300, 300_000, false, buffer},
		"pipe held":              {3, 300_000, true, buffer},
		"pipe held, slow reader": {1, 200_000, true, func() (io.Writer, *bytes.Buffer) { s := &slowly{}; return s, &s.Buffer }},
	} {
		for range c.rounds {
			r, w := pipe(t)
			w2, got := c.dst()
			ended, done := make(chan struct{}), make(chan struct{})
			go func() { defer close(done); copyUntil(w2, r, ended) }()
			if _, err := w.Write(make([]byte, c.size)); err != nil {
				t.Fatal(err)
			}
			if !c.holder {
				w.Close()
			}
			close(ended)
			<-done
			if got.Len() != c.size {
				t.Fatalf("%s: %d of %d bytes came", name, got.Len(), c.size)
			}
			r.Close()
			w.Close()
		}
	}
}

func buffer() (io.Writer, *bytes.Buffer) { b := &bytes.Buffer{}; return b, b }

func TestEndlessWriterInTheBackgroundIsCutOff(t *testing.T) {
	r, w := pipe(t)
	go func() {
		for block := make([]byte, 4096); ; {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}()
	var got bytes.Buffer
	ended := make(chan struct{})
	close(ended)
	copyUntil(&got, r, ended)
	if got.Len() > drainBytes+pumpSize {
		t.Errorf("%d bytes were taken after the end", got.Len())
	}
}

func TestReaderThatFailsDoesNotBlockTheProgram(t *testing.T) {
	r, w := pipe(t)
	var calls atomic.Int32
	done := make(chan struct{})
	go func() {
		defer close(done)
		copyUntil(writerFunc(func([]byte) (int, error) { calls.Add(1); return 0, errors.New("gone") }), r, make(chan struct{}))
	}()
	if _, err := w.Write(make([]byte, 1_000_000)); err != nil {
		t.Fatal(err)
	}
	w.Close()
	<-done
	if calls.Load() != 1 {
		t.Errorf("a reader that failed was called %d times", calls.Load())
	}
}

// The program may have ended before its last output turns out to be unwanted.
func TestOutputThatNobodyTookIsNotDelivered(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
	}{{"taken", nil}, {"refused", errors.New("disk full")}} {
		s, err := openStreams(box.Command{}, box.Streams{Stdout: writerFunc(func(p []byte) (int, error) { return len(p), c.err })}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.guest[1].WriteString("hello"); err != nil {
			t.Fatal(err)
		}
		s.closeGuest()
		s.pumpOutput()
		if got, want := s.drain(t.Context()), c.err == nil; got != want {
			t.Errorf("%s: delivered is %v", c.name, got)
		}
		s.close()
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
