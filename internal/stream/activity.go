package stream

import (
	"context"
	"sync/atomic"
	"time"
)

// Activity remembers when a byte last moved, on the monotonic clock. Several
// streams may share one. It is safe for concurrent use; all methods but Wait
// are cheap and may be called for every read.
type Activity struct {
	start time.Time
	last  atomic.Int64 // nanoseconds after start
}

// NewActivity returns an Activity for which a byte moved just now.
func NewActivity() *Activity { return &Activity{start: time.Now()} }

// Touch notes that a byte moved. On a nil Activity it does nothing.
func (a *Activity) Touch() {
	if a != nil {
		a.last.Store(int64(time.Since(a.start)))
	}
}

// Idle returns for how long no byte has moved.
func (a *Activity) Idle() time.Duration {
	return time.Since(a.start) - time.Duration(a.last.Load())
}

// Wait returns true as soon as no byte has moved for the time idle, or false
// when ctx ends. With an idle of zero or less, which means no limit, it waits
// for ctx.
func (a *Activity) Wait(ctx context.Context, idle time.Duration) bool {
	if idle <= 0 {
		<-ctx.Done()
		return false
	}
	timer := time.NewTimer(idle - a.Idle())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			left := idle - a.Idle()
			if left <= 0 {
				return true
			}
			timer.Reset(left)
		}
	}
}
