package rest

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/server"
)

// route is one line of the table.
type route struct {
	pattern string // METHOD /path
	id      string
	scope   box.Scope // the right that it takes; empty: a key, or a signature
	summary string
	errors  []int // beyond those that every route has
	add     adder
	body    content // of a body that the handler reads itself; nil = none, or that of add's type
	answers answers // what is not JSON
	max     int64   // bytes of a JSON body; 0 = 1 MiB
	public  bool    // takes no key
}

// adder registers a handler under an operation.
type adder func(huma.API, huma.Operation)

// answers are the media types of a successful answer, and its status.
type answers struct {
	status int     // 0 = 200, or 204 without a body
	types  content // nil = none, or that of add's type
	about  string
}

// content makes the media types of a body.
type content func(huma.Registry) map[string]*huma.MediaType

func rawOf(kind string) content {
	return func(huma.Registry) map[string]*huma.MediaType {
		return map[string]*huma.MediaType{kind: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}}
	}
}

func jsonOf[T any](r huma.Registry) map[string]*huma.MediaType {
	return map[string]*huma.MediaType{"application/json": {Schema: r.Schema(reflect.TypeFor[T](), true, "")}}
}

func octets(kind string) answers { return answers{types: rawOf(kind)} }

func documentOf[T any]() answers { return answers{types: jsonOf[T]} }

// eventsOnly is a stream of events.
func eventsOnly(about string) answers {
	return answers{about: about, types: func(huma.Registry) map[string]*huma.MediaType {
		return map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}}}
	}}
}

// eventsOr is a stream of events, or one document if the client asks for that.
func eventsOr[T any](about string) answers {
	e := eventsOnly(about)
	return answers{about: about, types: func(r huma.Registry) map[string]*huma.MediaType {
		m := e.types(r)
		maps.Copy(m, jsonOf[T](r))
		return m
	}}
}

// pieceBody is a piece of input, as bytes or as JSON.
func pieceBody(r huma.Registry) map[string]*huma.MediaType {
	m := rawOf("application/octet-stream")(r)
	maps.Copy(m, jsonOf[InputPiece](r))
	return m
}

// typed is a handler that answers with one document.
func typed[I, O any](f func(context.Context, *I) (O, error)) adder {
	return func(api huma.API, op huma.Operation) {
		huma.Register(api, op, func(ctx context.Context, in *I) (*output[O], error) {
			server.Of(ctx).TakeTime()
			v, err := f(ctx, in)
			if err != nil {
				return nil, server.Explain(ctx, err)
			}
			return &output[O]{v}, nil
		})
	}
}

type output[O any] struct{ Body O }

// quiet is a handler that has nothing to say when all went well.
func quiet[I any](f func(context.Context, *I) error) adder {
	return func(api huma.API, op huma.Operation) {
		huma.Register(api, op, func(ctx context.Context, in *I) (*struct{}, error) {
			server.Of(ctx).TakeTime()
			if err := f(ctx, in); err != nil {
				return nil, server.Explain(ctx, err)
			}
			return nil, nil
		})
	}
}

// streamed is a handler that writes its answer itself, and reads a body that is
// not JSON. An error that it returns is answered with, so it may write nothing
// before.
func streamed[I any](f func(http.ResponseWriter, *http.Request, *I) error) adder {
	return func(api huma.API, op huma.Operation) {
		huma.Register(api, op, func(ctx context.Context, in *I) (*callback, error) {
			server.Of(ctx).TakeTime()
			return &callback{func(hc huma.Context) {
				r, w := humago.Unwrap(hc)
				if err := f(w, r, in); err != nil {
					server.Explain(r.Context(), err).Write(w)
				}
			}}, nil
		})
	}
}

type callback struct{ Body func(huma.Context) }

func (r route) method() string { return strings.Fields(r.pattern)[0] }
func (r route) path() string   { return strings.Fields(r.pattern)[1] }

// operation is the route for huma, with all that it declares.
func (a *API) operation(r route, schemas huma.Registry) huma.Operation {
	op := huma.Operation{
		OperationID:     r.id,
		Method:          r.method(),
		Path:            r.path(),
		Summary:         r.summary,
		BodyReadTimeout: a.Body,
		MaxBodyBytes:    r.max,
		DefaultStatus:   r.answers.status,
		Responses:       map[string]*huma.Response{},
		Security:        []map[string][]string{{"key": {}}, {"bearer": {}}},
		Tags:            []string{tag(r.path())},
	}
	if r.public {
		op.Security = []map[string][]string{{}}
	}
	if r.scope != "" {
		op.Extensions = map[string]any{"x-scope": string(r.scope)}
		op.Description = fmt.Sprintf("Takes a key with the scope `%s`.", r.scope)
	}
	if r.answers.about != "" {
		op.Description = strings.TrimSpace(op.Description + " " + r.answers.about)
	}
	if status := r.answers.status; r.answers.types != nil || status == http.StatusSwitchingProtocols {
		ok := &huma.Response{Description: http.StatusText(max(status, http.StatusOK))}
		if r.answers.types != nil {
			ok.Content = r.answers.types(schemas)
		}
		if status == 0 {
			status = http.StatusOK
		}
		op.Responses[strconv.Itoa(status)] = ok
	}
	for _, status := range r.declared() {
		op.Responses[strconv.Itoa(status)] = problem(status)
	}
	return op
}

// declared lists the statuses of all errors that the route may answer with.
func (r route) declared() []int {
	all := append([]int{422, 429, 500, 501, 503}, r.errors...)
	if !r.public {
		all = append(all, 401)
	}
	if r.scope != "" || r.public {
		all = append(all, 403)
	}
	if strings.Contains(r.path(), "{") || r.public {
		all = append(all, 404)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func problem(status int) *huma.Response {
	p := &huma.Response{
		Description: http.StatusText(status),
		Content:     map[string]*huma.MediaType{"application/json": {Schema: &huma.Schema{Ref: "#/components/schemas/Problem"}}},
	}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		p.Headers = map[string]*huma.Param{"Retry-After": {
			Description: "Seconds until a later try may succeed; not there if none will.",
			Schema:      &huma.Schema{Type: huma.TypeInteger},
		}}
	}
	return p
}

// tag groups routes by the noun of their path.
func tag(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) >= 4:
		of := map[string]string{"exec": "processes", "code": "contexts", "prolong": "boxes", "pause": "boxes", "resume": "boxes", "metrics": "boxes", "fork": "boxes"}
		if t := of[parts[3]]; t != "" {
			return t
		}
		return parts[3]
	case len(parts) >= 2 && parts[1] == "snapshots":
		return "snapshots"
	case len(parts) >= 2 && parts[1] == "signed":
		return "files"
	case len(parts) >= 2 && parts[1] == "boxes":
		return "boxes"
	}
	return "service"
}

// bodies documents those that handlers read themselves. Huma, which would read
// them first if it knew, is not told.
func (a *API) bodies(doc *huma.OpenAPI) {
	for _, r := range a.routes {
		if r.body == nil {
			continue
		}
		item := doc.Paths[r.path()]
		op := item.Put
		if r.method() == http.MethodPost {
			op = item.Post
		}
		op.RequestBody = &huma.RequestBody{Required: true, Content: r.body(doc.Components.Schemas)}
	}
}
