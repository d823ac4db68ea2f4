// Package load puts many clients on one daemon, two of them with bombs, and
// holds every answer against what it must be. Afterwards the daemon may hold no
// more than before.
//
// CI runs 50 clients for 30 seconds; `make load` (tag load) 200 for five
// minutes, and prints how long calls took. No time decides a test.
package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// load is one run's account.
type load struct {
	t *testing.T
	d *harness.Server

	mu    sync.Mutex
	took  map[string][]time.Duration
	later atomic.Int64 // answers that said to come again later
	wrong atomic.Int64
}

func TestManyClientsGetTheirAnswersAndNothingIsLeft(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("bombs of an ordinary user's boxes are not contained by groups here; the daemon's own behaviour is the same")
	}
	harness.NothingLeft(t)
	d := harness.StartServer(t, harness.Root, "--open-metrics", "--max-boxes", "400")
	l := &load{t: t, d: d, took: map[string][]time.Duration{}}
	l.mixed(context.Background(), 0, rand.New(rand.NewPCG(0, 0))) // what is made once and kept
	l.oneCall(context.Background(), 0, "gvisor")
	l.oneCall(context.Background(), 0, "process")
	if t.Failed() {
		return
	}
	before := l.holds()
	over := time.Now().Add(duration) // then each client ends what it is at
	ctx := t.Context()
	var wg sync.WaitGroup
	for n := range clients {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(n), seed))
			for i := 0; time.Now().Before(over); i++ {
				switch {
				case n == 0:
					l.bomb(ctx, `:(){ :|:& };:; sleep 5`)
				case n == 1:
					l.bomb(ctx, `python3 -c "a=[]
while 1: a.append(bytearray(1<<20))"`)
				case r.IntN(3) == 0:
					l.mixed(ctx, n*1000+i, r)
				default:
					l.oneCall(ctx, n*1000+i, []string{"gvisor", "process"}[r.IntN(2)])
				}
			}
		})
	}
	wg.Wait()
	l.report()
	if l.wrong.Load() > 0 {
		t.Errorf("%d wrong answers", l.wrong.Load())
	}
	l.returnsTo(before)
}

// fail notes a wrong answer.
func (l *load) fail(format string, args ...any) {
	if l.wrong.Add(1) <= 10 {
		l.t.Errorf(format, args...)
	}
}

// call makes a request, and again as long as it is told to come later.
func (l *load) call(ctx context.Context, what, method, path string, in, out any) error {
	for {
		start := time.Now()
		status, err := l.d.Call(ctx, method, path, in, out)
		if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
			l.later.Add(1)
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(200 * time.Millisecond):
			}
			continue
		}
		if err == nil {
			l.mu.Lock()
			l.took[what] = append(l.took[what], time.Since(start))
			l.mu.Unlock()
		}
		return err
	}
}

func sandbox(tier string) map[string]any {
	return map[string]any{"runtime": tier, "trust": "trusted", "resource_limits": map[string]any{"memory": "256m", "disk": "64m", "timeout_sec": 60}}
}

// oneCall runs a program in a box of its own.
func (l *load) oneCall(ctx context.Context, n int, tier string) {
	var rep box.Report
	err := l.call(ctx, "execute "+tier, "POST", "/v1/execute", map[string]any{
		"language": "bash", "code": fmt.Sprintf("echo %d; echo err >&2; exit %d", n, n%7), "sandbox": sandbox(tier),
	}, &rep)
	switch {
	case err != nil:
		l.fail("execute on %s: %v", tier, err)
	case rep.ExitCode == nil || *rep.ExitCode != n%7 || rep.Stdout == nil || *rep.Stdout != fmt.Sprintln(n) || rep.Stderr == nil || *rep.Stderr != "err\n":
		l.fail("execute on %s of %d: %+v", tier, n, rep)
	}
}

