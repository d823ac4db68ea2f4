package mcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/stream"
)

type codeArgs struct {
	Language  string   `json:"language" jsonschema:"python, javascript or bash"`
	Code      string   `json:"code"`
	SandboxID string   `json:"sandbox_id,omitempty" jsonschema:"from create_box; left out: a new box, gone afterwards"`
	ContextID string   `json:"context_id,omitempty" jsonschema:"from an earlier call with this sandbox_id; new opens another context"`
	Timeout   *float64 `json:"timeout_sec,omitempty" jsonschema:"seconds until the code is interrupted; 60 by default; 0 = no limit, with sandbox_id"`
}

// newContext is the context_id that asks for one more.
const newContext = "new"

func (c call) runCode(ctx context.Context, in codeArgs) (answer[runOut], error) {
	switch {
	case in.SandboxID != "":
		return c.codeIn(ctx, in)
	case in.ContextID != "":
		return answer[runOut]{}, box.Errorf(box.Invalid, "run_code", "cannot use context_id without the sandbox_id of its box")
	}
	return c.once(ctx, box.ExecuteRequest{Language: in.Language, Code: in.Code}, map[string]any{}, in.Timeout)
}

// codeIn runs code in a context of a box that lasts.
func (c call) codeIn(ctx context.Context, in codeArgs) (answer[runOut], error) {
	id, g, err := c.guest(ctx, in.SandboxID, box.ScopeExec)
	if err != nil {
		return answer[runOut]{}, err
	}
	limit, err := timeout(in.Timeout, defaultTimeout)
	if err != nil {
		return answer[runOut]{}, err
	}
	cc, fresh, err := contextFor(ctx, g, in)
	if err != nil {
		return answer[runOut]{}, err
	}
	r := c.newReport(string(id))
	o := &r.out
	o.SandboxID, o.ContextID, o.Kernel, o.Timeout = string(id), cc.ID, clean(cc.Kernel), limit.Seconds()
	cell := box.Cell{ID: rand.Text(), Code: in.Code, Timeout: limit, Attached: true}
	before := c.traffic(ctx, id)
	var out, errs strings.Builder
	var end *box.CellEnd
	var values []*box.CellResult
	err = g.RunCell(ctx, cc.ID, cell, func(e box.CellEvent) error {
		switch e.Kind {
		case box.EventStdout:
			out.WriteString(e.Text)
		case box.EventStderr:
			errs.WriteString(e.Text)
		case box.EventResult:
			values = append(values, e.Result)
		case box.EventError:
			o.Error = &codeError{clean(e.Error.Name), clean(e.Error.Value), excerptOf(e.Error.Traceback).clean(r.word)}
		case box.EventEnd:
			end = e.End
		}
		return nil
	})
	if err == nil && end == nil {
		err = box.Errorf(box.Unavailable, "run_code", "cannot tell how the code ended: its story has no end")
	}
	if err != nil {
		return answer[runOut]{}, err
	}
	o.Cause, o.Count, o.Duration = string(end.Outcome), end.Count, end.Duration.Seconds()
	o.TimedOut = end.Outcome == box.CellTimeout
	if o.TimedOut {
		o.Limits = append(o.Limits, "timeout_sec")
	}
	o.Stdout = r.text(c, id, "stdout", out.String())
	o.Stderr = r.text(c, id, "stderr", errs.String())
	for _, res := range values {
		o.Results = append(o.Results, r.result(c, id, res))
	}
	// What it raised, and how the interpreter ended, are words of the box: the first
	// line, which is ours, has none of them.
	if o.Error != nil {
		trace := cmp.Or(o.Error.Traceback, excerptOf(o.Error.Name+": "+o.Error.Value).clean(r.word))
		r.blocks = append(r.blocks, text(fence(r.word, fmt.Sprintf("box=%q stream=\"traceback\"", r.box), trace)))
	}
	if end.Detail != "" {
		r.blocks = append(r.blocks, text(fence(r.word, fmt.Sprintf("box=%q about=\"interpreter\"", r.box), clean(end.Detail))))
	}
	r.deniedSince(ctx, c, id, before)
	say := cellEnding(*o, end)
	if fresh != "" {
		say = fresh + "\n" + say
	}
	if end.Dropped > 0 {
		o.Truncated = true
		say += fmt.Sprintf("\n%d bytes of its output were dropped: a cell may write %d", end.Dropped, box.DefaultCellOutput)
	}
	return r.answer(say)
}

