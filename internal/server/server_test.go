package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/server"
	"github.com/sunaba-dev/sunaba/internal/server/servertest"
)

// ask sends a request, each header as "Name: value".
func ask(h http.Handler, method, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	r.Host = "localhost:7462"
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		if name == "Host" {
			r.Host = value
			continue
		}
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	func() {
		defer func() {
			if v := recover(); v != nil && v != http.ErrAbortHandler {
				panic(v)
			}
		}()
		h.ServeHTTP(w, r)
	}()
	return w
}

func front(change func(*server.Config)) http.Handler {
	c := server.Config{Auth: servertest.New().Auth, Loopback: true, Mounts: []server.Mount{{Pattern: "/who", Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, server.CallerOf(r.Context()).Tenant)
	})}}}
	if change != nil {
		change(&c)
	}
	return server.New(c)
}

const key = "X-API-Key: " + servertest.Key

func TestKeyIsAskedFor(t *testing.T) {
	h := front(nil)
	for _, c := range []struct {
		headers []string
		status  int
	}{
		{[]string{key}, 200},
		{[]string{"Authorization: Bearer " + servertest.Key}, 200},
		{[]string{"Authorization: bearer " + servertest.Key}, 200},
		{[]string{key, "Authorization: Bearer " + servertest.Key}, 200},
		{nil, 401},
		{[]string{"X-API-Key: "}, 401},
		{[]string{"X-API-Key: wrong"}, 401},
		{[]string{"X-API-Key: " + strings.Repeat("x", 300)}, 401},
		{[]string{"Authorization: Basic " + servertest.Key}, 401},
		{[]string{key, "Authorization: Bearer " + servertest.OtherKey}, 401},
		{[]string{key, "X-API-Key: " + servertest.OtherKey}, 401},
		{[]string{key, "Authorization: Basic eA=="}, 401},
	} {
		got := ask(h, "GET", "/who", c.headers...)
		if got.Code != c.status || c.status == 200 && got.Body.String() != "alice" {
			t.Errorf("%q: %d %s", c.headers, got.Code, got.Body)
		}
	}
	if got := ask(h, "GET", "/who?api_key="+servertest.Key); got.Code != 401 {
		t.Errorf("a key in the URL is taken: %d", got.Code)
	}
}

