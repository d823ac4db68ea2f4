// Package engine is the spine: admit, decide, create, run, collect, destroy.
// It holds the clock and counts the output, so that every tier is measured by
// the same hand; what only a kernel can know comes from the tier.
//
// One request makes one box, and the box is destroyed before Run returns,
// whatever happened. Nothing is retried once a program may have started: a
// repeated side effect is worse than an error.
package engine

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host/hostfs"
	"github.com/sunaba-dev/sunaba/internal/policy"
	"github.com/sunaba-dev/sunaba/internal/stream"
)

// Engine runs requests on the tiers of this build. It is safe for concurrent
// use.
type Engine struct {
	Tiers []box.Tier // in this build, in any order
	// Egress gives boxes a network; nil gives none.
	Egress Egress
}

// Egress hands the links of boxes over to the gateway, with compiled rules. A
// generation counts the changes of a box's rules, from 1.
type Egress interface {
	// Attach takes over the link's file. What comes out of the box is judged when it
	// returns. A box that is a copy knows the names that Names told of the other one.
	Attach(ctx context.Context, id box.ID, l box.Link, rules json.RawMessage, generation uint64, names []byte) error
	// Names tells which names a box with a link was told addresses for.
	Names(id box.ID) ([]byte, error)
	// Update puts other rules in force, of a higher generation.
	Update(ctx context.Context, id box.ID, rules json.RawMessage, generation uint64) error
	// Traffic is Unavailable of a box whose link is not there.
	Traffic(context.Context, box.ID) (box.Traffic, error)
	// Detach gives up the link; nothing answers the box any more.
	Detach(context.Context, box.ID) box.Traffic
	// Sweep forgets all boxes but those that keep says are there.
	Sweep(keep func(box.ID) bool) error
}

// Request is one run.
type Request struct {
	ID      box.ID         // of the box; empty = a new one
	Policy  policy.Request // what is asked for; its ID and Hostname are filled in here
	Command box.Command
	User    box.User

	Stdin          io.Reader
	Stdout, Stderr io.Writer // live copies; nil = none
	Resize         <-chan box.WindowSize

	Capture bool         // keep output for the report, up to the output limit
	Collect bool         // list and read what the program left in its working folder
	Out     *hostfs.Dir  // where to save artifacts; nil = nowhere; implies Collect
	Phase   func(string) // told what is being done, in a word or two; nil = nobody
}

// PhaseRunning is the phase in which the program has its streams.
const PhaseRunning = "running"

// Report outcomes beside the document itself.
const (
	destroyTimeout = 20 * time.Second
	hostname       = "sunaba"
	outputLimit    = "max_output"
	outputCounter  = "output counter"
)

// Run runs one request to its end. The report is never nil. The error, which
// the report repeats, is Sunaba's failure, not the program's.
func (e *Engine) Run(ctx context.Context, req Request) (*box.Report, error) {
	r := &run{e: e, req: req, started: time.Now()}
	r.rep = newReport(req)
	err := r.do(ctx)
	if err != nil {
		r.rep.Error = errorJSON(err)
	}
	r.fill()
	return r.rep, err
}

// run is one request on its way.
type run struct {
	e       *Engine
	req     Request
	rep     *box.Report
	started time.Time

	budget     *stream.Budget
	activity   *stream.Activity
	delivering atomic.Int32 // writes that have not returned
	out, err   captured
}

// captured is one output stream's account.
type captured struct {
	capture *stream.Capture
	writer  *stream.BudgetWriter
}

func (r *run) phase(s string) {
	if r.req.Phase != nil {
		r.req.Phase(s)
	}
}

func (r *run) do(ctx context.Context) (err error) {
	d, tier, err := r.decide()
	if err != nil {
		return err
	}
	r.phase("starting the box")
	b, err := tier.Create(ctx, d.Spec)
	if err != nil && ctx.Err() != nil {
		r.rep.Cause = box.Canceled // before anything ran
		return nil
	}
	if err != nil {
		return r.e.explain(ctx, tier, err)
	}
	defer func() { err = errors.Join(err, destroy(ctx, b)) }()
	r.rep.Weak = append(r.rep.Weak, b.Weak()...)
	if r.req.Policy.MustNotBeWeak && len(r.rep.Weak) > 0 {
		return box.Errorf(box.Denied, "run", "cannot run: this host cannot enforce everything: %s", strings.Join(r.rep.Weak, "; ")).
			WithHint("run `sunaba doctor` to see what this host lacks, or allow what is weak by leaving out --strict")
	}
	if n, ok := b.(interface{ RootImage() string }); ok {
		r.rep.Image = n.RootImage()
	}
	if d.Spec.Net.Mode == box.NetAllowlist {
		if err := r.e.link(ctx, b, r.req.Policy.Reach, 1, nil); err != nil {
			return err
		}
		defer func() { r.rep.Network = r.e.Egress.Detach(context.WithoutCancel(ctx), b.ID()) }()
	}
	r.phase(PhaseRunning)
	res, err := r.runCommand(ctx, b, d.Spec)
	if err != nil {
		return err
	}
	res = r.counted(res)
	r.result(res)
	if r.req.Collect || r.req.Out != nil {
		r.phase("collecting files")
		r.collect(ctx, b, d.Spec, res)
	}
	return nil
}

// decide asks policy and notes the answer.
func (r *run) decide() (policy.Decision, box.Tier, error) {
	p := r.req.Policy
	if r.rep.ID = r.req.ID; r.rep.ID == "" {
		r.rep.ID = r.e.newID()
	}
	d, tier, err := r.e.decide(p, r.rep.ID)
	if err != nil {
		return d, nil, err
	}
	r.rep.Tier, r.rep.TierReason = d.Tier, d.Reason
	r.rep.Policy = policy.InForce(d.Spec, p.Trust, r.req.User)
	r.rep.Image = string(d.Spec.Image)
	d.Spec.NoMount = refusedFor(d.Spec.NoMount, true) // what the tier compares by inode
	return d, tier, nil
}

