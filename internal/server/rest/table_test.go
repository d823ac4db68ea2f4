package rest_test

import (
	"archive/tar"
	"bytes"
	"net/url"
	"strings"

	"github.com/sunaba-dev/sunaba/internal/server/rest"
	"github.com/sunaba-dev/sunaba/internal/server/servertest"
)

// stage is a box with one of everything in it.
type stage struct {
	*daemon
	id       string
	alive    int // a program that reads, with a terminal
	ended    int // one that has ended
	context  string
	snapshot string            // an id
	volume   string            // a name
	signed   map[string]string // URL by method
}

func (d *daemon) stage() *stage {
	d.t.Helper()
	s := &stage{daemon: d, id: d.box(), signed: map[string]string{}}
	s.alive = d.start(s.id, map[string]any{"command": words("cat"), "stdin": true, "tag": "reader", "tty": map[string]int{"rows": 24, "cols": 80}})
	s.ended = d.start(s.id, map[string]any{"command": words("both")})
	d.want(200, ask{method: "PUT", path: at(s.id, "/files?path=/workspace/a"), body: "hello"}, nil)
	var c rest.CodeContext
	d.want(201, ask{method: "POST", path: at(s.id, "/contexts"), body: map[string]any{"language": "python"}}, &c)
	s.context = c.ID
	var snap rest.Snapshot
	d.want(201, ask{method: "POST", path: at(s.id, "/snapshots"), body: map[string]any{"name": "first"}}, &snap)
	s.snapshot = snap.ID
	s.volume = "data"
	d.want(201, ask{method: "POST", path: "/v1/volumes", body: map[string]any{"name": s.volume, "bytes": 1 << 20}}, nil)
	for _, m := range []string{"GET", "PUT"} {
		var u rest.Signed
		d.want(200, ask{method: "POST", path: at(s.id, "/files/sign"), body: map[string]any{"path": "/workspace/a", "method": m}}, &u)
		s.signed[m] = u.URL
	}
	until(d.t, "the program has ended", longest, func() bool {
		var p rest.Process
		d.want(200, ask{method: "GET", path: at(s.id, "/processes/%d", s.ended)}, &p)
		return p.End != nil
	})
	return s
}

// operation is a request of an operation that succeeds, on a stage.
type operation struct {
	ask    func(*stage) ask
	status int
	kind   string // media type of the answer; empty if there is no body
	// endless streams are read to the first event.
	endless bool
}

func tarOf(name, text string) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	w.WriteHeader(&tar.Header{Name: name, Size: int64(len(text)), Mode: 0o644, Typeflag: tar.TypeReg})
	w.Write([]byte(text))
	w.Close()
	return b.Bytes()
}

