package keeper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/egress/control"
	"github.com/sunaba-dev/sunaba/internal/fault"
)

// ward is a place for one gateway after the other, and the boxes that it is for. All
// boxes begin in the first one.
//
// A box whose packets end a gateway takes the network of all that share it. So a ward
// whose gateway ends a second time is divided in two, and so is the half whose gateway
// ends again: after as many ends as it takes to halve the boxes down to one, the box
// that does it has a gateway of its own, which is started later each time, and the
// others' is no longer its matter. Nobody has to know which packet it was.
type ward struct {
	starting sync.Mutex // held by who starts a gateway

	// These are under the keeper's lock.
	now     *session  // nil while there is none
	last    time.Time // when one ended by itself
	ends    int       // how many did, each within calm of the one before
	retired bool      // its boxes have gone
}

const (
	// calm is how long a gateway lives that says nothing against its boxes.
	calm = time.Hour
	// mostWards bounds what gateways take: each is a process.
	mostWards = 64
	// longestAlone is how long a box waits at most whose own gateway ends again and again.
	longestAlone = time.Minute
)

// suspect reports whether a box in it may be what ends its gateways.
func (w *ward) suspect() bool { return w.ends >= 2 && time.Since(w.last) < calm }

// place chooses the ward of a new box: one that has done nothing, or a new one. The
// lock is held.
func (k *Keeper) place() *ward {
	oldest := k.wards[0]
	for _, w := range k.wards {
		if !w.suspect() {
			return w
		}
		if w.last.Before(oldest.last) {
			oldest = w
		}
	}
	if len(k.wards) >= mostWards {
		return oldest
	}
	k.wards = append(k.wards, new(ward))
	return k.wards[len(k.wards)-1]
}

// first is the ward that there always is.
func (k *Keeper) first() *ward {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.wards[0]
}

// in lists the boxes of a ward. The lock is held.
func (k *Keeper) in(w *ward) map[box.ID]*kept {
	out := map[box.ID]*kept{}
	for id, c := range k.cells {
		if c.ward == w {
			out[id] = c
		}
	}
	return out
}

// State is how the gateways of all boxes are.
type State struct {
	Gateways int    // there now
	Without  int    // boxes whose gateway is not there now
	Ends     uint64 // of gateways, each by itself
}

// State tells it as of now; it asks nobody.
func (k *Keeper) State() State {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := State{Ends: k.ends}
	for _, w := range k.wards {
		if w.now != nil {
			s.Gateways++
		}
	}
	for _, c := range k.cells {
		if c.ward.now == nil {
			s.Without++
		}
	}
	return s
}

// wardOf is where a box is now.
func (k *Keeper) wardOf(c *kept) *ward {
	k.mu.Lock()
	defer k.mu.Unlock()
	return c.ward
}

// retire ends the gateway of a ward that has no box any more, but for the first.
func (k *Keeper) retire(w *ward) {
	k.mu.Lock()
	if w == k.wards[0] || w.retired || len(k.in(w)) > 0 {
		k.mu.Unlock()
		return
	}
	w.retired = true
	for i := range k.wards {
		if k.wards[i] == w {
			k.wards = append(k.wards[:i:i], k.wards[i+1:]...)
			break
		}
	}
	s := w.now
	k.mu.Unlock()
	if s != nil {
		s.end()
	}
}

// ensure returns the gateway that there is, and starts one if there is none.
func (k *Keeper) ensure(ctx context.Context, w *ward) (*session, error) {
	w.starting.Lock()
	defer w.starting.Unlock()
	k.mu.Lock()
	s, closed, retired := w.now, k.closed, w.retired
	k.mu.Unlock()
	switch {
	case closed:
		return nil, errClosed()
	case retired:
		return nil, box.Errorf(box.Unavailable, op, "cannot give a box a network: it was given up meanwhile")
	case s != nil && !s.over():
		return s, nil
	}
	s, err := k.begin(ctx, w)
	if err != nil {
		return nil, box.Errorf(box.Unusable, op, "cannot start the gateway: %w", err).WithHint("`sunaba doctor` tries it")
	}
	return s, nil
}

// begin starts a gateway. Whoever calls holds starting.
func (k *Keeper) begin(ctx context.Context, w *ward) (*session, error) {
	settings, err := k.cfg.Settings()
	if err != nil {
		return nil, err
	}
	settings.Events = k.cfg.Event != nil
	s, err := k.open()
	if err != nil {
		return nil, err
	}
	if _, err := s.ask(ctx, control.Request{Op: control.Start, Settings: &settings}); err != nil {
		s.end()
		if said := s.words.said(); said != "" {
			return nil, fmt.Errorf("it does not answer, and says: %s", said)
		}
		return nil, fmt.Errorf("it does not answer: %w", err)
	}
	fault.Here("keeper.gateway-started")
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || w.retired {
		s.end()
		return nil, errClosed()
	}
	w.now = s
	k.work.Go(func() { k.watch(w, s) })
	return s, nil
}

