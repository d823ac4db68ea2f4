package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/test/harness"
)

// A daemon that is slow to answer has not said that there is nothing: what a program
// wrote is shown, and the look at it ends though the program runs on.
func TestLogsWaitForASlowDaemon(t *testing.T) {
	for name, c := range map[string]struct{ events, stdout, stderr string }{
		"it wrote":        {"event: stdout\ndata: {\"at\":0,\"data\":\"one\\n\"}\n\nevent: stderr\ndata: {\"at\":0,\"data\":\"two\\n\"}\n\n", "one\n", "two\n"},
		"it said nothing": {"event: beat\ndata: {}\n\n", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !strings.HasSuffix(r.URL.Path, "/processes/7/output") {
					t.Errorf("asked for %s", r.URL)
				}
				select {
				case <-time.After(3 * time.Second): // longer than logs waits for more
				case <-r.Context().Done():
				}
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, c.events)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done() // it runs on
			}))
			defer daemon.Close()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			cmd := harness.Command(ctx, t, harness.Users()[0], "box", "logs", "bxaaaaaaaaaaaaaaaaaaaa", "7")
			cmd.Env = append(cmd.Env, "SUNABA_SERVER="+daemon.URL, "SUNABA_API_KEY=e2b_0123456789abcdef0123456789abcdef01234567")
			var out, errs strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &errs
			if err := cmd.Run(); err != nil || out.String() != c.stdout || errs.String() != c.stderr {
				t.Errorf("%v, stdout %q, stderr %q", err, out.String(), errs.String())
			}
		})
	}
}

// A program that never rests, slow or fast, does not make a look at what it wrote last
// go on for ever, nor without a bound.
func TestLogsEndThoughTheProgramNeverRests(t *testing.T) {
	for name, c := range map[string]struct {
		data string
		gap  time.Duration
	}{
		"a line now and then":          {"tick", 300 * time.Millisecond},
		"as much as there is room for": {strings.Repeat("y", 32<<10), 0},
	} {
		t.Run(name, func(t *testing.T) {
			daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				for at := 0; ; at += len(c.data) {
					if _, err := fmt.Fprintf(w, "event: stdout\ndata: {\"at\":%d,\"data\":%q}\n\n", at, c.data); err != nil {
						return
					}
					_ = http.NewResponseController(w).Flush()
					select {
					case <-time.After(c.gap):
					case <-r.Context().Done():
						return
					}
				}
			}))
			defer daemon.Close()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			cmd := harness.Command(ctx, t, harness.Users()[0], "box", "logs", "bxaaaaaaaaaaaaaaaaaaaa", "7")
			cmd.Env = append(cmd.Env, "SUNABA_SERVER="+daemon.URL, "SUNABA_API_KEY=e2b_0123456789abcdef0123456789abcdef01234567")
			var out strings.Builder
			cmd.Stdout = &out
			if err := cmd.Run(); err != nil || out.Len() < len(c.data) || out.Len() > 10<<20 {
				t.Errorf("%v, after %d bytes", err, out.Len())
			}
		})
	}
}
