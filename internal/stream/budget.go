package stream

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
)

// ErrOutputLimit is what a write to a stream returns once the streams of its
// [Budget] together were given more bytes than the limit.
var ErrOutputLimit = errors.New("output limit reached")

// Budget is a number of bytes that several streams share. It is safe for
// concurrent use, and a stream that blocks does not hold up another.
type Budget struct {
	onExceeded func()
	mu         sync.Mutex
	left       int64
	exceeded   bool
}

// NewBudget returns a Budget of limit bytes; zero or less allows none.
// onExceeded, which may be nil, is called once, by the first write that does
// not fit, before that write delivers what still fits: a reader that stopped
// reading cannot keep a program alive. It must not block and must not write to
// a stream of this budget.
func NewBudget(limit int64, onExceeded func()) *Budget {
	return &Budget{left: max(limit, 0), onExceeded: onExceeded}
}

// Exceeded reports whether more bytes than the limit were offered. Exactly the
// limit is not more.
func (b *Budget) Exceeded() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.exceeded
}

// take returns how many of n bytes may be delivered.
func (b *Budget) take(n int64) int64 {
	b.mu.Lock()
	granted := min(n, b.left)
	b.left -= granted
	first := granted < n && !b.exceeded
	b.exceeded = b.exceeded || first
	b.mu.Unlock()
	if first && b.onExceeded != nil {
		b.onExceeded()
	}
	return granted
}

// Writer returns a stream that delivers to w what the budget allows.
func (b *Budget) Writer(w io.Writer) *BudgetWriter {
	return &BudgetWriter{budget: b, w: w}
}

// BudgetWriter is one stream of a [Budget].
type BudgetWriter struct {
	budget  *Budget
	w       io.Writer
	offered atomic.Int64
}

// Write delivers p, or as much of it as the budget allows and then returns
// [ErrOutputLimit]. Bytes that the writer below refuses are spent all the same.
func (w *BudgetWriter) Write(p []byte) (int, error) {
	w.offered.Add(int64(len(p)))
	granted := w.budget.take(int64(len(p)))
	n := 0
	if granted > 0 {
		var err error
		if n, err = w.w.Write(p[:granted]); err != nil {
			return n, err
		}
	}
	if granted < int64(len(p)) {
		return n, ErrOutputLimit
	}
	return n, nil
}

// Offered returns how many bytes were given to this stream, delivered or not.
func (w *BudgetWriter) Offered() int64 { return w.offered.Load() }
