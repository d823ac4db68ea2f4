package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/policy"
	"github.com/sunaba-dev/sunaba/internal/pool"
)

// Times and bounds of the pool: see pool.Config.
const (
	warmMakes    = 2
	warmCheck    = 2 * time.Second
	warmDestroy  = 15 * time.Second
	warmEvery    = 30 * time.Second
	warmAge      = time.Hour
	warmWait     = 250 * time.Millisecond
	warmTrip     = 3
	warmBackoff  = time.Second
	warmSlowest  = 30 * time.Second
	warmAttempts = 30
	// A shape that nobody asked for in so long is no longer kept; one that was
	// asked for a moment ago does not give way to another.
	warmForget = 30 * time.Minute
	warmStay   = 30 * time.Second
	// A box is not made while one that was leased is so young, but a maker does
	// not wait for longer than the second of these.
	warmYield     = 100 * time.Millisecond
	warmYieldMost = 300 * time.Millisecond
	// Nor while a request's box is being made, but for no longer: there may always be
	// one, of one tenant or of all.
	warmPatience = time.Second
)

// neutralCPU is the quota of a box that is nobody's yet, of a tier whose boxes do
// not show it.
const neutralCPU = 1000

// warmth keeps boxes warm: those of shapes that were asked for, and templates'.
type warmth struct {
	s      *Service
	leased atomic.Int64 // when, in nanoseconds since 1970
	most   int          // warm boxes of shapes that were asked for, together
	pool   *pool.Pool

	mu     sync.Mutex
	shapes map[pool.Shape]*shapeKept
}

// shapeKept is a shape that requests asked for.
type shapeKept struct {
	size  int
	asked time.Time
}

// warmBox is a box of the pool, with the host's end of its agent, which is
// connected when somebody gets it.
type warmBox struct {
	box.Lasting
	guest Agent
}

// Destroy implements box.Box.
func (w *warmBox) Destroy(ctx context.Context) error {
	w.guest.Close()
	return w.Lasting.Destroy(ctx)
}

func (s *Service) newWarmth(most int) (*warmth, error) {
	w := &warmth{s: s, most: most, shapes: map[pool.Shape]*shapeKept{}}
	var err error
	w.pool, err = pool.New(pool.Config{
		Make: w.make, Check: w.check, Print: fingerprint,
		Makes: warmMakes, MakeTimeout: startTimeout, CheckTimeout: warmCheck, DestroyTimeout: warmDestroy,
		Every: warmEvery, Age: warmAge, Wait: warmWait,
		Trip: warmTrip, Backoff: warmBackoff, MaxBackoff: warmSlowest, Attempts: warmAttempts,
	})
	return w, err
}

// specOf is what a box of a shape is made by, for nobody.
func specOf(shape pool.Shape, id box.ID) box.Spec {
	cpu := int64(neutralCPU)
	if shape.Processors > 0 {
		cpu = 1000 * shape.Processors
	}
	sp := box.Spec{
		ID: id, Image: shape.Image, Workdir: shape.Workdir, Hostname: shape.Hostname, Net: box.Net{Mode: shape.Net}, Lasting: true,
		Limits: box.Limits{
			MilliCPU: cpu, Memory: shape.Memory, Disk: shape.Disk, Files: shape.Files, Processes: shape.Processes,
			OpenFiles: shape.OpenFiles, OnLimit: shape.OnLimit,
		},
	}
	if shape.Hidden != "" {
		sp.NoMount = strings.Split(shape.Hidden, "\x00")
	}
	return sp
}

