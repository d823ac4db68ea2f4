package mcp

import (
	"context"
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/sunaba-dev/sunaba/box"
)

// runOut is what became of code or a command.
type runOut struct {
	SandboxID string   `json:"sandbox_id,omitempty" jsonschema:"absent if the box is gone"`
	ContextID string   `json:"context_id,omitempty" jsonschema:"the code context that ran it"`
	Kernel    string   `json:"kernel,omitempty" jsonschema:"what ran the code in the context"`
	PID       int      `json:"pid,omitempty" jsonschema:"the process in the box"`
	Cause     string   `json:"cause" jsonschema:"how it ended: exited, signaled, deadline, outofmemory, outputlimit, ... of a program; ok, error, interrupted, timeout or died of code in a context; running for a background process"`
	ExitCode  *int     `json:"exit_code,omitempty" jsonschema:"present if cause is exited"`
	Signal    *int     `json:"signal,omitempty" jsonschema:"present if cause is signaled"`
	TimedOut  bool     `json:"timed_out"`
	Timeout   float64  `json:"timeout_sec" jsonschema:"the limit that was in force; 0 = none"`
	Duration  float64  `json:"duration_sec"`
	Stdout    output   `json:"stdout"`
	Stderr    output   `json:"stderr"`
	Truncated bool     `json:"truncated" jsonschema:"stdout or stderr is not here as a whole"`
	Limits    []string `json:"limits_hit" jsonschema:"limits that were touched"`
	Weak      []string `json:"weak,omitempty" jsonschema:"what this host cannot enforce"`

	Results []result   `json:"results,omitempty" jsonschema:"values that the code showed or ended with"`
	Error   *codeError `json:"error,omitempty" jsonschema:"what the code raised"`
	Count   int        `json:"execution_count,omitempty"`

	Denied []denied `json:"network_denied,omitempty" jsonschema:"what the network did not let through while it ran; what is denied stays denied"`

	Files []leftFile `json:"files,omitempty" jsonschema:"files that the program left in a box that is gone"`
}

// output is one stream. Its text is cleaned: what is invisible or would act on
// a terminal is shown as an escape.
type output struct {
	Text      string `json:"text" jsonschema:"cleaned; the beginning and the end if truncated"`
	Bytes     int64  `json:"bytes" jsonschema:"written in all"`
	Truncated bool   `json:"truncated"`
	Resource  string `json:"resource,omitempty" jsonschema:"URI of the rest, for resources/read"`
}

type result struct {
	Main  bool              `json:"main" jsonschema:"the value of the last expression"`
	Forms map[string]string `json:"forms" jsonschema:"by MIME type; images are content of the answer, not here"`
}

type codeError struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	Traceback string `json:"traceback"`
}

type leftFile struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
}

// report puts an answer together.
type report struct {
	out    runOut
	word   string // nonce
	box    string // for fences
	blocks []sdk.Content
	links  []sdk.Content
}

func (c call) newReport(box string) *report {
	return &report{word: nonce(), box: box, out: runOut{Limits: []string{}}}
}

// stream adds a stream's text, and a link if there is more of it at uri.
func (r *report) stream(name string, e *excerpt, lost bool, uri string) output {
	o := output{Text: e.clean(r.word), Bytes: e.total, Truncated: e.left() > 0 || lost}
	if o.Bytes > 0 {
		r.blocks = append(r.blocks, text(fence(r.word, fmt.Sprintf("box=%q stream=%q", r.box, name), o.Text)))
	}
	if o.Truncated {
		r.out.Truncated = true
		say := fmt.Sprintf("%s has %d bytes; shown are the first %d and the last %d", name, e.total, len(e.head), len(e.tail))
		if uri != "" {
			o.Resource = uri
			say += "; all that is kept of it: " + uri
			size := e.total
			r.links = append(r.links, &sdk.ResourceLink{URI: uri, Name: name, MIMEType: "text/plain", Size: &size,
				Description: "the whole " + name + ", cleaned"})
		}
		r.blocks = append(r.blocks, text(say))
	}
	return o
}

