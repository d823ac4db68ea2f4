package server_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/sunaba-dev/sunaba/internal/server"
	"github.com/sunaba-dev/sunaba/internal/server/servertest"
)

// Bodies that are begun and not ended are a tenant's own trouble, and bounded.
func TestBodiesThatAreArrivingAreBounded(t *testing.T) {
	arrived := make(chan struct{}, 99)
	h := front(func(c *server.Config) {
		c.Mounts = []server.Mount{{Pattern: "/v1/", Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			arrived <- struct{}{}
			io.Copy(io.Discard, r.Body)
		})}}
	})
	post := func(method, key string, size int64, body io.Reader) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "/v1/execute", body)
		r.Host, r.ContentLength = "localhost", size
		r.Header.Set("X-API-Key", key)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	var wg sync.WaitGroup
	slow, end := io.Pipe()
	for i := range 16 {
		size := int64(8 << 20)
		if i == 0 {
			size = -1 // it is not said
		}
		wg.Go(func() { post("POST", servertest.Key, size, slow) })
		<-arrived
	}
	full := post("POST", servertest.Key, 1, strings.NewReader("x"))
	if full.Code != 429 || full.Header().Get("Retry-After") == "" {
		t.Errorf("one more: %d %s", full.Code, full.Body)
	}
	for what, got := range map[string]*httptest.ResponseRecorder{
		"another tenant": post("POST", servertest.OtherKey, 1, strings.NewReader("x")),
		"a file":         post("PUT", servertest.Key, 1, strings.NewReader("x")),
		"no body":        post("POST", servertest.Key, 0, http.NoBody),
	} {
		if got.Code != 200 {
			t.Errorf("%s: %d %s", what, got.Code, got.Body)
		}
	}
	end.Close()
	wg.Wait()
	if got := post("POST", servertest.Key, 1, strings.NewReader("x")); got.Code != 200 {
		t.Errorf("afterwards: %d %s", got.Code, got.Body)
	}
}