// make makes a box for nobody, when no request is at that, and not in the moment
// after a lease: whoever got a box uses it now, and a start would take their
// processor. It waits for neither without end.
func (w *warmth) make(ctx context.Context, shape pool.Shape) (box.Lasting, error) {
	for begun := time.Now(); w.mustYield(time.Since(begun)); {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	var from *origin
	if shape.Template != "" {
		t, err := w.s.template(shape.Template)
		if err != nil {
			return nil, err
		}
		from = t.origin()
	}
	b, err := w.s.neutral(ctx, shape, from)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// mustYield reports whether a maker that has waited for so long waits on.
func (w *warmth) mustYield(waited time.Duration) bool {
	return w.s.building.Load() > 0 && waited < warmPatience || w.justLeased(waited)
}

// justLeased reports whether a box was leased a moment ago, to a maker that has
// waited for so long: under many requests in a row none is waited for.
func (w *warmth) justLeased(waited time.Duration) bool {
	return waited < warmYieldMost && time.Since(time.Unix(0, w.leased.Load())) < warmYield
}

// neutral makes a box for nobody, whose agent has answered.
func (s *Service) neutral(ctx context.Context, shape pool.Shape, from *origin) (_ *warmBox, err error) {
	t := s.cfg.Engine.tier(shape.Tier)
	if t == nil {
		return nil, box.Errorf(box.Unsupported, "pool boxes", "cannot keep boxes of tier %s: it is not in this build", shape.Tier)
	}
	b, _, err := from.make(ctx, t, specOf(shape, s.cfg.Engine.newID()))
	if err != nil {
		return nil, err
	}
	lasting, ok := b.(box.Lasting)
	_, binds := b.(box.Binder)
	_, prints := b.(box.Fingerprinter)
	if !ok || !binds || !prints {
		return nil, errors.Join(box.Errorf(box.Unsupported, "pool boxes", "cannot keep boxes of tier %s: they cannot become somebody's later", shape.Tier), destroy(ctx, b))
	}
	w := &warmBox{lasting, s.cfg.Guest(lasting.Agent)}
	if _, err = w.guest.Metrics(ctx); err == nil {
		err = s.renewGuest(ctx, lasting.ID(), w.guest, from)
	}
	if err != nil {
		return nil, errors.Join(err, destroy(ctx, w))
	}
	return w, nil
}

// check asks the box's agent.
func (*warmth) check(ctx context.Context, b box.Lasting) error {
	w, ok := b.(*warmBox)
	if !ok {
		return errors.New("it is not of this pool")
	}
	_, err := w.guest.Metrics(ctx)
	return err
}

// fingerprint asks those who enforce the box's limits.
func fingerprint(ctx context.Context, b box.Lasting) (string, error) {
	w, ok := b.(*warmBox)
	if !ok {
		return "", errors.New("it is not of this pool")
	}
	f, ok := w.Lasting.(box.Fingerprinter)
	if !ok {
		return "", errors.New("nothing is seen of it from outside")
	}
	return f.Fingerprint(ctx)
}

// lent is a warm box that became somebody's.
type lent struct {
	box   box.Lasting
	guest Agent
	end   func(context.Context) error // destroys it
}

// lease gives a warm box for a decided spec, bound to it, or says why there is
// none. One that cannot be bound, or does not answer then, is of no use to others
// either, and another one is tried, once.
func (w *warmth) lease(ctx context.Context, t box.TierName, spec box.Spec, template string, size int) (*lent, string) {
	shape, miss := pool.ShapeOf(t, spec)
	if miss != "" {
		return nil, string(miss)
	}
	if shape.Template = template; template == "" && !w.ask(shape, size) {
		return nil, string(pool.MissShape)
	}
	why := ""
	for range 2 {
		l, miss := w.pool.Lease(ctx, shape)
		w.leased.Store(time.Now().UnixNano())
		if l == nil {
			if why == "" {
				why = string(miss)
			}
			return nil, why
		}
		got, err := bind(ctx, l, shape, spec)
		if err == nil {
			l.Worked()
			return got, ""
		}
		why = fmt.Sprintf("a warm box could not be used: %v", err)
		// Who goes away, whatever the error then is, must have no way to make boxes
		// count as bad: it would empty the pool for all.
		if ctx.Err() != nil || box.KindOf(err) == box.Unsupported {
			err = l.End(ctx)
		} else {
			err = l.Failed(ctx, err)
		}
		if err != nil {
			w.s.cfg.Log.Error("cannot destroy a warm box", "box", l.Box.ID(), "error", err)
		}
	}
	return nil, why
}

// warm gives a warm box for a request that may have one. The reason why there is
// none is empty if none was asked for.
func (s *Service) warm(ctx context.Context, w Wish, d policy.Decision) (*lent, string) {
	if !w.Reuse || w.from != nil && w.template == "" {
		return nil, ""
	}
	return s.warmth.lease(ctx, d.Tier, d.Spec, w.template, w.PoolSize)
}

func bind(ctx context.Context, l *pool.Lease, shape pool.Shape, spec box.Spec) (*lent, error) {
	wb, ok := l.Box.(*warmBox)
	if !ok {
		return nil, box.Errorf(box.Fault, "pool boxes", "cannot use box %s: it is not of this pool", l.Box.ID())
	}
	binder, ok := wb.Lasting.(box.Binder)
	if !ok {
		return nil, box.Errorf(box.Fault, "pool boxes", "cannot use box %s: it cannot be bound", wb.ID())
	}
	as := specOf(shape, wb.ID())
	as.Tenant, as.Principal, as.Limits.MilliCPU = spec.Tenant, spec.Principal, spec.Limits.MilliCPU
	ctx, cancel := context.WithTimeout(ctx, warmCheck)
	defer cancel()
	if err := binder.Bind(ctx, as); err != nil {
		return nil, err
	}
	if _, err := wb.guest.Metrics(ctx); err != nil { // before anything of its owner's runs in it
		return nil, err
	}
	return &lent{wb.Lasting, wb.guest, l.End}, nil
}

// ask notes that a shape was wanted, and begins to keep boxes of it if there is
// room. Else the shape that nobody has wanted for longest gives way, once it is idle
// for a while. It reports whether boxes of the shape were kept already.
func (w *warmth) ask(shape pool.Shape, size int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if k := w.shapes[shape]; k != nil {
		k.asked = now
		return true
	}
	if size = min(size, w.most); size <= 0 {
		return false
	}
	room := w.most
	var oldest pool.Shape
	for sh, k := range w.shapes {
		room -= k.size
		if o := w.shapes[oldest]; o == nil || k.asked.Before(o.asked) {
			oldest = sh
		}
	}
	if o := w.shapes[oldest]; room <= 0 && o != nil && now.Sub(o.asked) >= warmStay {
		room += o.size
		w.drop(oldest)
	}
	if size = min(size, room); size > 0 && w.pool.Resize(shape, size) == nil {
		w.shapes[shape] = &shapeKept{size, now}
	}
	return false
}

// forget ends the shapes that nobody asked for in a long time.
func (w *warmth) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for sh, k := range w.shapes {
		if time.Since(k.asked) > warmForget {
			w.drop(sh)
		}
	}
}

func (w *warmth) drop(shape pool.Shape) {
	delete(w.shapes, shape)
	_ = w.pool.Resize(shape, 0) // fails of a pool that is closed, which drops all
}

// close destroys the warm boxes.
func (w *warmth) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), destroyTimeout)
	defer cancel()
	return w.pool.Close(ctx)
}
