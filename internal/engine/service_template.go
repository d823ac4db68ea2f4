package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/pool"
	"github.com/sunaba-dev/sunaba/internal/snapshot"
)

// Template is a box that is prepared once, and copied with its memory for each that
// asks for it.
type Template struct {
	Name    string
	Sandbox json.RawMessage // as in box.CreateRequest
	Size    int             // copies kept warm; 0 = each is made when it is asked for
	WarmUp  []WarmUp        // run in this order
}

// WarmUp is code that is run in a language's first interpreter.
type WarmUp struct {
	Language string
	Code     string
}

// warmUpTimeout bounds one snippet.
const warmUpTimeout = 2 * time.Minute

// template is one that is prepared, or on the way to it.
type template struct {
	Template
	shape pool.Shape
	user  box.User // of its programs
	env   []string

	mu   sync.Mutex
	held *snapshot.Held // nil until it is prepared
	err  error          // why it could not be, the last time
}

// checkTemplates decides on all of them before anybody is served.
func (s *Service) checkTemplates(all []Template) error {
	for _, t := range all {
		if s.templates[t.Name] != nil {
			return box.Errorf(box.Invalid, "prepare template", "cannot prepare template %s: two have that name", t.Name)
		}
		w, err := s.cfg.Parse(t.Sandbox)
		if err != nil {
			return fmt.Errorf("cannot prepare template %s: %w", t.Name, err)
		}
		d, _, err := s.cfg.Engine.decide(w.Policy, box.NewID())
		if err != nil {
			return fmt.Errorf("cannot prepare template %s: %w", t.Name, err)
		}
		d.Spec.Lasting = true
		d.Spec.NoMount = refusedFor(d.Spec.NoMount, true)
		shape, miss := pool.ShapeOf(d.Tier, d.Spec)
		switch {
		case miss != "":
			return box.Errorf(box.Invalid, "prepare template", "cannot prepare template %s: %s", t.Name, miss)
		case d.Tier != box.TierGvisor || d.Spec.Image == box.ImageHost:
			return box.Errorf(box.Unsupported, "prepare template", "cannot prepare template %s: a copy with its memory takes tier gvisor and an image with a digest, and it comes out as tier %s with image %s", t.Name, d.Tier, d.Spec.Image).
				WithHint("runtime: gvisor, image: base")
		}
		shape.Template = t.Name
		s.templates[t.Name] = &template{Template: t, shape: shape, user: w.User, env: w.Env}
	}
	return nil
}

