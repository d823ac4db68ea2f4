package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/server"
	"github.com/sunaba-dev/sunaba/internal/server/rest"
	"github.com/sunaba-dev/sunaba/internal/server/servertest"
)

// daemon is a server on a real socket, over boxes in memory.
type daemon struct {
	t       *testing.T
	service *servertest.Service
	api     *rest.API
	url     string
	addr    string
	log     *lines
	client  *http.Client
}

func serve(t *testing.T, change ...func(*rest.Config)) *daemon {
	t.Helper()
	d := &daemon{t: t, service: servertest.New(), log: &lines{}, client: &http.Client{Transport: &http.Transport{MaxConnsPerHost: 0}}}
	c := rest.Config{Service: d.service, Keys: d.service, SignKey: []byte(strings.Repeat("k", 32)), Version: "test"}
	for _, f := range change {
		f(&c)
	}
	d.api = rest.New(c)
	h := server.HTTP(server.New(server.Config{
		Auth: d.service.Auth, Mounts: d.api.Mounts(), Loopback: true,
		Log: slog.New(slog.NewJSONHandler(d.log, nil)),
	}))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.addr, d.url = l.Addr().String(), "http://"+l.Addr().String()
	done := make(chan struct{})
	go func() { h.Serve(l); close(done) }()
	t.Cleanup(func() {
		d.client.CloseIdleConnections()
		h.Close()
		<-done
	})
	return d
}

// lines is a log.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (d *daemon) logged() string {
	d.log.mu.Lock()
	defer d.log.mu.Unlock()
	return d.log.b.String()
}

// ask is one request.
type ask struct {
	method, path string
	key          string
	body         any // a string or []byte as it is, else as JSON
	header       map[string]string
}

func (a ask) with(name, value string) ask {
	h := map[string]string{name: value}
	for n, v := range a.header {
		if _, set := h[n]; !set {
			h[n] = v
		}
	}
	a.header = h
	return a
}

func (a ask) bytes() []byte {
	switch b := a.body.(type) {
	case nil:
		return nil
	case string:
		return []byte(b)
	case []byte:
		return b
	}
	b, err := json.Marshal(a.body)
	if err != nil {
		panic(err)
	}
	return b
}

func (d *daemon) open(ctx context.Context, a ask) *http.Response {
	d.t.Helper()
	var body io.Reader
	if a.body != nil {
		body = bytes.NewReader(a.bytes())
	}
	r, err := http.NewRequestWithContext(ctx, a.method, d.url+a.path, body)
	if err != nil {
		d.t.Fatal(err)
	}
	if a.key != "" {
		r.Header.Set("X-API-Key", a.key)
	}
	if _, raw := a.body.(string); a.body != nil && !raw {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, value := range a.header {
		r.Header.Set(name, value)
	}
	res, err := d.client.Do(r)
	if err != nil {
		d.t.Fatalf("%s %s: %v", a.method, a.path, err)
	}
	return res
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (d *daemon) do(a ask) answer {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), longest)
	defer cancel()
	res := d.open(ctx, a)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		d.t.Fatalf("%s %s: %v", a.method, a.path, err)
	}
	return answer{res.StatusCode, res.Header, body}
}

// want asks, and decodes an answer of the given status into v, if that is not nil.
func (d *daemon) want(status int, a ask, v any) answer {
	d.t.Helper()
	if a.key == "" {
		a.key = servertest.Key
	}
	got := d.do(a)
	if got.status != status {
		d.t.Fatalf("%s %s: status %d, want %d: %s", a.method, a.path, got.status, status, got.body)
	}
	if v != nil {
		if err := json.Unmarshal(got.body, v); err != nil {
			d.t.Fatalf("%s %s: %v in %s", a.method, a.path, err, got.body)
		}
	}
	return got
}

func (a answer) problem(t *testing.T) server.Problem {
	t.Helper()
	var p server.Problem
	dec := json.NewDecoder(bytes.NewReader(a.body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		t.Fatalf("no error in %q: %v", a.body, err)
	}
	if p.Code != a.status || p.Message == "" || p.ErrorCode == "" {
		t.Errorf("an error of status %d says %s", a.status, a.body)
	}
	return p
}

func (d *daemon) box() string {
	d.t.Helper()
	var b rest.Box
	d.want(201, ask{method: "POST", path: "/v1/boxes", body: map[string]any{}}, &b)
	return string(b.ID)
}

// at is a path below a box.
func at(id, format string, args ...any) string {
	return "/v1/boxes/" + id + fmt.Sprintf(format, args...)
}

func (d *daemon) start(id string, body map[string]any) int {
	d.t.Helper()
	var p rest.Started
	d.want(201, ask{method: "POST", path: at(id, "/processes"), body: body}, &p)
	return p.PID
}

func words(s string) []string { return strings.Fields(s) }

func fault() error {
	return box.Errorf(box.Fault, "test", "cannot open /var/lib/secret: it is nobody's business")
}