func TestFailureToLookKeyUpIsNoWrongKey(t *testing.T) {
	h := front(func(c *server.Config) {
		c.Auth = func(context.Context, string) (box.Caller, error) {
			return box.Caller{}, errors.New("cannot read the store")
		}
	})
	if got := ask(h, "GET", "/who", key); got.Code != 500 || strings.Contains(got.Body.String(), "store") {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	h = front(func(c *server.Config) {
		c.Auth = func(context.Context, string) (box.Caller, error) { return box.Caller{}, nil }
	})
	if got := ask(h, "GET", "/who", key); got.Code != 500 {
		t.Errorf("a key of nobody: %d", got.Code)
	}
}

// A page in a browser that makes its own name point here has that name as Host.
func TestHostIsThisServers(t *testing.T) {
	loopback := front(func(c *server.Config) { c.Hosts = []string{"sunaba.test"} })
	named := front(func(c *server.Config) { c.Loopback, c.Hosts = false, []string{"sunaba.test"} })
	anyName := front(func(c *server.Config) { c.Loopback = false })
	for _, c := range []struct {
		host                   string
		loopback, named, anyOf bool
	}{
		{"localhost", true, false, true},
		{"LOCALHOST:80", true, false, true},
		{"127.0.0.1:7462", true, false, true},
		{"[::1]:7462", true, false, true},
		{"[::1]", true, false, true},
		{"sunaba.test:1", true, true, true},
		{"evil.test", false, false, true},
		{"localhost.evil.test", false, false, true},
		{"127.0.0.1.evil.test:7462", false, false, true},
		{"evil.test:localhost", false, false, true},
		{"", false, false, true},
	} {
		for name, h := range map[string]struct {
			http.Handler
			ok bool
		}{"loopback": {loopback, c.loopback}, "named": {named, c.named}, "any": {anyName, c.anyOf}} {
			for _, path := range []string{"/who", "/healthz"} {
				if got := ask(h, "GET", path, key, "Host: "+c.host); (got.Code == 200) != h.ok || !h.ok && got.Code != http.StatusMisdirectedRequest {
					t.Errorf("%s, host %q, %s: %d", name, c.host, path, got.Code)
				}
			}
		}
	}
}

func TestNoOtherOriginIsLetIn(t *testing.T) {
	got := ask(front(nil), "OPTIONS", "/who", "Origin: https://evil.test", "Access-Control-Request-Method: GET")
	for name := range got.Header() {
		if strings.HasPrefix(name, "Access-Control-") {
			t.Errorf("%s: %s", name, got.Header().Get(name))
		}
	}
}

// The log has who asked what, how it ended and how long that took; it has no
// key, no query, no body, and no character that plays with a terminal.
func TestLogHasNoSecrets(t *testing.T) {
	var log strings.Builder
	h := front(func(c *server.Config) { c.Log = slog.New(slog.NewJSONHandler(&log, nil)) })
	ask(h, "GET", "/who?signature=topsecret", key, "Cookie: topsecret")
	ask(h, "GET", "/a%1b%5b31m%0aforged%e2%80%ae", key)
	out := log.String()
	for _, secret := range []string{servertest.Key, "topsecret", "signature", "\x1b", "\\u001b", "\u202e"} {
		if strings.Contains(out, secret) {
			t.Errorf("the log has %q:\n%s", secret, out)
		}
	}
	var line struct {
		ID, Method, Route, Tenant, Principal string
		Status                               int
		Seconds                              float64
	}
	if err := json.Unmarshal([]byte(strings.SplitN(out, "\n", 2)[0]), &line); err != nil {
		t.Fatal(err)
	}
	if line.Method != "GET" || line.Route != "GET /who" || line.Tenant != "alice" || line.Principal != "laptop" || line.Status != 200 || line.ID == "" || line.Seconds <= 0 {
		t.Errorf("%+v", line)
	}
	if n := strings.Count(out, "\n"); n != 2 {
		t.Errorf("%d lines for two requests", n)
	}
}

func TestPanicIsAFault(t *testing.T) {
	var log strings.Builder
	boom := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "" {
			io.WriteString(w, "begun")
		}
		panic("inner words")
	}
	h := front(func(c *server.Config) {
		c.Log = slog.New(slog.NewJSONHandler(&log, nil))
		c.Mounts = []server.Mount{{Pattern: "/boom", Handler: http.HandlerFunc(boom)}}
	})
	got := ask(h, "GET", "/boom", key)
	if got.Code != 500 || strings.Contains(got.Body.String(), "inner") || !strings.Contains(log.String(), "inner words") {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	if got := ask(h, "GET", "/boom?late", key); got.Body.String() != "begun" {
		t.Errorf("what was begun goes on with %s", got.Body)
	}
}

// Of two calls that are given up, the one whose client went away is no fault.
func TestAClientThatGoesAwayIsNoFault(t *testing.T) {
	var log strings.Builder
	wait := func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		if r.URL.RawQuery != "" { // given up by ourselves
			cancel()
		}
		<-ctx.Done()
		server.Explain(r.Context(), box.Errorf(box.Fault, "wait", "cannot wait: %w", ctx.Err())).Write(w)
	}
	h := front(func(c *server.Config) {
		c.Log = slog.New(slog.NewJSONHandler(&log, nil))
		c.Mounts = []server.Mount{{Pattern: "/wait", Handler: http.HandlerFunc(wait)}}
	})
	ctx, leave := context.WithCancel(t.Context())
	leave()
	r := httptest.NewRequestWithContext(ctx, "GET", "http://localhost/wait", nil)
	r.Header.Set("X-API-Key", strings.TrimPrefix(key, "X-API-Key: "))
	got := httptest.NewRecorder()
	h.ServeHTTP(got, r)
	if got.Code != 499 || strings.Contains(log.String(), "ERROR") || !strings.Contains(log.String(), `"client_gone":"cannot wait: context canceled"`) {
		t.Errorf("%d, log: %s", got.Code, &log)
	}
	if got := ask(h, "GET", "/wait?own", key); got.Code != 500 || !strings.Contains(log.String(), "ERROR") {
		t.Errorf("one that has its client: %d, log: %s", got.Code, &log)
	}
}