// prepare makes the templates, one after the other, and again those that could
// not be made, until all are there.
func (s *Service) prepare() {
	for wait := time.Second; ; wait = min(2*wait, time.Minute) {
		left := 0
		for _, t := range s.templates {
			if t.ready() == nil {
				continue
			}
			start := time.Now()
			err := s.prepareOne(t)
			switch {
			case s.ctx.Err() != nil:
				return
			case err != nil:
				left++
				s.cfg.Log.Error("cannot prepare a template", "template", t.Name, "error", err)
				continue
			}
			s.cfg.Log.Info("template prepared", "template", t.Name, "took", time.Since(start).Round(time.Millisecond))
			if t.Size > 0 {
				if err := s.warmth.pool.Resize(t.shape, t.Size); err != nil {
					s.cfg.Log.Error("cannot keep a template warm", "template", t.Name, "error", err)
				}
			}
		}
		if left == 0 {
			return
		}
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

func (s *Service) prepareOne(t *template) error {
	ctx, cancel := context.WithTimeout(s.ctx, startTimeout+time.Duration(len(t.WarmUp))*warmUpTimeout)
	defer cancel()
	held, err := s.warmedUp(ctx, t)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held, t.err = held, err
	return err
}

// warmedUp is the copy of a box for nobody in which the snippets were run.
func (s *Service) warmedUp(ctx context.Context, t *template) (_ *snapshot.Held, err error) {
	kept, err := s.snapshots()
	if err != nil {
		return nil, err
	}
	cold := t.shape
	cold.Template = ""
	b, err := s.neutral(ctx, cold, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, destroy(ctx, b)) }()
	spec := box.ContextSpec{User: t.user, Env: Environment(t.user, t.env...)}
	if p, ok := b.Lasting.(interface{ SearchPath() string }); ok && p.SearchPath() != "" {
		spec.Env = Environment(t.user, append([]string{"PATH=" + p.SearchPath()}, t.env...)...)
	}
	for _, u := range t.WarmUp {
		if err := runWarmUp(ctx, b.guest, u, spec); err != nil {
			return nil, err
		}
	}
	sn, ok := b.Lasting.(box.Snapshotter)
	if !ok {
		return nil, box.Errorf(box.Unsupported, "prepare template", "cannot copy a box of tier %s", t.shape.Tier)
	}
	if err := sn.Snappable(box.SnapshotMemory); err != nil {
		return nil, err
	}
	if p, ok := b.guest.(parker); ok {
		if err := p.Park(ctx); err != nil {
			return nil, err
		}
	}
	d := kept.Pass(s.cfg.MaxSnapshot)
	defer d.Drop()
	head, err := sn.Snapshot(ctx, box.SnapshotMemory, d.Put)
	if err != nil {
		return nil, errors.Join(err, d.Err())
	}
	return d.Held(head)
}

// runWarmUp runs a snippet in the language's first interpreter, as a call with no
// context would.
func runWarmUp(ctx context.Context, g Agent, u WarmUp, spec box.ContextSpec) error {
	ctx, cancel := context.WithTimeout(ctx, warmUpTimeout)
	defer cancel()
	c, err := contextOf(ctx, g, u.Language, spec)
	if err != nil {
		return err
	}
	var raised string
	err = g.RunCell(ctx, c.ID, box.Cell{ID: "warm-up-" + string(box.NewID()), Code: u.Code, Timeout: warmUpTimeout, From: 1, Attached: true}, func(e box.CellEvent) error {
		switch {
		case e.Error != nil:
			raised = e.Error.Name + ": " + e.Error.Value
		case e.End != nil && e.End.Outcome != box.CellOK && raised == "":
			raised = string(e.End.Outcome) + " " + e.End.Detail
		}
		return nil
	})
	if err == nil && raised != "" {
		err = box.Errorf(box.Invalid, "prepare template", "cannot run the %s snippet: %.500q", u.Language, raised)
	}
	return err
}

// contextOf is the first interpreter of a language.
func contextOf(ctx context.Context, g Agent, language string, spec box.ContextSpec) (box.CodeContext, error) {
	all, err := g.Contexts(ctx)
	if err != nil {
		return box.CodeContext{}, err
	}
	for _, c := range all {
		if c.Language == language {
			return c, nil
		}
	}
	spec.Language = language
	return g.OpenContext(ctx, spec)
}

// template returns one that is prepared.
func (s *Service) template(name string) (*template, error) {
	t := s.templates[name]
	if t == nil {
		return nil, box.Errorf(box.NotFound, "use template", "cannot find template %.80q", name).
			WithHint("the daemon's --templates file says which there are")
	}
	return t, t.ready()
}

// ready is nil of one that is prepared.
func (t *template) ready() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held != nil {
		return nil
	}
	e := box.Errorf(box.Unavailable, "use template", "cannot use template %s yet: it is being prepared", t.Name)
	if t.err != nil {
		e = box.Errorf(box.Unavailable, "use template", "cannot use template %s: it could not be prepared: %w", t.Name, t.err)
	}
	e.Retry = time.Second
	return e
}

// origin is what a copy is made from.
func (t *template) origin() *origin {
	t.mu.Lock()
	defer t.mu.Unlock()
	held := t.held
	return &origin{tier: t.shape.Tier, kind: box.SnapshotMemory, reason: "template " + t.Name, open: func(context.Context) (*snapshot.Held, error) { return held.Copy() }}
}

// createLike makes a box from a template: a copy that is kept warm, or else one that
// is made now. What the template says is decided again, by today's rules.
func (s *Service) createLike(ctx context.Context, c box.Caller, req box.CreateRequest, request []byte) (box.Info, error) {
	t, err := s.template(req.Template)
	if err != nil {
		return box.Info{}, err
	}
	req.Sandbox = t.Sandbox
	w, err := s.wish(c, req)
	if err != nil {
		return box.Info{}, err
	}
	w.request = request
	w.Reuse, w.template, w.from = t.Size > 0, t.Name, t.origin()
	return s.create(ctx, c, req, w)
}

func (s *Service) closeTemplates() {
	for _, t := range s.templates {
		t.mu.Lock()
		if t.held != nil {
			t.held.Close()
		}
		t.mu.Unlock()
	}
}