// contextFor finds the context that code is for. The box's context of a language
// is the first one that lives; which one that is, is nothing to remember here.
func contextFor(ctx context.Context, g box.Guest, in codeArgs) (cc box.CodeContext, fresh string, err error) {
	all, err := g.Contexts(ctx)
	if err != nil {
		return cc, "", err
	}
	i := -1
	switch in.ContextID {
	case newContext:
	case "":
		i = slices.IndexFunc(all, func(k box.CodeContext) bool { return k.Language == canonical(in.Language) })
	default:
		i = slices.IndexFunc(all, func(k box.CodeContext) bool { return k.ID == in.ContextID })
		if i < 0 {
			return cc, "", box.Errorf(box.NotFound, "run_code", "cannot find context %q in the box", in.ContextID).
				WithHint("leave context_id out for the box's own context of the language")
		}
		if all[i].Language != canonical(in.Language) {
			return cc, "", box.Errorf(box.Invalid, "run_code", "cannot run %s in context %s: it runs %s", in.Language, in.ContextID, all[i].Language)
		}
	}
	switch {
	case i < 0:
		cc, err = g.OpenContext(ctx, box.ContextSpec{Language: canonical(in.Language)})
		if err == nil && in.ContextID == "" {
			cc, err = elder(ctx, g, cc)
		}
		return cc, "", err
	case all[i].State == box.ContextDead:
		cc, err = g.RestartContext(ctx, all[i].ID)
		return cc, "the context had died and was started anew: its variables are gone", err
	}
	return all[i], "", nil
}

// elder gives a context up that was opened while another call did the same: all
// calls have to agree on the box's context.
func elder(ctx context.Context, g box.Guest, mine box.CodeContext) (box.CodeContext, error) {
	all, err := g.Contexts(ctx)
	if err != nil {
		return mine, err
	}
	i := slices.IndexFunc(all, func(k box.CodeContext) bool { return k.Language == mine.Language })
	if i < 0 || all[i].ID == mine.ID {
		return mine, nil
	}
	_ = g.CloseContext(ctx, mine.ID) // nobody knows of it
	return all[i], nil
}

// canonical is the name that contexts have for a language.
func canonical(language string) string {
	switch l := strings.ToLower(language); l {
	case "py", "python3":
		return "python"
	case "js", "node":
		return "javascript"
	case "shell", "sh":
		return "bash"
	default:
		return l
	}
}

// text adds what a cell wrote.
func (r *report) text(c call, id box.ID, name, raw string) output {
	e := excerptOf(raw)
	uri := ""
	if e.left() > 0 {
		if name := c.cfg.Outputs.Put(c.caller.Tenant, id, stream.Clean([]byte(raw))); name != "" {
			uri = outputsURI + name
		}
	}
	return r.stream(name, e, false, uri)
}

// result adds one value: images as images, the best text form as text.
func (r *report) result(c call, id box.ID, res *box.CellResult) result {
	o := result{Main: res.Main, Forms: map[string]string{}}
	drawn := false
	for _, mime := range slices.Sorted(maps.Keys(res.Forms)) {
		form := res.Forms[mime]
		if mime != "image/png" && mime != "image/jpeg" {
			e := excerptOf(form)
			o.Forms[clean(mime)] = e.clean(r.word)
			r.out.Truncated = r.out.Truncated || e.left() > 0
			continue
		}
		data, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(form, "\n", ""))
		if err != nil {
			continue // nothing that an image could be made of
		}
		r.links = append(r.links, &sdk.ImageContent{Data: data, MIMEType: mime})
		drawn = true
	}
	for _, mime := range []string{"text/plain", "text/markdown", "application/json", "text/latex", "text/html", "image/svg+xml"} {
		if form, ok := o.Forms[mime]; ok && (!drawn || res.Main) {
			r.blocks = append(r.blocks, text(fence(r.word, fmt.Sprintf("box=%q stream=\"result\" type=%q", r.box, mime), form)))
			break
		}
	}
	return o
}

func cellEnding(o runOut, end *box.CellEnd) string {
	after := fmt.Sprintf(" after %.2f s", o.Duration)
	switch end.Outcome {
	case box.CellOK:
		return fmt.Sprintf("done, cell %d%s", end.Count, after)
	case box.CellRaised:
		return "the code raised an error" + after
	case box.CellTimeout:
		return fmt.Sprintf("interrupted at its time limit, timeout_sec %g; the variables are still there", o.Timeout)
	case box.CellInterrupted:
		return "interrupted" + after + "; the variables are still there"
	case box.CellDied:
		return "the interpreter ended" + after + ": its variables are gone"
	}
	return clean(string(end.Outcome)) + after
}

func clean(s string) string { return stream.Clean([]byte(s)) }