// operations is every operation of the interface. A test compares it with the
// OpenAPI document.
func operations() map[string]operation {
	get := func(path string) func(*stage) ask {
		return func(s *stage) ask { return ask{method: "GET", path: path} }
	}
	in := func(method, path string, body any) func(*stage) ask {
		return func(s *stage) ask { return ask{method: method, path: at(s.id, "%s", path), body: body} }
	}
	alive := func(method, path string, body any) func(*stage) ask {
		return func(s *stage) ask {
			return ask{method: method, path: at(s.id, "/processes/%d%s", s.alive, path), body: body}
		}
	}
	ended := func(method, path string) func(*stage) ask {
		return func(s *stage) ask {
			return ask{method: method, path: at(s.id, "/processes/%d%s", s.ended, path)}
		}
	}
	code := func(method, path string, body any) func(*stage) ask {
		return func(s *stage) ask {
			return ask{method: method, path: at(s.id, "/contexts/%s%s", s.context, path), body: body}
		}
	}
	signed := func(method string, body any) func(*stage) ask {
		return func(s *stage) ask { return ask{method: method, path: s.signed[method], body: body} }
	}
	type m = map[string]any
	const doc, sse, raw = "application/json", "text/event-stream", "application/octet-stream"
	return map[string]operation{
		"GET /v1/me": {ask: get("/v1/me"), status: 200, kind: doc},
		"POST /v1/keys": {ask: func(*stage) ask {
			return ask{method: "POST", path: "/v1/keys", body: m{"tenant": "t", "principal": "p", "scopes": words("read")}}
		}, status: 201, kind: doc},
		"GET /v1/keys":                  {ask: get("/v1/keys?tenant=t&limit=3"), status: 200, kind: doc},
		"DELETE /v1/keys/{key}":         {ask: func(*stage) ask { return ask{method: "DELETE", path: "/v1/keys/" + servertest.KeyID} }, status: 204},
		"POST /v1/execute":              {ask: func(*stage) ask { return ask{method: "POST", path: "/v1/execute", body: m{"command": words("both")}} }, status: 200, kind: doc},
		"POST /v1/boxes":                {ask: func(*stage) ask { return ask{method: "POST", path: "/v1/boxes", body: m{"metadata": m{"a": "b"}}} }, status: 201, kind: doc},
		"GET /v1/boxes":                 {ask: get("/v1/boxes?limit=5&destroyed=true"), status: 200, kind: doc},
		"GET /v1/boxes/{id}":            {ask: in("GET", "", nil), status: 200, kind: doc},
		"DELETE /v1/boxes/{id}":         {ask: in("DELETE", "", nil), status: 204},
		"POST /v1/boxes/{id}/prolong":   {ask: in("POST", "/prolong", m{"ttl_sec": 7200}), status: 200, kind: doc},
		"POST /v1/boxes/{id}/pause":     {ask: in("POST", "/pause", nil), status: 200, kind: doc},
		"POST /v1/boxes/{id}/resume":    {ask: in("POST", "/resume", nil), status: 200, kind: doc},
		"POST /v1/boxes/{id}/snapshots": {ask: in("POST", "/snapshots", m{"name": "second", "kind": "memory"}), status: 201, kind: doc},
		"POST /v1/boxes/{id}/fork":      {ask: in("POST", "/fork", m{"count": 3}), status: 201, kind: doc},
		"POST /v1/volumes": {ask: func(*stage) ask {
			return ask{method: "POST", path: "/v1/volumes", body: m{"name": "more", "bytes": 2 << 20}}
		}, status: 201, kind: doc},
		"GET /v1/volumes":               {ask: get("/v1/volumes"), status: 200, kind: doc},
		"GET /v1/volumes/{volume}":      {ask: func(s *stage) ask { return ask{method: "GET", path: "/v1/volumes/" + s.volume} }, status: 200, kind: doc},
		"DELETE /v1/volumes/{volume}":   {ask: func(s *stage) ask { return ask{method: "DELETE", path: "/v1/volumes/" + s.volume} }, status: 204},
		"GET /v1/snapshots":             {ask: get("/v1/snapshots?limit=5"), status: 200, kind: doc},
		"GET /v1/snapshots/{ref}":       {ask: func(s *stage) ask { return ask{method: "GET", path: "/v1/snapshots/" + s.snapshot} }, status: 200, kind: doc},
		"DELETE /v1/snapshots/{ref}":    {ask: func(s *stage) ask { return ask{method: "DELETE", path: "/v1/snapshots/" + s.snapshot} }, status: 204},
		"GET /v1/boxes/{id}/network":    {ask: in("GET", "/network", nil), status: 200, kind: doc},
		"PUT /v1/boxes/{id}/network":    {ask: in("PUT", "/network", m{"network": m{"mode": "allowlist"}}), status: 200, kind: doc},
		"GET /v1/boxes/{id}/metrics":    {ask: in("GET", "/metrics", nil), status: 200, kind: doc},
		"POST /v1/boxes/{id}/exec":      {ask: in("POST", "/exec", m{"command": words("both")}), status: 200, kind: sse},
		"POST /v1/boxes/{id}/processes": {ask: in("POST", "/processes", m{"shell": "echo a"}), status: 201, kind: doc},
		"GET /v1/boxes/{id}/processes":  {ask: in("GET", "/processes", nil), status: 200, kind: doc},
		"POST /v1/boxes/{id}/contexts":  {ask: in("POST", "/contexts", m{"language": "bash"}), status: 201, kind: doc},
		"GET /v1/boxes/{id}/contexts":   {ask: in("GET", "/contexts", nil), status: 200, kind: doc},
		"POST /v1/boxes/{id}/code":      {ask: in("POST", "/code", m{"language": "bash", "code": "print a"}), status: 200, kind: sse},
		"GET /v1/boxes/{id}/ports/{port}": {ask: func(s *stage) ask {
			return in("GET", "/ports/7", nil)(s).with("Connection", "Upgrade").with("Upgrade", "tcp")
		}, status: 101},
		"GET /v1/boxes/{id}/files":         {ask: in("GET", "/files?path=/workspace/a", nil), status: 200, kind: raw},
		"PUT /v1/boxes/{id}/files":         {ask: in("PUT", "/files?path=/workspace/b&mode=0600", "text"), status: 200, kind: doc},
		"DELETE /v1/boxes/{id}/files":      {ask: in("DELETE", "/files?path=/workspace/a", nil), status: 204},
		"GET /v1/boxes/{id}/files/stat":    {ask: in("GET", "/files/stat?path=/workspace/a", nil), status: 200, kind: doc},
		"GET /v1/boxes/{id}/files/list":    {ask: in("GET", "/files/list?path=/&depth=2", nil), status: 200, kind: doc},
		"POST /v1/boxes/{id}/files/mkdir":  {ask: in("POST", "/files/mkdir", m{"path": "/workspace/d"}), status: 200, kind: doc},
		"POST /v1/boxes/{id}/files/move":   {ask: in("POST", "/files/move", m{"from": "/workspace/a", "to": "/workspace/c"}), status: 204},
		"GET /v1/boxes/{id}/files/archive": {ask: in("GET", "/files/archive?path=/workspace", nil), status: 200, kind: "application/x-tar"},
		"PUT /v1/boxes/{id}/files/archive": {ask: in("PUT", "/files/archive?path=/workspace", string(tarOf("t", "x"))), status: 200, kind: doc},
		"GET /v1/boxes/{id}/files/watch":   {ask: in("GET", "/files/watch?path=/workspace", nil), status: 200, kind: sse, endless: true},
		"POST /v1/boxes/{id}/files/sign":   {ask: in("POST", "/files/sign", m{"path": "/workspace/a", "method": "GET"}), status: 200, kind: doc},

		"GET /v1/boxes/{id}/processes/{pid}":           {ask: ended("GET", ""), status: 200, kind: doc},
		"DELETE /v1/boxes/{id}/processes/{pid}":        {ask: ended("DELETE", ""), status: 204},
		"GET /v1/boxes/{id}/processes/{pid}/output":    {ask: ended("GET", "/output"), status: 200, kind: sse},
		"POST /v1/boxes/{id}/processes/{pid}/input":    {ask: alive("POST", "/input?at=0", "text"), status: 200, kind: doc},
		"POST /v1/boxes/{id}/processes/{pid}/signal":   {ask: alive("POST", "/signal", m{"signal": "TERM"}), status: 204},
		"POST /v1/boxes/{id}/processes/{pid}/resize":   {ask: alive("POST", "/resize", m{"rows": 30, "cols": 100}), status: 204},
		"DELETE /v1/boxes/{id}/contexts/{ctx}":         {ask: code("DELETE", "", nil), status: 204},
		"POST /v1/boxes/{id}/contexts/{ctx}/run":       {ask: code("POST", "/run", m{"code": "print a"}), status: 200, kind: sse},
		"POST /v1/boxes/{id}/contexts/{ctx}/interrupt": {ask: code("POST", "/interrupt", nil), status: 204},
		"POST /v1/boxes/{id}/contexts/{ctx}/restart":   {ask: code("POST", "/restart", nil), status: 200, kind: doc},
		"GET /v1/signed": {ask: signed("GET", nil), status: 200, kind: raw},
		"PUT /v1/signed": {ask: signed("PUT", "text"), status: 200, kind: doc},
	}
}

// elsewhere is the same request for another box.
func elsewhere(a ask, id, other string) ask {
	a.path = strings.ReplaceAll(a.path, id, other)
	return a
}

// altered changes one parameter of a URL.
func altered(a ask, name, value string) ask {
	path, query, _ := strings.Cut(a.path, "?")
	q, _ := url.ParseQuery(query)
	q.Set(name, value)
	a.path = path + "?" + q.Encode()
	return a
}
