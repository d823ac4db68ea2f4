// Package load puts many clients on one daemon, two of them with bombs, kills the
// daemon among it now and then, and holds every answer against what it must be.
// Boxes are made for one call and to last, cold and warm, they are paused, forked and
// restored, and programs run in the background. Some have a network, reach what they
// may and try what they may not; their rules change, and the gateway is killed, too. A call without an answer is no
// wrong one: the client comes again, with the same key where that matters, or
// looks what became of it. Afterwards no box may be left, and daemon and gateway may
// hold no more than before.
//
// CI runs 50 clients for 30 seconds; `make load` (tag load) 200 for five
// minutes, and prints how long calls took. No time decides a test.
package load

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/test/harness"
	"github.com/sunaba-dev/sunaba/test/upstream"
)

func TestMain(m *testing.M) {
	os.Exit(upstream.Main(func() int { return harness.Main(m) }))
}

func TestManyClientsGetTheirAnswersAndNothingIsLeft(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("bombs of an ordinary user's boxes are not contained by groups here; the daemon's own behaviour is the same")
	}
	harness.NothingLeft(t)
	d := harness.StartServer(t, harness.Root, "--open-metrics", "--max-boxes", "400", "--warm", "8", "--resolver", upstream.Resolver)
	l := &load{t: t, d: d, took: map[string][]time.Duration{}, farm: upstream.Of(t)}
	ctx := t.Context()
	for n, tier := range []string{"gvisor", "process"} { // what is made once and kept, the pool included
		l.oneCall(ctx, 0, tier)
		for i := range 2 {
			l.reused(tier, fmt.Sprint("first-", n, i))
		}
	}
	links := interfaces(l)
	l.warmed() // the first one gets a warm box, however slow the host is
	l.mixed(ctx, -1, rand.New(rand.NewPCG(0, 0)), true)
	if t.Failed() {
		return
	}
	l.warmed()
	before, gateway := l.holds(), l.gatewayHolds()
	over := time.Now().Add(duration) // then each client ends what it is at
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
				case i == 0 && n < 6:
					l.mixed(ctx, n*1000+i, r, true) // however few rounds there are
				case r.IntN(3) == 0:
					l.mixed(ctx, n*1000+i, r, false)
				case r.IntN(3) == 0:
					l.oneLinkedCall(ctx, n*1000+i, []string{"gvisor", "process"}[r.IntN(2)])
				default:
					l.oneCall(ctx, n*1000+i, []string{"gvisor", "process"}[r.IntN(2)])
				}
			}
		})
	}
	for next := time.Now().Add(killEvery); next.Before(over); next = next.Add(killEvery) {
		l.watchGateway(next)
		l.kill()
	}
	l.watchGateway(over)
	wg.Wait()
	l.arrived()
	l.report()
	l.removeSnapshots()
	l.ends()
	if l.wrong.Load() > 0 {
		t.Errorf("%d wrong answers", l.wrong.Load())
	}
	if l.warm.Load() == 0 || len(l.took["fork in two"]) == 0 || len(l.took["pause gvisor"]) == 0 || len(l.took["restore gvisor"]) == 0 || len(l.took["change rules"]) == 0 || len(l.down) == 0 {
		t.Error("something was not in the mix")
	}
	var left struct {
		Boxes []made `json:"boxes"`
	}
	if err := l.call(ctx, "list boxes", "GET", "/v1/boxes?limit=1000", nil, &left); err != nil || len(left.Boxes) > 0 {
		t.Errorf("boxes that nobody knows of: %+v, %v", left, err)
	}
	for n, tier := range []string{"gvisor", "process"} { // a daemon that was killed last has no pool yet
		l.reused(tier, fmt.Sprint("last-", n))
	}
	l.warmed()
	l.returnsTo(before)
	l.gatewayReturnsTo(gateway, links)
}

// reused makes a box that may be warm, and destroys it, and one that has a network.
func (l *load) reused(tier, key string) {
	for _, name := range []string{"", host("reused")} {
		var b made
		if err := l.call(l.t.Context(), "create, alone", "POST", "/v1/boxes", map[string]any{"sandbox": lasting(tier, true, name), "ttl_sec": 600}, &b, "Idempotency-Key: "+key+name); err != nil {
			l.fail("create on %s: %v", tier, err)
			return
		}
		(&guest{l: l, ctx: l.t.Context(), tier: tier, path: "/v1/boxes/" + b.ID}).destroy()
	}
}

// warmed waits until all four shapes have their two boxes ready.
func (l *load) warmed() {
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		ready := 0
		for line := range strings.Lines(l.metrics()) {
			if strings.HasPrefix(line, "sunaba_warm{") && strings.Contains(line, `state="ready"`) && strings.HasSuffix(line, " 2\n") {
				ready++
			}
		}
		if ready == 4 {
			return
		}
		if time.Now().After(end) {
			l.t.Errorf("the pool does not fill:\n%s", l.metrics())
			return
		}
	}
}

// holds is what the daemon has open. What it leaves on the host is the
// harness's to find.
func (l *load) holds() map[string]int {
	h := map[string]int{}
	for line := range strings.Lines(l.metrics()) {
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

func (l *load) metrics() string {
	resp, err := http.Get(l.d.URL + "/metrics")
	if err != nil {
		l.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	return string(b)
}

// returnsTo waits until the daemon holds no more than before, but for what the
// clients of this process keep open to it.
func (l *load) returnsTo(before map[string]int) {
	http.DefaultClient.CloseIdleConnections()
	for end := time.Now().Add(patience); ; time.Sleep(250 * time.Millisecond) {
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
			pid := l.d.Pid()
			files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
			for i := range files {
				files[i], _ = os.Readlink(files[i])
			}
			l.t.Errorf("the daemon keeps what it took: %v\n%q\n%s", over, files, l.d.Dump())
			l.d.Start()
			return
		}
	}
}
