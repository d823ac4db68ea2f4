package rest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/server/rest"
	"github.com/sunaba-dev/sunaba/internal/server/servertest"
)

// document is as much of an OpenAPI document as these tests read.
type document struct {
	Paths map[string]map[string]struct {
		ID         string           `json:"operationId"`
		Summary    string           `json:"summary"`
		Scope      string           `json:"x-scope"`
		Security   []map[string]any `json:"security"`
		Parameters []struct{ Name, In string }
		Body       *struct{ Content map[string]any } `json:"requestBody"`
		Responses  map[string]struct{ Content map[string]any }
	}
}

func documentOf(t *testing.T, d *daemon) document {
	var doc document
	if err := json.Unmarshal(d.api.Document(), &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// Each operation of the document, and each answer that it declares, is really
// given: with the declared media type, and a body that the declared schema
// takes. An operation that the table does not have, or an answer that nothing
// here brings about, fails.
func TestEveryDeclaredAnswerIsGiven(t *testing.T) {
	d := serve(t)
	doc, schemas, table := documentOf(t, d), newSchemas(t, d.api.Document()), operations()
	for path, item := range doc.Paths {
		for method, op := range item {
			name := strings.ToUpper(method) + " " + path
			made, known := table[name]
			if !known {
				t.Errorf("%s has no test: add it to operations", name)
				continue
			}
			for status := range op.Responses {
				t.Run(op.ID+"/"+status, func(t *testing.T) {
					t.Parallel()
					d := serve(t, func(c *rest.Config) {
						if status == "408" {
							c.Body = time.Second
						}
					})
					probe{t, d.stage(), made, schemas, path, method, op.Security[0]["key"] == nil, bodyKind(op.Body)}.run(status)
				})
			}
			delete(table, name)
		}
	}
	for name := range table {
		t.Errorf("%s is not in the document", name)
	}
}

func bodyKind(b *struct{ Content map[string]any }) string {
	switch {
	case b == nil:
		return ""
	case len(b.Content) == 1 && b.Content["application/json"] != nil:
		return "json"
	}
	return "raw"
}

// probe brings one answer of one operation about.
type probe struct {
	t       *testing.T
	s       *stage
	op      operation
	schemas *schemas
	path    string
	method  string
	public  bool
	body    string // json, raw or none
}

func (p probe) run(status string) {
	a := p.op.ask(p.s)
	if !p.public {
		a.key = servertest.Key
		if strings.HasPrefix(p.path, "/v1/keys") {
			a.key = servertest.AdminKey
		}
	}
	if strconv.Itoa(p.op.status) == status {
		p.success(a)
		return
	}
	refused := map[string]box.Kind{"409": box.Conflict, "429": box.Exhausted, "501": box.Unsupported}
	switch status {
	case "400":
		p.malformed(a)
	case "401":
		p.unknown(a)
	case "403":
		p.forbidden(a)
	case "404":
		p.absent(a)
	case "408":
		p.late(a)
	case "409", "429", "501":
		p.refused(a, refused[status], status)
	case "413":
		p.large(a)
	case "415":
		p.failure(a.with("Content-Type", "text/plain"), 415, "unsupported_media_type")
	case "416":
		p.failure(a.with("Range", "bytes=1000-"), 416, "range_not_satisfiable")
	case "422":
		p.invalid(a)
	case "426":
		a.header = nil
		p.failure(a, 426, "upgrade_required")
	case "500":
		p.fault(a)
	case "503":
		p.refused(a, box.Unavailable, "503")
		p.refused(a, box.Unusable, "503")
	default:
		p.t.Errorf("nothing here brings about status %s: add it", status)
	}
}

func (p probe) success(a ask) {
	ctx, cancel := context.WithCancel(p.t.Context())
	defer cancel()
	res := p.s.open(ctx, a)
	defer res.Body.Close()
	kind := strings.Split(res.Header.Get("Content-Type"), ";")[0]
	if res.StatusCode != p.op.status || kind != p.op.kind {
		body, _ := io.ReadAll(io.LimitReader(res.Body, 2000))
		p.t.Fatalf("status %d with %q, want %d with %q: %s", res.StatusCode, kind, p.op.status, p.op.kind, body)
	}
	switch {
	case p.op.endless:
		if e, err := readEvents(res.Body).next(); err != nil || e.name != "ready" {
			p.t.Errorf("the first event is %s (%v)", e.name, err)
		}
	case kind == "text/event-stream":
		all := readEvents(res.Body).all(p.t)
		if len(all) == 0 || all[len(all)-1].name != "end" {
			p.t.Errorf("the stream has no end: %v", all)
		}
	case p.op.status == http.StatusSwitchingProtocols:
		io.WriteString(res.Body.(io.Writer), "echo")
		got := make([]byte, 4)
		if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != "echo" {
			p.t.Errorf("the tunnel says %q, %v", got, err)
		}
	case p.op.status == http.StatusNoContent:
		if body, err := io.ReadAll(res.Body); err != nil || len(body) > 0 {
			p.t.Errorf("a body where there is none: %q, %v", body, err)
		}
	case kind == "application/json":
		body, err := io.ReadAll(res.Body)
		if err != nil {
			p.t.Fatal(err)
		}
		p.schemas.check(p.t, p.path, p.method, p.op.status, body)
	default:
		if body, err := io.ReadAll(res.Body); err != nil || len(body) == 0 {
			p.t.Errorf("body %q, %v", body, err)
		}
	}
}

// failure asks, and wants an error of a status and a class.
func (p probe) failure(a ask, status int, class string) answer {
	p.t.Helper()
	return p.judge(p.s.do(a), status, class)
}

func (p probe) judge(got answer, status int, class string) answer {
	p.t.Helper()
	e := got.problem(p.t)
	if got.status != status || e.ErrorCode != class {
		p.t.Errorf("status %d %s, want %d %s: %s", got.status, e.ErrorCode, status, class, got.body)
	}
	if kind := got.header.Get("Content-Type"); kind != "application/json" {
		p.t.Errorf("an error as %q", kind)
	}
	p.schemas.check(p.t, p.path, p.method, status, got.body)
	return got
}

func (p probe) unknown(a ask) {
	none := a
	none.key = ""
	got := p.failure(none, 401, "unauthenticated")
	if got.header.Get("WWW-Authenticate") == "" {
		p.t.Error("the answer does not say what kind of key is wanted")
	}
	wrong := a
	wrong.key = "e2b_of_nobody"
	p.failure(wrong, 401, "unauthenticated")
}

func (p probe) forbidden(a ask) {
	if p.public {
		for name, value := range map[string]string{"tenant": "bob", "principal": "desk", "box": string(box.NewID()), "path_base64": "L2V0Yw", "expires": "99999999999", "signature": "AAAA"} {
			p.failure(altered(a, name, value), 403, "denied")
		}
		swapped := a
		swapped.method = map[string]string{"GET": "PUT", "PUT": "GET"}[a.method]
		p.s.want(403, swapped, nil)
		return
	}
	a.key = servertest.WeakKey
	p.failure(a, 403, "denied")
}

// absent: what another tenant has is answered as what is not there, to the byte.
func (p probe) absent(a ask) {
	if p.public {
		p.s.want(204, ask{method: "DELETE", path: at(p.s.id, "")}, nil)
		p.failure(a, 404, "not_found")
		return
	}
	if strings.HasPrefix(p.path, "/v1/keys/") { // an administrator's, who has no other tenants
		p.failure(elsewhere(a, servertest.KeyID, "no-such-key"), 404, "not_found")
		return
	}
	id, other := p.s.id, string(box.NewID())
	if strings.Contains(p.path, "{ref}") {
		id, other = p.s.snapshot, "sha256:"+strings.Repeat("0", 64)
	}
	if strings.Contains(p.path, "{volume}") {
		id, other = "/"+p.s.volume, "/none"
	}
	nowhere := p.failure(elsewhere(a, id, other), 404, "not_found")
	a.key = servertest.OtherKey
	others := p.failure(a, 404, "not_found")
	if !bytes.Equal(nowhere.body, others.body) {
		p.t.Errorf("another tenant's box is told from none:\n%s%s", others.body, nowhere.body)
	}
	for _, h := range []map[string][]string{nowhere.header, others.header} {
		delete(h, "Date")
		delete(h, "X-Request-Id")
	}
	if !maps.EqualFunc(nowhere.header, others.header, slices.Equal) {
		p.t.Errorf("another tenant's box is told from none: %v, %v", others.header, nowhere.header)
	}
	if strings.Contains(p.path, "{pid}") || strings.Contains(p.path, "{ctx}") {
		a.key = servertest.Key
		for _, there := range []string{strconv.Itoa(p.s.alive), strconv.Itoa(p.s.ended), p.s.context} {
			a.path = strings.Replace(a.path, "/"+there, "/4711", 1)
		}
		p.failure(a, 404, "not_found")
	}
}

func (p probe) refused(a ask, kind box.Kind, status string) {
	p.s.service.Refuse(box.Errorf(kind, "test", "cannot do it now").WithHint("do something else"))
	n, _ := strconv.Atoi(status)
	got := p.failure(a, n, string(kind))
	if later := got.header.Get("Retry-After"); (kind == box.Exhausted || kind == box.Unavailable) != (later != "") {
		p.t.Errorf("Retry-After of %s is %q", kind, later)
	}
	if e := got.problem(p.t); e.Hint != "do something else" {
		p.t.Errorf("the hint is lost: %+v", e)
	}
}

func (p probe) invalid(a ask) {
	p.s.service.Refuse(box.Errorf(box.Invalid, "test", "cannot use it"))
	p.failure(a, 422, "invalid")
	p.s.service.Refuse(nil)
	mark := "?"
	if strings.Contains(a.path, "?") {
		mark = "&"
	}
	bogus := a
	bogus.path += mark + "bogus=1"
	if e := p.failure(bogus, 422, "invalid").problem(p.t); !strings.Contains(e.Message, "bogus") {
		p.t.Errorf("the unknown parameter is not named: %s", e.Message)
	}
	if p.body == "json" {
		var m map[string]any
		json.Unmarshal(a.bytes(), &m)
		m["bogus"] = 1
		a.body = m
		if e := p.failure(a, 422, "invalid").problem(p.t); !strings.Contains(e.Message, "bogus") {
			p.t.Errorf("the unknown key is not named: %s", e.Message)
		}
	}
}

func (p probe) fault(a ask) {
	p.s.service.Refuse(fault())
	got := p.failure(a, 500, "fault")
	if strings.Contains(string(got.body), "secret") || !strings.Contains(string(got.body), got.header.Get("X-Request-Id")) {
		p.t.Errorf("a fault is told as %s", got.body)
	}
	until(p.t, "the log has the cause", longest, func() bool { return strings.Contains(p.s.logged(), "/var/lib/secret") })
}

func (p probe) large(a ask) {
	big := strings.Repeat("x", 1<<20+1)
	if p.path == "/v1/execute" {
		big = strings.Repeat(big, 8)
	}
	if p.body == "json" {
		a.body = map[string]any{"code": big}
	} else {
		a.body = big
	}
	p.failure(a, 413, "too_large")
}

func (p probe) malformed(a ask) {
	if p.body == "json" {
		a.body = []byte("{")
		p.failure(a, 400, "malformed")
		return
	}
	p.judge(p.raw(a, "Transfer-Encoding: chunked", "this is no chunk\r\n\r\n"), 400, "malformed")
}

func (p probe) late(a ask) {
	if p.body == "json" {
		a = a.with("Content-Type", "application/json")
	}
	p.judge(p.raw(a, "Content-Length: 10", "{"), 408, "timeout")
}

// raw sends a request whose body a client of net/http would not send.
func (p probe) raw(a ask, length, body string) answer {
	p.t.Helper()
	conn, err := net.Dial("tcp", p.s.addr)
	if err != nil {
		p.t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: localhost\r\nX-API-Key: %s\r\n%s\r\n", a.method, a.path, a.key, length)
	for name, value := range a.header {
		fmt.Fprintf(conn, "%s: %s\r\n", name, value)
	}
	io.WriteString(conn, "\r\n"+body)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, got}
}
