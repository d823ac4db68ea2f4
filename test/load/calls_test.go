package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/test/harness"
	"github.com/sunaba-dev/sunaba/test/upstream"
)

// load is one run's account.
type load struct {
	t *testing.T

	at sync.RWMutex // whoever starts d anew writes
	d  *harness.Server

	mu    sync.Mutex
	took  map[string][]time.Duration // of answered calls
	calls atomic.Int64               // answered, whatever the answer was
	later atomic.Int64               // answers that said to come again later
	cut   atomic.Int64               // calls that had no answer, since the daemon was killed
	wrong atomic.Int64
	warm  atomic.Int64    // boxes that were handed out warm
	down  []time.Duration // from each kill until the daemon answered again

	farm     *upstream.Farm
	gateways atomic.Int64 // that were killed
	largest  int          // of them, in KiB
	arrivals int          // in the world
}

// fail notes a wrong answer.
func (l *load) fail(format string, args ...any) {
	if l.wrong.Add(1) <= 10 {
		l.t.Errorf(format, args...)
	}
}

// patience bounds how long one call is made again, and how long what must come is waited
// for: on a host that is loaded all takes ten times as long.
const patience = 5 * time.Minute

// errCut says that a call may have been done or not.
var errCut = fmt.Errorf("the daemon was killed before it answered")

// call makes a request, and again as long as it is told to come later. It is for
// what may be done twice: a call without an answer is made again.
func (l *load) call(ctx context.Context, what, method, path string, in, out any, header ...string) error {
	for {
		err := l.once(ctx, what, method, path, in, out, header...)
		if err != errCut {
			return err
		}
	}
}

// once is call for what may be done once: one that has no answer is errCut.
func (l *load) once(ctx context.Context, what, method, path string, in, out any, header ...string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		start := time.Now()
		status, b, err := l.ask(ctx, method, path, in, header...)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("%s %s: no answer in %v", method, path, patience)
		case err != nil:
			l.cut.Add(1)
			wait(ctx, 50*time.Millisecond)
			return errCut
		}
		l.calls.Add(1)
		switch {
		case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
			l.later.Add(1)
			wait(ctx, 200*time.Millisecond)
			continue
		case status >= 400:
			return answer{status, fmt.Sprintf("%s %s: %d %s", method, path, status, b)}
		case out != nil:
			if err := json.Unmarshal(b, out); err != nil {
				return fmt.Errorf("%s %s: %w in %q", method, path, err, b)
			}
		}
		l.mu.Lock()
		l.took[what] = append(l.took[what], time.Since(start))
		l.mu.Unlock()
		return nil
	}
}

// answer is one that is an error.
type answer struct {
	status int
	text   string
}

func (a answer) Error() string { return a.text }

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// ask makes a request of the daemon that there is now. An error is that of the
// connection: there was no answer, or not all of it.
func (l *load) ask(ctx context.Context, method, path string, in any, header ...string) (int, []byte, error) {
	l.at.RLock()
	url, key := l.d.URL, l.d.Key
	l.at.RUnlock()
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			panic(err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, url+path, body)
	if err != nil {
		panic(err)
	}
	req.Header.Set("X-API-Key", key)
	req.Header.Set("Accept", "application/json")
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, b, err
}

// kill ends the daemon as a crash would, among all that is under way, and starts
// the next one.
func (l *load) kill() {
	begun := time.Now()
	l.at.Lock()
	l.d.Kill()
	l.d.Start()
	l.at.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = append(l.down, time.Since(begun).Round(time.Millisecond))
}

// report prints how long calls took.
func (l *load) report() {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	right := 0
	for what := range l.took {
		names = append(names, what)
		right += len(l.took[what])
	}
	slices.Sort(names)
	for _, what := range names {
		all := l.took[what]
		slices.Sort(all)
		l.t.Logf("%-24s %6d calls, p50 %v, p99 %v", what, len(all), all[len(all)/2].Round(time.Millisecond), all[len(all)*99/100].Round(time.Millisecond))
	}
	l.t.Logf("%d calls were done, %d answers were to come later, %d calls had no answer; %d boxes were warm; %d kills, %v until it answered again", right, l.later.Load(), l.cut.Load(), l.warm.Load(), len(l.down), l.down)
}