// watch waits for a gateway's end and sees to it that there is another one, if a box
// needs it.
func (k *Keeper) watch(w *ward, s *session) {
	k.listen(w, s)
	s.end()
	k.mu.Lock()
	alone := w.now == s // else who attaches a box was faster, and there is another one
	if alone {
		w.now = nil
	}
	if k.closed || w.retired {
		k.mu.Unlock()
		return
	}
	half, wait := k.ended(w, alone)
	k.mu.Unlock()
	if half != nil {
		k.work.Go(func() { k.raise(half, firstWait) })
	}
	k.raise(w, wait)
}

// ended notes a gateway's end and says how long to wait before the next one is started.
// Half is the ward that half of the boxes are in from now on, if it was divided, which
// is only while no gateway has any of them. The lock is held.
func (k *Keeper) ended(w *ward, divide bool) (half *ward, wait time.Duration) {
	if time.Since(w.last) >= calm {
		w.ends = 0
	}
	w.ends++
	k.ends++
	w.last = time.Now()
	mine := k.in(w)
	log := k.cfg.Log.With("boxes", len(mine), "times", w.ends)
	switch {
	case w.ends < 2:
		log.Error("the gateway has ended: boxes have no network until it is back")
		return nil, firstWait
	case divide && len(mine) > 1 && len(k.wards) < mostWards:
		w.ends = 2
		half = &ward{last: w.last, ends: w.ends}
		k.wards = append(k.wards, half)
		n := 0
		for _, c := range mine { // in no order, which is as good as any
			if n++; n <= len(mine)/2 {
				c.ward = half
			}
		}
		log.Error("a gateway has ended again: its boxes have no network until it is back, and are divided between two", "gateways", len(k.wards))
		return half, firstWait
	}
	longest := longestWait
	if len(mine) == 1 {
		longest = longestAlone
	}
	wait = min(firstWait<<min(w.ends-2, 16), longest)
	for id := range mine {
		if len(mine) == 1 {
			log.Error("the gateway of one box alone has ended again: that box does it, and has no network for longer each time", "box", id, "wait", wait)
			return nil, wait
		}
	}
	log.Error("a gateway has ended again: its boxes have no network until it is back", "wait", wait)
	return nil, wait
}

// raise starts a gateway for the boxes of a ward, sooner or later.
func (k *Keeper) raise(w *ward, first time.Duration) {
	for wait := first; ; wait = min(2*wait, max(first, longestWait)) {
		select {
		case <-time.After(wait):
		case <-k.stop:
			return
		}
		if k.again(w) {
			return
		}
	}
}

// listen returns when a gateway has ended. One that does not answer is ended.
func (k *Keeper) listen(w *ward, s *session) {
	tick := time.NewTicker(k.cfg.Ask)
	defer tick.Stop()
	for {
		select {
		case <-s.gone:
			return
		case <-tick.C:
			if _, err := s.ask(context.Background(), control.Request{Op: control.Ping}); err == nil {
				k.retry(w, s)
			}
		}
	}
}

// again starts a gateway for the boxes that there are, and reports whether nothing
// is left to do.
func (k *Keeper) again(w *ward) bool {
	ctx, cancel := context.WithTimeout(context.Background(), k.cfg.Answer)
	defer cancel()
	k.mu.Lock()
	all := k.in(w)
	over := k.closed || w.retired
	k.mu.Unlock()
	if over || len(all) == 0 {
		return true
	}
	s, err := k.ensure(ctx, w)
	if err != nil {
		k.cfg.Log.Error("cannot start the gateway again", "error", err)
		return false
	}
	for id, c := range all {
		err := k.attachAgain(ctx, s, id, c)
		if errors.Is(err, errGone) {
			return true // its own watcher goes on
		}
		if err != nil {
			k.cfg.Log.Error("cannot give a box its network again", "box", id, "error", err)
		}
	}
	k.cfg.Log.Info("the gateway is back", "boxes", len(all))
	return true
}

// attachAgain hands a box over to a gateway that took the place of another one, unless
// it was given up meanwhile, or that gateway has it.
func (k *Keeper) attachAgain(ctx context.Context, s *session, id box.ID, c *kept) error {
	c.turn.Lock()
	defer c.turn.Unlock()
	k.mu.Lock()
	there := k.cells[id] == c && c.ward.now == s
	k.mu.Unlock()
	if !there || c.at == s {
		return nil
	}
	c.before, c.last = c.sum(), box.Traffic{}
	err := s.attach(ctx, id, c)
	fault.Here("keeper.attached-again")
	return err
}

// retry hands over what this gateway could not take before.
func (k *Keeper) retry(w *ward, s *session) {
	k.mu.Lock()
	all := k.in(w)
	k.mu.Unlock()
	for id, c := range all {
		c.turn.Lock()
		has := c.at == s
		c.turn.Unlock()
		if has {
			continue
		}
		if err := k.attachAgain(context.Background(), s, id, c); err == nil {
			k.cfg.Log.Info("a box has its network again", "box", id)
		}
	}
}
