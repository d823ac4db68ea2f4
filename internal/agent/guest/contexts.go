package guest

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/agentpb"
)

// isContextName reports whether an agent may call a context that. It goes into URLs.
func isContextName(s string) bool { return box.IsPlainName(s, 64) }

// OpenContext implements box.Guest.
func (g *Guest) OpenContext(ctx context.Context, spec box.ContextSpec) (box.CodeContext, error) {
	const op = "open context"
	for _, s := range append([]string{spec.Language, spec.Dir, string(spec.User)}, spec.Env...) {
		if strings.Contains(s, "\x00") || !utf8.ValidString(s) {
			return box.CodeContext{}, refused(op, "%q is not text without NUL", cut(s, 100))
		}
	}
	res, err := call(ctx, g.patient(), op, g.contexts.Open, &agentpb.OpenRequest{Language: spec.Language, Dir: spec.Dir, Env: spec.Env, User: string(spec.User)})
	if err != nil {
		return box.CodeContext{}, err
	}
	return told(ctx, op, res.Context, "")
}

// Contexts implements box.Guest.
func (g *Guest) Contexts(ctx context.Context) ([]box.CodeContext, error) {
	const op = "list contexts"
	res, err := again(ctx, g, op, g.contexts.List, &agentpb.ListContextsRequest{})
	if err != nil {
		return nil, err
	}
	if len(res.Contexts) > maxList {
		return nil, failed(ctx, op, lie("%d contexts", len(res.Contexts)))
	}
	all := make([]box.CodeContext, 0, len(res.Contexts))
	seen := map[string]bool{}
	for _, m := range res.Contexts {
		c, err := told(ctx, op, m, "")
		if err != nil {
			return nil, err
		}
		if seen[c.ID] {
			return nil, failed(ctx, op, lie("a context twice"))
		}
		seen[c.ID] = true
		all = append(all, c)
	}
	return all, nil
}

// Interrupt implements box.Guest.
func (g *Guest) Interrupt(ctx context.Context, id string) error {
	const op = "interrupt context"
	if err := known(op, id); err != nil {
		return err
	}
	_, err := call(ctx, g, op, g.contexts.Interrupt, &agentpb.InterruptRequest{Context: id})
	return err
}

// RestartContext implements box.Guest.
func (g *Guest) RestartContext(ctx context.Context, id string) (box.CodeContext, error) {
	const op = "restart context"
	if err := known(op, id); err != nil {
		return box.CodeContext{}, err
	}
	res, err := call(ctx, g.patient(), op, g.contexts.Restart, &agentpb.RestartRequest{Context: id})
	if err != nil {
		return box.CodeContext{}, err
	}
	return told(ctx, op, res.Context, id)
}

// CloseContext implements box.Guest.
func (g *Guest) CloseContext(ctx context.Context, id string) error {
	const op = "close context"
	if err := known(op, id); err != nil {
		return err
	}
	_, err := call(ctx, g.patient(), op, g.contexts.Close, &agentpb.CloseRequest{Context: id})
	return err
}

// known spares a name that no context can have the way into the box.
func known(op, id string) error {
	if isContextName(id) {
		return nil
	}
	return box.Errorf(box.NotFound, op, "cannot %s: there is no context %q", op, cut(id, 64))
}

// told reads what an agent tells of a context, that with the given id unless it
// is empty.
func told(ctx context.Context, op string, m *agentpb.Context, id string) (box.CodeContext, error) {
	c, err := codeContext(m)
	if err == nil && id != "" && c.ID != id {
		err = lie("another context than was asked for")
	}
	if err != nil {
		return box.CodeContext{}, failed(ctx, op, err)
	}
	return c, nil
}

func codeContext(m *agentpb.Context) (box.CodeContext, error) {
	if m == nil {
		return box.CodeContext{}, lie("no context")
	}
	c := box.CodeContext{
		ID: m.Id, Language: m.Language, Kernel: cut(m.Kernel, maxShort), Dir: m.Dir, Count: int(m.Count),
		Started: past(m.StartedUnixMillis), Detail: cut(m.Detail, maxWords),
	}
	if !isContextName(c.ID) {
		return c, lie("the name %q of a context", cut(c.ID, 64))
	}
	if err := checkText(c.Language, 64, "a language"); err != nil {
		return c, err
	}
	for _, text := range []string{c.Kernel, c.Detail} {
		if err := checkText(text, maxShort, "words"); err != nil {
			return c, err
		}
	}
	if c.Dir != "" {
		if err := checkPath(c.Dir); err != nil {
			return c, err
		}
	}
	if m.Count > 1<<31-1 {
		return c, lie("%d cells", m.Count)
	}
	switch m.State {
	case agentpb.Context_STATE_IDLE:
		c.State = box.ContextIdle
	case agentpb.Context_STATE_BUSY:
		c.State = box.ContextBusy
	case agentpb.Context_STATE_DEAD:
		c.State = box.ContextDead
	default:
		return c, lie("an unknown state (%d)", m.State)
	}
	return c, nil
}
