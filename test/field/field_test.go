// Package field holds what users of such systems have reported against a real
// daemon: each test is one report's kind, with what would have been right.
// docs/field.md says which report is whose.
package field

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// client uses one daemon, and in it boxes of one tier.
type client struct {
	*harness.Server
	t    *testing.T
	tier box.TierName
}

// eachTier runs fn on a daemon of root's (of the caller's, if that is not root),
// for both tiers at once.
func eachTier(t *testing.T, fn func(c *client)) {
	inTurn(t, func(c *client) {
		c.t.Parallel()
		fn(c)
	})
}

// inTurn does so for one after the other: for tests that end the daemon, or that
// measure it.
func inTurn(t *testing.T, fn func(c *client)) {
	t.Helper()
	inTurnAs(t, harness.Users()[0], fn)
}

// inTurnAs does so on a daemon of one user's.
func inTurnAs(t *testing.T, u harness.User, fn func(c *client)) {
	t.Helper()
	harness.NothingLeft(t)
	d := harness.StartServer(t, u)
	for _, tier := range []box.TierName{box.TierGvisor, box.TierProcess} {
		t.Run(string(tier), func(t *testing.T) { fn(&client{Server: d, t: t, tier: tier}) })
	}
}

type boxInfo struct {
	ID     string    `json:"id"`
	Phase  string    `json:"phase"`
	Reason string    `json:"reason"`
	Detail string    `json:"detail"`
	Ends   time.Time `json:"ends_at"`
	Limits []struct {
		Limit string `json:"limit"`
	} `json:"limits_hit"`
}

// make makes a box; more are members of the request.
func (c *client) make(more map[string]any) string {
	c.t.Helper()
	req := map[string]any{"sandbox": map[string]any{
		"runtime": c.tier, "trust": "trusted", "resource_limits": map[string]any{"memory": "256m", "disk": "128m", "max_processes": 64},
	}}
	for k, v := range more {
		req[k] = v
	}
	var b boxInfo
	c.Must("POST", "/v1/boxes", req, &b)
	c.t.Cleanup(func() { c.Must("DELETE", "/v1/boxes/"+b.ID, nil, nil) })
	return "/v1/boxes/" + b.ID
}

// ended is a program's end, with its output where it was asked for.
type ended struct {
	PID         int     `json:"pid"`
	Cause       string  `json:"cause"`
	ExitCode    *int    `json:"exit_code"`
	TimedOut    bool    `json:"timed_out"`
	TimeoutSec  float64 `json:"timeout_sec"`
	Message     string  `json:"message"`
	Stdout      string  `json:"stdout"`
	Stderr      string  `json:"stderr"`
	StdoutBytes int64   `json:"stdout_bytes"`
}

// exec runs a line in the foreground; more are members of the request.
func (c *client) exec(path, shell string, more map[string]any) (e ended) {
	c.t.Helper()
	req := map[string]any{"shell": shell}
	for k, v := range more {
		req[k] = v
	}
	c.Must("POST", path+"/exec", req, &e)
	return e
}

// start starts a line in the background.
func (c *client) start(path, shell string, more map[string]any) (p ended) {
	c.t.Helper()
	req := map[string]any{"shell": shell}
	for k, v := range more {
		req[k] = v
	}
	c.Must("POST", path+"/processes", req, &p)
	return p
}

// event is one of a stream's.
type event struct {
	ID, Name string
	Data     struct {
		At     int64  `json:"at"`
		Data   string `json:"data"`
		Base64 string `json:"data_base64"`
		ended
		Code  int    `json:"code"`
		Error string `json:"error_code"`
	}
}

func (e event) bytes() []byte {
	if e.Data.Base64 != "" {
		b, _ := base64.StdEncoding.DecodeString(e.Data.Base64)
		return b
	}
	return []byte(e.Data.Data)
}

// stream follows events until fn returns false or they end.
func (c *client) stream(ctx context.Context, method, path, last string, body any, fn func(event) bool) error {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		in = bytes.NewReader(b)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, c.URL+path, in)
	if err != nil {
		return err
	}
	req.Header.Set("X-API-Key", c.Key)
	req.Header.Set("Accept", "text/event-stream")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s %s: %d %s", method, path, resp.StatusCode, b)
	}
	var e event
	in2 := bufio.NewReaderSize(resp.Body, 1<<20)
	for {
		line, err := in2.ReadString('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "":
			if e.Name != "" && !fn(e) {
				return nil
			}
			e = event{ID: e.ID}
		case name == "id":
			e.ID = value
		case name == "event":
			e.Name = value
		case name == "data":
			if err := json.Unmarshal([]byte(value), &e.Data); err != nil {
				return fmt.Errorf("event %s: %w: %s", e.Name, err, value)
			}
		}
	}
}

// patience is how long what must come is waited for: on a host that is loaded all takes
// ten times as long. What would come by itself later than that is made to take longer.
const patience = 4 * time.Minute

func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

func (c *client) inspect(path string) (b boxInfo) {
	c.t.Helper()
	c.Must("GET", path, nil, &b)
	return b
}

func (c *client) process(path string, pid int) (p struct {
	End *ended `json:"end"`
}) {
	c.t.Helper()
	c.Must("GET", fmt.Sprint(path, "/processes/", pid), nil, &p)
	return p
}
