package mcp

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/server"
)

// authenticate knows two keys.
func authenticate(_ context.Context, key string) (box.Caller, error) {
	switch key {
	case "one":
		return everything(), nil
	case "two":
		return box.Caller{Tenant: "t2", Principal: "p2", Scopes: []box.Scope{box.ScopeAdmin}}, nil
	case "look":
		return box.Caller{Tenant: "t1", Principal: "p3", Scopes: []box.Scope{box.ScopeRead}}, nil
	}
	return box.Caller{}, box.Errorf(box.Denied, "authenticate", "cannot accept this key")
}

// front puts a server where the daemon has it.
func front(s *Server) *httptest.Server {
	return httptest.NewServer(server.New(server.Config{
		Auth: authenticate, Loopback: true, Mounts: []server.Mount{{Pattern: "/mcp", Handler: s.Handler()}},
	}))
}

type withKey string

func (k withKey) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(k))
	return http.DefaultTransport.RoundTrip(r)
}

func overHTTP(t *testing.T, url, key string) *sdk.ClientSession {
	cs := connect(t, &sdk.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: withKey(key)}}, nil)
	t.Cleanup(func() { cs.Close() })
	return cs
}

func TestHTTPServesEachKeyItsOwn(t *testing.T) {
	f := newFake(t)
	srv := front(New(Config{Service: f}))
	defer srv.Close()
	one, two, look := overHTTP(t, srv.URL+"/mcp", "one"), overHTTP(t, srv.URL+"/mcp", "two"), overHTTP(t, srv.URL+"/mcp", "look")
	out, _ := good(t, one, "create_box", m{})
	id := out["sandbox_id"]
	good(t, one, "write_file", m{"sandbox_id": id, "path": "/x", "content": "y"})
	good(t, look, "read_file", m{"sandbox_id": id, "path": "/x"})
	if res := do(t, look, "run_command", m{"sandbox_id": id, "command": "id"}); !res.IsError || !strings.Contains(said(res), "lacks the scope") {
		t.Errorf("a key to look with runs a command: %s", said(res))
	}
	theirs := said(do(t, two, "read_file", m{"sandbox_id": id, "path": "/x"}))
	absent := said(do(t, two, "read_file", m{"sandbox_id": string(box.NewID()), "path": "/x"}))
	mask := regexp.MustCompile(`bx[a-z2-7]{20}`)
	if mask.ReplaceAllString(theirs, "") != mask.ReplaceAllString(absent, "") || !strings.Contains(theirs, "cannot find box") {
		t.Errorf("another tenant's box says %q, none says %q", theirs, absent)
	}
	out, _ = good(t, one, "run_code", m{"language": "bash", "code": "printf %99999s x"})
	uri := out["stdout"].(m)["resource"].(string)
	mine, err := one.ReadResource(context.Background(), &sdk.ReadResourceParams{URI: uri})
	if err == nil && mine.CacheScope != "private" {
		t.Errorf("whoever stands between may give it to anybody: %q", mine.CacheScope)
	}
	if err != nil {
		t.Error(err)
	}
	if _, err := two.ReadResource(context.Background(), &sdk.ReadResourceParams{URI: uri}); err == nil {
		t.Error("another tenant reads an output")
	}
}

const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`

func TestHTTPRefusesWhoHasNoKeyOrComesFromElsewhere(t *testing.T) {
	srv := front(New(Config{Service: newFake(t)}))
	defer srv.Close()
	for name, c := range map[string]struct {
		set  func(*http.Request)
		want int
	}{
		"a key":         {func(*http.Request) {}, 200},
		"a key of REST": {func(r *http.Request) { r.Header.Del("Authorization"); r.Header.Set("X-API-Key", "one") }, 200},
		"no key":        {func(r *http.Request) { r.Header.Del("Authorization") }, 401},
		"a wrong key":   {func(r *http.Request) { r.Header.Set("Authorization", "Bearer no") }, 401},
		"another site":  {func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, 403},
		"another name":  {func(r *http.Request) { r.Host = "evil.example" }, 421},
	} {
		req, _ := http.NewRequest("POST", srv.URL+"/mcp", strings.NewReader(hello))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("Authorization", "Bearer one")
		c.set(req)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != c.want {
			t.Errorf("%s: %d %s, want %d", name, res.StatusCode, body, c.want)
		}
		if id := res.Header.Get("Mcp-Session-Id"); id != "" {
			t.Errorf("%s: there is a session %s", name, id)
		}
		if c.want == 200 && !strings.Contains(string(body), `"protocolVersion":"2025-11-25"`) {
			t.Errorf("%s: %s", name, body)
		}
	}
}

func TestHTTPCallEndsWithItsConnectionInEveryRevision(t *testing.T) {
	f := newFake(t)
	srv := front(New(Config{Service: f}))
	defer srv.Close()
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		ctx, cancel := context.WithCancel(context.Background())
		before := len(f.asked)
		body := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"run_command","arguments":{"command":"sleep 100"},` +
			`"_meta":{"io.modelcontextprotocol/protocolVersion":"` + version + `","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
		if version < "2026" {
			body = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"run_command","arguments":{"command":"sleep 100"}}}`
		}
		req, _ := http.NewRequestWithContext(ctx, "POST", srv.URL+"/mcp", strings.NewReader(body))
		for k, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": "Bearer one",
			"MCP-Protocol-Version": version, "Mcp-Method": "tools/call", "Mcp-Name": "run_command"} {
			req.Header.Set(k, v)
		}
		go func() {
			res, err := http.DefaultClient.Do(req)
			if err == nil {
				b, _ := io.ReadAll(res.Body)
				t.Logf("%s: %d %s", version, res.StatusCode, b)
				res.Body.Close()
			}
		}()
		for begun := false; !begun; {
			f.mu.Lock()
			begun = len(f.asked) > before
			f.mu.Unlock()
			<-time.After(time.Millisecond)
		}
		cancel()
		<-f.ended
	}
}
