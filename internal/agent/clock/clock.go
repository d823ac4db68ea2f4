// Package clock is the time that counts inside a box: it stands while the box
// does.
//
// A box that is paused, or copied to the disk, finds the kernel's clocks far
// ahead when it goes on, and whatever waited for them due at once: a program
// that had two seconds left would be ended before it ran again. No moment
// afterwards is early enough to prevent that. So the host says before that the
// box is about to stand (Hold), and afterwards that it goes on (Go); what lies
// between does not count. If the second word never comes, the clock goes on by
// itself after a minute in which the box ran.
package clock

import (
	"sync"
	"time"
)

// Clock measures how long the box has run. It is safe for concurrent use.
type Clock struct {
	start time.Time

	mu     sync.Mutex
	stood  time.Duration
	held   bool
	at     time.Duration // of start, when it was held
	left   int           // ticks until it goes on by itself
	ticker *time.Timer
	gone   time.Duration       // when it went on last, as it shows it itself
	timers map[*Timer]struct{} // that have not fired
}

// mostTicks is for how many seconds of a box that runs the clock is held. A box
// that stands has no ticks.
const mostTicks = 60

// New returns a clock that goes.
func New() *Clock { return &Clock{start: time.Now(), timers: map[*Timer]struct{}{}} }

// Now is how long the clock has gone.
func (c *Clock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

func (c *Clock) now() time.Duration {
	if c.held {
		return c.at - c.stood
	}
	return time.Since(c.start) - c.stood
}

// Hold makes the clock stand.
func (c *Clock) Hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = mostTicks
	if c.held {
		return
	}
	c.held, c.at = true, time.Since(c.start)
	c.ticker = time.AfterFunc(time.Second, c.tick)
}

func (c *Clock) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.held {
		return
	}
	if c.left--; c.left <= 0 {
		c.resume(0)
		return
	}
	c.ticker.Reset(time.Second)
}

// Go makes the clock go on where it was held. If it was not, it is put back by
// slept, as far as it has gone.
func (c *Clock) Go(slept time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resume(slept)
}

func (c *Clock) resume(slept time.Duration) {
	if c.held {
		c.ticker.Stop()
		slept = time.Since(c.start) - c.at
		c.held = false
	}
	c.stood += min(max(slept, 0), time.Since(c.start)-c.stood)
	c.gone = c.now()
	for t := range c.timers {
		t.arm()
	}
}

// HeldWithin reports whether the clock stands, or did within the time that it
// has gone last.
func (c *Clock) HeldWithin(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held || c.gone > 0 && c.now()-c.gone < d
}

// Timer is one moment of a clock.
type Timer struct {
	// C gets one value at that moment; nil for AfterFunc.
	C     <-chan struct{}
	clock *Clock
	due   time.Duration
	fn    func()
	timer *time.Timer
}

// AfterFunc calls fn, on a goroutine of its own, when the clock has gone so much
// further.
func (c *Clock) AfterFunc(d time.Duration, fn func()) *Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &Timer{clock: c, due: c.now() + d, fn: fn}
	c.timers[t] = struct{}{}
	t.arm()
	return t
}

// NewTimer returns one that tells its channel.
func (c *Clock) NewTimer(d time.Duration) *Timer {
	ch := make(chan struct{}, 1)
	t := c.AfterFunc(d, func() { ch <- struct{}{} })
	t.C = ch
	return t
}

// arm waits for what is left. The lock is held.
func (t *Timer) arm() {
	left := max(t.due-t.clock.now(), 0)
	if t.timer == nil {
		t.timer = time.AfterFunc(left, t.fire)
		return
	}
	t.timer.Reset(left)
}

// fire is called by the kernel's time, which may be ahead.
func (t *Timer) fire() {
	c := t.clock
	c.mu.Lock()
	_, waits := c.timers[t]
	due := waits && !c.held && c.now() >= t.due
	switch {
	case due:
		delete(c.timers, t)
	case waits && !c.held:
		t.arm()
	}
	c.mu.Unlock()
	if due {
		t.fn()
	}
}

// Stop gives it up. It may have fired before.
func (t *Timer) Stop() {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	delete(t.clock.timers, t)
	t.timer.Stop()
}
