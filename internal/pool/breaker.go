package pool

import (
	"math/rand/v2"
	"time"
)

// breaker decides when a shape may be made again after something went wrong.
// It is told the time and has none of its own. The pool's lock guards it.
//
// Two things go wrong differently. A box that cannot be made harms nobody who
// holds one, so each such failure only delays the next attempt. A box that was
// made and turns out bad is the sign of a bad batch: after trip of them in a
// row the shape is poisoned, and from then on one box at a time is tried until
// one is reported to have worked. Passing a health check is no such report.
type breaker struct {
	trip        int           // bad boxes in a row
	first, most time.Duration // the delay, doubled with each failure
	attempts    int           // failures in a minute

	makes  int // failures to make, in a row
	bads   int // bad boxes, in a row
	batch  int // how often the shape was poisoned anew
	until  time.Time
	recent []time.Time // failures of the last minute, oldest first
}

// failed counts a box that could not be made.
func (b *breaker) failed(now time.Time) {
	b.makes++
	b.note(now)
	b.delay(now, b.makes)
}

// bad counts a box that was made and is no good, and reports whether that
// poisons the shape.
func (b *breaker) bad(now time.Time) bool {
	b.bads++
	b.note(now)
	if b.bads < b.trip {
		return false
	}
	if b.bads == b.trip {
		b.batch++
	}
	b.delay(now, b.bads-b.trip+1)
	return true
}

// made says that a box could be made.
func (b *breaker) made() { b.makes = 0 }

// worked says that a box of the given batch was of use to somebody. One that
// was handed out before the shape was poisoned proves nothing any more.
func (b *breaker) worked(batch int) {
	if batch != b.batch {
		return
	}
	if b.tripped() && b.makes == 0 {
		b.until = time.Time{}
	}
	b.bads = 0
}

// probed says that the one box which is tried was given to somebody: the next
// one waits until the usual time, or until that one worked.
func (b *breaker) probed(now time.Time) {
	if b.tripped() {
		b.delay(now, b.bads-b.trip+1)
	}
}

// tripped says that only one box may be tried at a time.
func (b *breaker) tripped() bool { return b.bads >= b.trip }

// poisoned says that none may be given out.
func (b *breaker) poisoned(now time.Time) bool { return b.tripped() && now.Before(b.until) }

// free is when the next box may be made: now, or later.
func (b *breaker) free(now time.Time) time.Time {
	at := now
	if b.until.After(at) {
		at = b.until
	}
	if n := len(b.recent); n >= b.attempts {
		if t := b.recent[n-b.attempts].Add(time.Minute); t.After(at) {
			at = t
		}
	}
	return at
}

func (b *breaker) note(now time.Time) {
	if len(b.recent) >= b.attempts { // more are not needed to tell
		b.recent = append(b.recent[:0], b.recent[len(b.recent)-b.attempts+1:]...)
	}
	b.recent = append(b.recent, now)
}

// delay puts the next attempt off, by half to all of first doubled n-1 times:
// many shapes that fail for one reason do not come back all at once.
func (b *breaker) delay(now time.Time, n int) {
	d := b.first
	for ; n > 1 && d < b.most; n-- {
		d *= 2
	}
	d = min(d, b.most)
	if at := now.Add(d/2 + rand.N(d/2+1)); at.After(b.until) {
		b.until = at
	}
}