func TestHealth(t *testing.T) {
	ready := errors.New("cannot do it yet: inner words")
	h := front(func(c *server.Config) { c.Ready = func(context.Context) error { return ready } })
	if got := ask(h, "GET", "/healthz"); got.Code != 200 {
		t.Errorf("healthz: %d", got.Code)
	}
	if got := ask(h, "GET", "/readyz"); got.Code != 503 || strings.Contains(got.Body.String(), "inner") || got.Header().Get("Retry-After") == "" {
		t.Errorf("readyz: %d %s", got.Code, got.Body)
	}
	ready = nil
	if got := ask(h, "GET", "/readyz"); got.Code != 200 {
		t.Errorf("readyz: %d", got.Code)
	}
}

func TestMetrics(t *testing.T) {
	gauges := func() []server.Gauge {
		return []server.Gauge{
			{Name: "sunaba_boxes", Help: "Boxes alive.", Labels: []string{"tier", "a\"b\n"}, Value: 3},
			{Name: "sunaba_made_total", Help: "Boxes made.", Total: true, Value: 4},
			{Name: "sunaba_boxes", Help: "Boxes alive.", Labels: []string{"tier", "c"}, Value: 1},
		}
	}
	h := front(func(c *server.Config) { c.Gauges = gauges })
	ask(h, "GET", "/who", key)
	ask(h, "GET", "/who")
	ask(h, "GET", "/some/random/path", key)
	if got := ask(h, "GET", "/metrics", key); got.Code != 403 {
		t.Errorf("without the right: %d", got.Code)
	}
	got := ask(h, "GET", "/metrics", "X-API-Key: "+servertest.AdminKey)
	if got.Code != 200 || got.Header().Get("Content-Type") != "text/plain; version=0.0.4; charset=utf-8" {
		t.Fatalf("%d %s", got.Code, got.Body)
	}
	for _, line := range []string{
		`sunaba_http_requests_total{route="GET /who",status="200"} 1`,
		`sunaba_http_requests_total{route="GET /who",status="401"} 1`,
		`sunaba_http_requests_total{route="none",status="404"} 1`,
		`sunaba_http_request_seconds_count{route="GET /who"} 2`,
		`sunaba_http_request_seconds_bucket{route="GET /who",le="+Inf"} 2`,
		`sunaba_http_requests_open 1`,
		"# TYPE sunaba_boxes gauge", `sunaba_boxes{tier="a\"b\n"} 3`, `sunaba_boxes{tier="c"} 1`,
		"# TYPE sunaba_made_total counter", "sunaba_made_total 4",
	} {
		if strings.Count(got.Body.String(), line+"\n") != 1 {
			t.Errorf("%s is not there once:\n%s", line, got.Body)
		}
	}
	open := front(func(c *server.Config) { c.OpenMetrics = true })
	if got := ask(open, "GET", "/metrics"); got.Code != 200 {
		t.Errorf("open metrics: %d", got.Code)
	}
}

func TestStatusOfEachKind(t *testing.T) {
	for kind, status := range map[box.Kind]int{
		box.Invalid: 422, box.Denied: 403, box.Unsupported: 501, box.Unusable: 503, box.NotFound: 404,
		box.Conflict: 409, box.Unavailable: 503, box.Exhausted: 429, box.Fault: 500,
	} {
		p := server.Explain(t.Context(), box.Errorf(kind, "test", "cannot: why").WithHint("so"))
		if p.Code != status || p.ErrorCode != string(kind) || kind != box.Fault && (p.Message != "cannot: why" || p.Hint != "so") {
			t.Errorf("%s: %+v", kind, p)
		}
	}
	if p := server.Explain(t.Context(), context.DeadlineExceeded); p.Code != 503 || p.ErrorCode != "unavailable" {
		t.Errorf("a box that hangs: %+v", p)
	}
}