// bomb runs what must be ended by a limit, or end by itself.
func (l *load) bomb(ctx context.Context, code string) {
	for _, tier := range []string{"process", "gvisor"} {
		var rep box.Report
		s := sandbox(tier)
		s["resource_limits"].(map[string]any)["timeout_sec"] = 5
		if err := l.call(ctx, "bomb", "POST", "/v1/execute", map[string]any{"language": "bash", "code": code, "sandbox": s}, &rep); err != nil {
			l.fail("a bomb on %s: %v", tier, err)
		} else if len(rep.LimitsHit) == 0 {
			l.fail("a bomb on %s touched no limit: %s", tier, rep.Cause)
		}
	}
}

type exec struct {
	Stdout   string `json:"stdout"`
	ExitCode *int   `json:"exit_code"`
	Cause    string `json:"cause"`
}

// mixed uses a box that lasts.
func (l *load) mixed(ctx context.Context, n int, r *rand.Rand) {
	tier := []string{"gvisor", "process"}[r.IntN(2)]
	var made struct {
		ID string `json:"id"`
	}
	if err := l.call(ctx, "create "+tier, "POST", "/v1/boxes", map[string]any{"sandbox": sandbox(tier), "ttl_sec": 600}, &made); err != nil {
		l.fail("create on %s: %v", tier, err)
		return
	}
	path := "/v1/boxes/" + made.ID
	defer func() {
		if err := l.call(ctx, "destroy", "DELETE", path, nil, nil); err != nil {
			l.fail("destroy on %s: %v", tier, err)
		}
	}()
	for i := range 1 + r.IntN(4) {
		var e exec
		want := fmt.Sprint(n, " ", i)
		if err := l.call(ctx, "exec "+tier, "POST", path+"/exec", map[string]any{"command": []string{"sh", "-c", "echo $0 >> log; tail -n 1 log; exit 3", want}}, &e); err != nil {
			l.fail("exec on %s: %v", tier, err)
			return
		}
		if e.Stdout != want+"\n" || e.ExitCode == nil || *e.ExitCode != 3 {
			l.fail("exec on %s: %+v, want %q", tier, e, want)
		}
	}
	var big exec
	if err := l.call(ctx, "1 MB of output "+tier, "POST", path+"/exec", map[string]any{"command": []string{"sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x"}}, &big); err != nil {
		l.fail("output on %s: %v", tier, err)
	} else if len(big.Stdout) != 1000000 || strings.Trim(big.Stdout, "x") != "" {
		l.fail("output on %s: %d bytes", tier, len(big.Stdout))
	}
}

// holds is what the daemon has open. What it leaves on the host is the
// harness's to find.
func (l *load) holds() map[string]int {
	h := map[string]int{}
	resp, err := http.Get(l.d.URL + "/metrics")
	if err != nil {
		l.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		for _, name := range []string{"sunaba_goroutines", "sunaba_open_files"} {
			if v, ok := strings.CutPrefix(line, name+" "); ok {
				f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
				if err != nil {
					l.t.Fatal(err)
				}
				h[name] = int(f)
			}
		}
	}
	return h
}

// returnsTo waits until the daemon holds no more than before, but for what the
// clients of this process keep open to it.
func (l *load) returnsTo(before map[string]int) {
	http.DefaultClient.CloseIdleConnections()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(250 * time.Millisecond) {
		now := l.holds()
		http.DefaultClient.CloseIdleConnections()
		over := errors.Join()
		for what, n := range now {
			// The database keeps two connections for the next ones, of three files each.
			if slack := map[string]int{"sunaba_goroutines": 8, "sunaba_open_files": 8}[what]; n > before[what]+slack {
				over = errors.Join(over, fmt.Errorf("%s: %d, before %d", what, n, before[what]))
			}
		}
		if over == nil {
			l.t.Logf("before %v, after %v", before, now)
			return
		}
		if time.Now().After(end) {
			l.t.Errorf("the daemon keeps what it took: %v", over)
			return
		}
	}
}

// report prints how long calls took.
func (l *load) report() {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for what := range l.took {
		names = append(names, what)
	}
	slices.Sort(names)
	for _, what := range names {
		all := l.took[what]
		slices.Sort(all)
		l.t.Logf("%-24s %6d calls, p50 %v, p99 %v", what, len(all), all[len(all)/2].Round(time.Millisecond), all[len(all)*99/100].Round(time.Millisecond))
	}
	l.t.Logf("told to come later: %d", l.later.Load())
}
