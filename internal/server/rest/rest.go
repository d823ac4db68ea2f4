// Package rest serves boxes over HTTP with JSON, as docs/rest.md tells.
//
// It only translates: a request becomes a call of box.Service or box.Guest, and
// what those answer becomes a document, a stream of bytes or a stream of events.
// All routes are in one table (table.go), each with the right that it takes and
// the errors that it may answer with; the OpenAPI document is made from it and
// from the types that the handlers really decode into and encode from, so it
// cannot say anything else than what is served.
//
// Three rules hold everywhere. What is not understood is refused by name: an
// unknown key, an unknown query parameter. What was assumed is said: a time
// limit that was not given is in the answer. And a program's end is told only if
// it was observed: a stream that breaks off ends with an error, or without an
// end, never with a made-up success.
package rest

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/server"
)

// Config says what a REST interface is made of.
type Config struct {
	Service box.Service
	Keys    box.Keys
	// SignKey signs URLs of files, 32 bytes or more. A new key makes all URLs
	// invalid that were signed before. Empty: URLs are not signed.
	SignKey []byte
	// URL is what signed URLs begin with, as in "http://127.0.0.1:7462"; may be empty.
	URL     string
	Version string // of the program, for the document
	// Stall is how long a client may take not a single byte of what it was sent;
	// 0 = 5 minutes.
	Stall time.Duration
	// Call bounds what a box takes to answer what is not a stream; 0 = 30 s.
	Call time.Duration
	// Body is how long a client that sends may be silent, and how long a JSON
	// body may take in all; 0 = 30 s.
	Body time.Duration
}

// API is the interface as a handler.
type API struct {
	Config
	mux      *http.ServeMux
	routes   []route
	document func() (asJSON, asYAML []byte) // made when it is asked for
}

// New returns the interface. It panics when the table of routes is wrong, which
// is so always or never.
func New(c Config) *API {
	if c.Stall == 0 {
		c.Stall = 5 * time.Minute
	}
	if c.Call == 0 {
		c.Call = 30 * time.Second
	}
	if c.Body == 0 {
		c.Body = 30 * time.Second
	}
	a := &API{Config: c, mux: http.NewServeMux()}
	a.routes = a.table()
	h := humago.New(a.mux, document(c.Version))
	for _, r := range a.routes {
		r.add(h, a.operation(r, h.OpenAPI().Components.Schemas))
	}
	a.bodies(h.OpenAPI())
	finish(h.OpenAPI())
	a.document = sync.OnceValues(func() ([]byte, []byte) { return encode(h.OpenAPI()) })
	return a
}

// Mounts places the interface: all of it takes a key, but for the document and
// signed URLs.
func (a *API) Mounts() []server.Mount {
	return []server.Mount{
		{Pattern: "/v1/", Handler: a},
		{Pattern: signedPath, Handler: a, Public: true},
		{Pattern: "GET /openapi.json", Handler: static("application/json", a.Document), Public: true},
		{Pattern: "GET /openapi.yaml", Handler: static("application/yaml", a.yaml), Public: true},
	}
}

// Document returns the OpenAPI document, as JSON.
func (a *API) Document() []byte {
	doc, _ := a.document()
	return doc
}

func (a *API) yaml() []byte {
	_, doc := a.document()
	return doc
}

// ServeHTTP implements http.Handler. What net/http would say in plain text of a
// path or method that there is not is said as any other error, and a query of
// which net/http would leave a part out is refused.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, pattern := a.mux.Handler(r); pattern == "" || r.Method == http.MethodHead {
		a.astray(w, r)
		return
	}
	if err := plainQuery(r.URL.RawQuery); err != nil {
		server.Explain(r.Context(), err).Write(w)
		return
	}
	a.mux.ServeHTTP(w, r)
}

// plainQuery refuses a query that is not well-formed, or that gives a parameter
// twice: one reader would take the first, another the last.
func plainQuery(raw string) error {
	q, err := url.ParseQuery(raw)
	if err != nil {
		return box.Errorf(box.Invalid, "read query", "cannot understand the query: it is not well-formed")
	}
	for name, values := range q {
		if len(values) > 1 && name != "metadata" {
			return box.Errorf(box.Invalid, "read query", "cannot understand the query: %q is given %d times", name, len(values))
		}
	}
	return nil
}

func (a *API) astray(w http.ResponseWriter, r *http.Request) {
	var allow []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
		probe := r.Clone(r.Context())
		probe.Method = m
		if _, pattern := a.mux.Handler(probe); pattern != "" && strings.HasPrefix(pattern, m+" ") {
			allow = append(allow, m)
		}
	}
	if allow == nil {
		server.Bad(http.StatusNotFound, string(box.NotFound), "see /openapi.json for what there is", "cannot find this path").Write(w)
		return
	}
	w.Header().Set("Allow", strings.Join(allow, ", "))
	server.Bad(http.StatusMethodNotAllowed, server.MethodNotAllowed, "use "+strings.Join(allow, " or "), "cannot use this method here").Write(w)
}

func static(kind string, body func() []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.Write(body()) // a client that went away needs no answer
	})
}

func encode(doc *huma.OpenAPI) (asJSON, asYAML []byte) {
	compact, err := json.Marshal(doc)
	if err != nil {
		panic(err)
	}
	var v any
	if err := json.Unmarshal(compact, &v); err != nil {
		panic(err)
	}
	asJSON, err = json.MarshalIndent(v, "", " ")
	if err != nil {
		panic(err)
	}
	asYAML, err = doc.YAML()
	if err != nil {
		panic(err)
	}
	return append(asJSON, '\n'), asYAML
}