// decide asks policy, after the mounts' sources were judged as what they are.
func (e *Engine) decide(p policy.Request, id box.ID) (policy.Decision, box.Tier, error) {
	p.Spec.ID = id
	p.Spec.Hostname = hostname
	var err error
	if p.Spec.Mounts, err = judgeMounts(p.Spec.Mounts, p.Spec.NoMount, p.MountRoots); err != nil {
		return policy.Decision{}, nil, err
	}
	h := policy.Host{Usable: make(map[box.TierName]box.Caps), Gateway: e.Egress != nil}
	for _, t := range e.Tiers {
		h.Built = append(h.Built, t.Name())
		// Whether it really works is seen by creating the box: that fails
		// with a reason, and never falls back to another tier.
		h.Usable[t.Name()] = box.Caps{Usable: true}
	}
	d, err := policy.Decide(p, h)
	if err != nil {
		return d, nil, err
	}
	if t := e.tier(d.Tier); t != nil {
		return d, t, nil
	}
	return d, nil, box.Errorf(box.Fault, "run", "cannot run: tier %s was chosen but is not here", d.Tier)
}

// tier returns the tier of that name, nil if it is not in this build.
func (e *Engine) tier(name box.TierName) box.Tier {
	for _, t := range e.Tiers {
		if t.Name() == name {
			return t
		}
	}
	return nil
}

// explain adds what probing finds to an error that says the host cannot do it,
// or that does not say why there is no box.
func (e *Engine) explain(ctx context.Context, t box.Tier, err error) error {
	told := &box.Error{}
	errors.As(err, &told)
	kind := box.KindOf(err)
	if kind != box.Unusable && kind != box.Fault {
		return err
	}
	caps := t.Probe(ctx)
	news := slices.DeleteFunc(slices.Clone(caps.Missing), func(m string) bool { return strings.HasPrefix(m, "whole box: ") })
	if kind == box.Fault && len(news) == 0 {
		return err // a box fails for doctor, too, and it knows no reason either
	}
	be := box.Errorf(box.Unusable, "create box", "%w", err)
	if len(caps.Missing) > 0 {
		be = box.Errorf(box.Unusable, "create box", "%w (missing: %s)", err, caps.Missing[0])
	}
	if told.Hint != "" {
		return be.WithHint("%s", told.Hint)
	}
	for _, s := range caps.Steps {
		if s.State == box.Missing && s.Advice != "" && len(caps.Missing) > 0 && strings.HasPrefix(caps.Missing[0], s.Name+": ") {
			return be.WithHint("%s; `sunaba doctor` tries every step", s.Advice)
		}
	}
	return be.WithHint("run `sunaba doctor`; it says for each step what this host refuses and what to do")
}

func destroy(ctx context.Context, b box.Box) error {
	dctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), destroyTimeout)
	defer cancel()
	if err := b.Destroy(dctx); err != nil {
		return box.Errorf(box.Fault, "destroy box", "cannot destroy box %s: %w", b.ID(), err)
	}
	return nil
}

// runCommand runs the program with the clock and the counters around it.
func (r *run) runCommand(ctx context.Context, b box.Box, spec box.Spec) (box.Result, error) {
	l := spec.Limits
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.activity = stream.NewActivity()
	r.budget = stream.NewBudget(l.Output, func() {
		cancel(&box.Stop{Cause: box.OutputLimit, Limit: outputLimit, Source: outputCounter})
	})
	st := box.Streams{
		Stdout: r.stream(&r.out, r.req.Stdout, l.Output),
		Stderr: r.stream(&r.err, r.req.Stderr, l.Output),
		Resize: r.req.Resize,
	}
	if r.req.Stdin != nil {
		st.Stdin = touchReader{r.req.Stdin, r.activity}
	}
	if l.Timeout > 0 {
		t := time.AfterFunc(l.Timeout, func() {
			cancel(&box.Stop{Cause: box.Deadline, Limit: "timeout_sec", Source: "clock", Grace: l.Grace})
		})
		defer t.Stop()
	}
	go func() {
		for r.activity.Wait(ctx, l.Idle) {
			if r.delivering.Load() == 0 {
				cancel(&box.Stop{Cause: box.Idle, Limit: "idle_sec", Source: "clock", Grace: l.Grace})
				return
			}
			r.activity.Touch() // it is the caller's reader who does nothing
		}
	}()
	return b.Run(ctx, r.req.Command, st)
}

// stream builds one output stream: counted first, then kept and shown.
func (r *run) stream(c *captured, live io.Writer, limit int64) io.Writer {
	var ws []io.Writer
	if r.req.Capture {
		c.capture = stream.NewCapture(limit)
		ws = append(ws, c.capture)
	}
	if live != nil {
		ws = append(ws, live)
	}
	c.writer = r.budget.Writer(io.MultiWriter(ws...))
	return touchWriter{c.writer, r}
}

type touchWriter struct {
	w io.Writer
	r *run
}

func (t touchWriter) Write(p []byte) (int, error) {
	t.r.delivering.Add(1)
	defer t.r.delivering.Add(-1)
	defer t.r.activity.Touch()
	return t.w.Write(p)
}

type touchReader struct {
	r io.Reader
	a *stream.Activity
}

func (t touchReader) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	if n > 0 {
		t.a.Touch()
	}
	return n, err
}
