package mcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/sunaba-dev/sunaba/box"
)

// call is one call of a tool.
type call struct {
	*Server
	caller box.Caller
}

// handler runs a tool with arguments that were not looked at yet.
type handler func(ctx context.Context, c call, args json.RawMessage) (*sdk.CallToolResult, error)

// answer is what a tool says: to a program, and to a model.
type answer[Out any] struct {
	out     Out
	content []sdk.Content
}

// add puts a tool into the server. Both schemas come from the types: every
// property that has no omitempty is required, and no others are allowed.
func add[In, Out any](s *Server, t sdk.Tool, run func(call, context.Context, In) (answer[Out], error)) {
	opts := &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[command](): commandSchema(),
	}}
	in, out := schemaOf[In](opts), schemaOf[Out](opts)
	resolved, err := in.Resolve(nil)
	if err != nil {
		panic("the schema of " + t.Name + " does not resolve: " + err.Error())
	}
	t.InputSchema, t.OutputSchema = in, out
	h := func(ctx context.Context, c call, raw json.RawMessage) (*sdk.CallToolResult, error) {
		args, err := decode[In](t.Name, resolved, raw)
		if err != nil {
			return c.failure(err), nil
		}
		a, err := run(c, ctx, args)
		switch {
		case ctx.Err() != nil && err != nil:
			return nil, ctx.Err()
		case err != nil:
			return c.failure(err), nil
		}
		return &sdk.CallToolResult{Content: a.content, StructuredContent: a.out}, nil
	}
	s.tools[t.Name] = h
	s.sdk.AddTool(&t, func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return s.serve(ctx, req, h)
	})
}

func schemaOf[T any](opts *jsonschema.ForOptions) *jsonschema.Schema {
	schema, err := jsonschema.For[T](opts)
	if err != nil {
		panic(err) // a test makes a server
	}
	onlyType(schema)
	return schema
}

// onlyType takes null out of types: what is optional may be left out, and many
// clients do not understand a type that is a list.
func onlyType(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if len(s.Types) == 2 && s.Types[0] == "null" {
		s.Type, s.Types = s.Types[1], nil
	}
	onlyType(s.Items)
	onlyType(s.AdditionalProperties)
	for _, p := range s.Properties {
		onlyType(p)
	}
}

// decode checks arguments against the schema that the client was shown.
func decode[In any](tool string, schema *jsonschema.Resolved, raw json.RawMessage) (In, error) {
	var in In
	if len(raw) == 0 || string(raw) == "null" {
		raw = json.RawMessage("{}")
	}
	var value any
	err := json.Unmarshal(raw, &value)
	if err == nil {
		err = schema.Validate(value)
	}
	if err == nil {
		err = json.Unmarshal(raw, &in)
	}
	if err != nil {
		why := clean(strings.ReplaceAll(err.Error(), "\n", ": "))
		return in, box.Errorf(box.Invalid, tool, "cannot call %s: %s", tool, why).
			WithHint("its arguments are %s", strings.Join(schema.Schema().PropertyOrder, ", "))
	}
	return in, nil
}

// serve runs a tool for a client: for as long as somebody waits for the answer,
// and with signs of life if they asked for some.
func (s *Server) serve(ctx context.Context, req *sdk.CallToolRequest, h handler) (*sdk.CallToolResult, error) {
	r, ok := ctx.Value(contextKey{}).(*request)
	if !ok {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "cannot serve this: nobody authenticated the request"}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	beats := s.beats(ctx, req)
	go func() {
		select {
		case <-r.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	res, err := h(ctx, call{s, r.caller}, req.Params.Arguments)
	cancel()
	<-beats // nothing may follow the answer
	return res, err
}

// beats sends progress until ctx ends, and closes what it returns after the last.
func (s *Server) beats(ctx context.Context, req *sdk.CallToolRequest) <-chan struct{} {
	done := make(chan struct{})
	token := req.Params.GetProgressToken()
	if token == nil {
		close(done)
		return done
	}
	go func() {
		defer close(done)
		start := time.Now()
		tick := time.NewTicker(s.cfg.Beat)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			err := req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{
				ProgressToken: token,
				Progress:      float64(n),
				Message:       fmt.Sprintf("%s runs for %d s", req.Params.Name, int(time.Since(start).Seconds())),
			})
			if err != nil {
				return // the client is gone; who waits for it will notice
			}
		}
	}()
	return done
}

// failure tells a model what went wrong and what it can do. Of our own failures
// it learns a number, which is in the log beside the rest.
func (s *Server) failure(err error) *sdk.CallToolResult {
	var be *box.Error
	var said *told
	if errors.As(err, &said) {
		return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{text(said.text)}}
	}
	if !errors.As(err, &be) || be.Kind == box.Fault {
		id := rand.Text()[:10]
		s.cfg.Logger.Error("call failed", "id", id, "error", err)
		be = box.Errorf(box.Fault, "call", "cannot do this: Sunaba failed; its log knows more under %s", id)
	}
	// What an interpreter that cannot be started said is a program's.
	message, words, _ := strings.Cut(be.Message, "; it said: ")
	say := fmt.Sprintf("%s (%s)", message, be.Kind)
	hint := be.Hint
	if be.Retry > 0 {
		hint = cmp.Or(hint, fmt.Sprintf("try again in %d s", int(max(be.Retry, time.Second)/time.Second)))
	}
	if hint != "" {
		say += "\nhint: " + hint
	}
	content := []sdk.Content{text(clean(say))}
	if words != "" {
		content = append(content, text(fence(nonce(), `about="interpreter"`, clean(words))))
	}
	return &sdk.CallToolResult{IsError: true, Content: content}
}