// answer puts the sentence about the end first.
func (r *report) answer(end string) (answer[runOut], error) {
	content := append([]sdk.Content{text(end)}, r.blocks...)
	return answer[runOut]{r.out, append(content, r.links...)}, nil
}

// defaultTimeout ends a command in a box if the caller does not say when to.
const defaultTimeout = 60 * time.Second

// timeout reads timeout_sec.
func timeout(v *float64, usual time.Duration) (time.Duration, error) {
	if v == nil {
		return usual, nil
	}
	return seconds("timeout_sec", *v)
}

// once runs something in a box of its own.
func (c call) once(ctx context.Context, req box.ExecuteRequest, wanted map[string]any, limit *float64) (answer[runOut], error) {
	if limit != nil {
		if _, err := timeout(limit, 0); err != nil {
			return answer[runOut]{}, err
		}
		wanted["resource_limits"] = map[string]any{"timeout_sec": *limit}
	}
	var err error
	if req.Sandbox, err = c.withBase(wanted); err != nil {
		return answer[runOut]{}, err
	}
	req.Collect = true
	rep, err := c.cfg.Service.Execute(ctx, c.caller, req)
	switch {
	case err != nil:
		return answer[runOut]{}, err
	case rep == nil || rep.Error != nil && rep.Cause == "":
		return answer[runOut]{}, box.Errorf(box.Fault, "execute", "cannot tell what became of the run")
	}
	return c.tell(rep)
}

func (c call) tell(rep *box.Report) (answer[runOut], error) {
	r := c.newReport("gone")
	o := &r.out
	o.Cause, o.ExitCode, o.Signal = string(rep.Cause), rep.ExitCode, rep.Signal
	o.TimedOut = rep.Cause == box.Deadline || rep.Cause == box.Idle
	o.Timeout, o.Duration, o.Weak = rep.Policy.Limits.TimeoutSec, rep.Usage.WallSeconds, rep.Weak
	for _, h := range rep.LimitsHit {
		o.Limits = append(o.Limits, h.Limit)
	}
	o.Stdout = r.whole(c, "stdout", rep.StdoutClean, rep.StdoutBytes, rep.StdoutTruncated)
	o.Stderr = r.whole(c, "stderr", rep.StderrClean, rep.StderrBytes, rep.StderrTruncated)
	r.denied(rep.Network.Denied)
	const most = 100
	for i, a := range rep.Artifacts {
		if i < most {
			o.Files = append(o.Files, leftFile{clean(a.Path), a.Size})
		}
	}
	end := ending(*o)
	if n := len(rep.Artifacts); n > 0 {
		end += fmt.Sprintf("\nit left %d files, which are gone with their box; use create_box to keep files", n)
	}
	return r.answer(end)
}

// whole adds a stream of which a report has all that was kept, already clean.
func (r *report) whole(c call, name, clean string, bytes int64, lost bool) output {
	e := excerptOf(clean)
	uri := ""
	if e.left() > 0 {
		if name := c.cfg.Outputs.Put(c.caller.Tenant, "", clean); name != "" {
			uri = outputsURI + name
		}
	}
	o := r.stream(name, e, lost, uri)
	o.Bytes = bytes
	return o
}

// ending says how a program ended, in a sentence.
func ending(o runOut) string {
	after := fmt.Sprintf(" after %.2f s", o.Duration)
	switch box.Cause(o.Cause) {
	case box.Exited:
		return fmt.Sprintf("exit code %d%s", *o.ExitCode, after)
	case box.Signaled:
		return fmt.Sprintf("ended by signal %d%s", *o.Signal, after)
	case box.Deadline:
		return fmt.Sprintf("ended at its time limit, timeout_sec %g", o.Timeout)
	case box.OutOfMemory:
		return "ended for want of memory" + after + "; resource_limits.memory is the limit"
	case box.OutputLimit:
		return "ended because it wrote more than resource_limits.max_output" + after
	case box.Lost:
		return "lost" + after + ": nobody saw how it ended"
	}
	end := fmt.Sprintf("ended: %s%s", o.Cause, after)
	if len(o.Limits) > 0 {
		end += "; limits touched: " + strings.Join(o.Limits, ", ")
	}
	return end
}
