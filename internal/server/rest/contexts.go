package rest

import (
	"context"
	"slices"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

type openRequest struct {
	BoxPath
	Body struct {
		Language string            `json:"language" enum:"python,javascript,bash"`
		Dir      string            `json:"dir,omitempty" maxLength:"4096" doc:"Absolute; the box's working folder if absent."`
		Env      map[string]string `json:"env,omitempty"`
		User     string            `json:"user,omitempty" enum:"user,root"`
	}
}

// CodeContext is what is known of an interpreter.
type CodeContext struct {
	ID       string           `json:"id"`
	Language string           `json:"language"`
	Kernel   string           `json:"kernel" doc:"What runs the code, as in ipython 8.5.0."`
	Dir      string           `json:"dir"`
	State    box.ContextState `json:"state" enum:"idle,busy,dead"`
	Count    int              `json:"execution_count" doc:"Cells run since the start or the last restart."`
	Started  time.Time        `json:"started_at"`
	Detail   string           `json:"detail,omitempty" doc:"Why it is dead."`
}

func contextOf(c box.CodeContext) CodeContext {
	return CodeContext{ID: c.ID, Language: c.Language, Kernel: c.Kernel, Dir: c.Dir, State: c.State, Count: c.Count, Started: c.Started.UTC(), Detail: c.Detail}
}

func (a *API) openContext(ctx context.Context, in *openRequest) (CodeContext, error) {
	g, err := a.guest(ctx, in.ID, box.ScopeExec)
	if err != nil {
		return CodeContext{}, err
	}
	ctx, cancel := a.call(ctx)
	defer cancel()
	spec := box.ContextSpec{Language: in.Body.Language, Dir: in.Body.Dir, User: box.User(in.Body.User)}
	for name, value := range in.Body.Env {
		spec.Env = append(spec.Env, name+"="+value)
	}
	slices.Sort(spec.Env)
	c, err := g.OpenContext(ctx, spec)
	if err != nil {
		return CodeContext{}, err
	}
	return contextOf(c), nil
}

type contextList struct {
	BoxPath
	PageQuery
}

// ContextPage is a page of interpreters.
type ContextPage struct {
	Contexts []CodeContext `json:"contexts"`
	Next     string        `json:"next" doc:"The cursor of the next page; empty at the end."`
}

func (a *API) contextList(ctx context.Context, in *contextList) (ContextPage, error) {
	g, err := a.guest(ctx, in.ID, box.ScopeRead)
	if err != nil {
		return ContextPage{}, err
	}
	ctx, cancel := a.call(ctx)
	defer cancel()
	all, err := g.Contexts(ctx)
	if err != nil {
		return ContextPage{}, err
	}
	some, next, err := page(all, in.PageQuery)
	if err != nil {
		return ContextPage{}, err
	}
	out := ContextPage{Contexts: []CodeContext{}, Next: next}
	for _, c := range some {
		out.Contexts = append(out.Contexts, contextOf(c))
	}
	return out, nil
}

// ContextPath names an interpreter of a box.
type ContextPath struct {
	BoxPath
	Context string `path:"ctx" maxLength:"64" doc:"The context's id."`
}

func (a *API) closeContext(ctx context.Context, in *ContextPath) error {
	ctx, cancel, g, err := a.files(ctx, in.ID, box.ScopeExec)
	if err != nil {
		return err
	}
	defer cancel()
	return g.CloseContext(ctx, in.Context)
}

func (a *API) interrupt(ctx context.Context, in *ContextPath) error {
	ctx, cancel, g, err := a.files(ctx, in.ID, box.ScopeExec)
	if err != nil {
		return err
	}
	defer cancel()
	return g.Interrupt(ctx, in.Context)
}

func (a *API) restart(ctx context.Context, in *ContextPath) (CodeContext, error) {
	ctx, cancel, g, err := a.files(ctx, in.ID, box.ScopeExec)
	if err != nil {
		return CodeContext{}, err
	}
	defer cancel()
	c, err := g.RestartContext(ctx, in.Context)
	if err != nil {
		return CodeContext{}, err
	}
	return contextOf(c), nil
}

// ofLanguage returns the box's first context of a language, and opens one if
// there is none. Of two that were opened at once the older stays, so that both
// callers find the same variables.
func ofLanguage(ctx context.Context, g box.Guest, language string) (string, error) {
	first := func() (string, error) {
		all, err := g.Contexts(ctx)
		i := slices.IndexFunc(all, func(c box.CodeContext) bool { return c.Language == language })
		if err != nil || i < 0 {
			return "", err
		}
		return all[i].ID, nil
	}
	if id, err := first(); id != "" || err != nil {
		return id, err
	}
	mine, err := g.OpenContext(ctx, box.ContextSpec{Language: language})
	if err != nil {
		return "", err
	}
	id, err := first()
	if err != nil || id == "" || id == mine.ID {
		return mine.ID, nil
	}
	g.CloseContext(ctx, mine.ID) // nobody knows of it
	return id, nil
}
