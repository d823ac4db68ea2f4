package frame

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/wire"
	"github.com/sunaba-dev/sunaba/internal/host/cgroup"
	"github.com/sunaba-dev/sunaba/internal/stream"
)

// book is what a front knows of the account of a box that lasts.
type book struct {
	mu     sync.Mutex
	limits []box.LimitHit
	usage  box.Usage // as far as it was read while the box stood
	kills  int64     // for want of memory, that the first process told of
	alive  int64     // all of them, when the box was last seen alive
}

func (b *Box) noteLimit(l wire.Limit) {
	if isLimit(l.Name) {
		b.book.add(box.LimitHit{Limit: l.Name, Source: bounded(l.Source)})
	}
}

// same reports whether two hits are one: of the same limit and, where there may be more
// than one of a kind, of the same thing.
func same(a, b box.LimitHit) bool {
	return a.Limit == b.Limit && (a.Limit != limitVolume || a.Source == b.Source)
}

// add reports whether it was new.
func (k *book) add(h box.LimitHit) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return addTo(&k.limits, h)
}

// has reports whether a hit was added.
func (k *book) has(h box.LimitHit) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.ContainsFunc(k.limits, func(s box.LimitHit) bool { return same(s, h) })
}

// addTo adds a hit once and reports whether it was new.
func addTo(all *[]box.LimitHit, h box.LimitHit) bool {
	if slices.ContainsFunc(*all, func(s box.LimitHit) bool { return same(s, h) }) {
		return false
	}
	*all = append(*all, h)
	return true
}

// bounded cuts what a first process says about itself.
func bounded(s string) string { return s[:min(len(s), 64)] }

// lastWords is how a first process that has ended did: as it said itself, or as
// this host's kernel saw it.
func (b *Box) lastWords(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second) // of a link that others hold
	defer cancel()
	if said := b.Conn.Why(ctx); said != "" {
		return stream.Clean([]byte(said[:min(len(said), 256)]))
	}
	if left := b.site.leftWords(b.Spec.ID); left != "" {
		return left
	}
	return b.Child.End()
}

// goneBecause adds to an error, for which the first process has ended, how it did.
func (b *Box) goneBecause(ctx context.Context, err error) error {
	select {
	case <-b.Child.Done(): // the link's end comes a moment before
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
	if why := b.lastWords(ctx); why != "" {
		return fmt.Errorf("%w: %s", err, why)
	}
	return err
}

// Note tells the first process of a limit that this front found out about, for
// the account that those after it ask for. Only then is it in this front's: who has
// read it there may leave the box to the next one.
func (b *Box) Note(ctx context.Context, h box.LimitHit) {
	defer b.book.add(h)
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_ = b.Conn.Call(ctx, "note", wire.Limit{Name: h.Limit, Source: h.Source}, nil) // else this front alone knows
}

// Account is of box.Lasting.
func (b *Box) Account(ctx context.Context) (box.Account, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var led wire.Ledger
	// A box that has ended says nothing more, and one that is held nothing now.
	heard := !b.Frozen() && b.Conn.Call(ctx, "account", struct{}{}, &led) == nil
	for _, l := range led.Limits[:min(len(led.Limits), 16)] {
		b.noteLimit(l)
	}
	var s cgroup.Stats
	if b.Group != nil {
		var err error
		if s, err = b.Group.Stats(); err != nil {
			return box.Account{}, err
		}
	}
	for _, h := range append(b.adapt.Touched(s), b.fullVolumes()...) {
		switch {
		case b.book.has(h):
		case heard && isLimit(h.Limit):
			b.Note(ctx, h) // it may be over before another front looks
		default:
			b.book.add(h)
		}
	}
	var host int64 // killed by the host's kernel
	if b.Group != nil {
		if host = s.OOMKills.N; s.OutOfMemory() {
			b.book.add(box.LimitHit{Limit: "memory", Source: s.OOMKills.Source})
		}
	}
	ended, why := b.hasEnded(), ""
	if ended {
		why = b.lastWords(ctx)
	}
	u := b.usage(s, time.Since(b.created))
	k := &b.book
	k.mu.Lock()
	defer k.mu.Unlock()
	if heard {
		k.kills = max(k.kills, led.MemoryKills)
	}
	k.usage = box.Usage{
		CPU: max(k.usage.CPU, u.CPU), Wall: u.Wall,
		MemoryPeak: max(k.usage.MemoryPeak, u.MemoryPeak), Written: u.Written,
	}
	a := box.Account{Usage: k.usage, Limits: append([]box.LimitHit{}, k.limits...), MemoryKills: k.kills + host}
	if !ended {
		k.alive = a.MemoryKills
		return a, nil
	}
	a.Ending = why
	for i := range a.Limits {
		// What the host killed when the box was seen last, it died of.
		a.Limits[i].Ended = a.Limits[i].Limit == "memory" && a.MemoryKills > k.alive
	}
	return a, nil
}
