package cell

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sunaba-dev/sunaba/internal/egress/event"
	"github.com/sunaba-dev/sunaba/internal/egress/rules"
)

const rawPolicy = `  - { name: raw, host: a.example.com, port: 5432, protocol: tcp }
`

func limited(t *testing.T, hosts string, change func(*rules.Policy)) *rules.Policy {
	t.Helper()
	p := *load(t, hosts)
	change(&p)
	return &p
}

func echo(c net.Conn) { _, _ = io.Copy(c, c) }

func TestOpenConnectionsHaveABound(t *testing.T) { // 121
	w := newWorld()
	w.host(t, "a.example.com", "8.8.4.4", "5432", echo)
	f := newFarm(t, w, load(t, rawPolicy), func(c *Config) { c.Timeouts.Idle = time.Hour }) // none of them ends for want of time
	to := net.JoinHostPort(f.lookup("a.example.com").String(), "5432")
	var first net.Conn
	for i := range 256 {
		c, err := f.dial(to)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		if first == nil {
			first = c
		}
	}
	if _, err := f.dial(to); err == nil {
		t.Fatal("connection 257 is accepted")
	}
	f.denied("conns_exhausted")
	if code, _ := f.resolve("a.example.com.", dnsmessage.TypeA); code != dnsmessage.RCodeSuccess {
		t.Error("questions are no longer answered")
	}
	first.Close()
	waitFor(t, "there is room again", func() bool {
		_, err := f.dial(to)
		return err == nil
	})
	if n := f.cell.Stats().Open; n != 256 {
		t.Errorf("%d connections are open", n)
	}
}

func TestConnectionsMayBeginOnlySoFast(t *testing.T) { // 124
	w := newWorld()
	w.host(t, "a.example.com", "8.8.4.4", "5432", echo)
	for name, p := range map[string]*rules.Policy{
		"the policy's rate": limited(t, rawPolicy, func(p *rules.Policy) { p.Limits.Rate = rules.Rate{Count: 3, Per: time.Hour} }),
		"the entry's rate":  load(t, strings.Replace(rawPolicy, "tcp", "tcp, rate: 3/h", 1)),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFarm(t, w, p)
			to := net.JoinHostPort(f.lookup("a.example.com").String(), "5432")
			for i := range 5 {
				c, err := f.dial(to)
				if (err == nil) != (i < 3) {
					t.Errorf("connection %d: %v", i, err)
				}
				if err == nil {
					c.Close()
				}
			}
			f.denied("rate_exhausted")
		})
	}
}

// No byte beyond a budget is passed on, and what was within it is.
func TestBytesHaveABudget(t *testing.T) {
	for _, c := range []struct {
		name string
		p    *rules.Policy
		code string
		tx   int // bytes that may go; 0 is all
	}{
		{"none", load(t, rawPolicy), "", 0},
		{"sent to all", limited(t, rawPolicy, func(p *rules.Policy) { p.Limits.TxBytes = 1500 }), "tx_exhausted", 1500},
		{"received from all", limited(t, rawPolicy, func(p *rules.Policy) { p.Limits.RxBytes = 1500 }), "rx_exhausted", 2000},
		{"sent to the entry", load(t, strings.Replace(rawPolicy, "tcp", "tcp, tx_bytes: 1500", 1)), "bytes_exhausted", 1500},
		{"received from the entry", load(t, strings.Replace(rawPolicy, "tcp", "tcp, rx_bytes: 1500", 1)), "bytes_exhausted", 2000},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			var r recorder
			w.host(t, "a.example.com", "8.8.4.4", "5432", func(c net.Conn) {
				buf := make([]byte, 1000)
				for {
					n, err := c.Read(buf)
					r.mu.Lock()
					r.data = append(r.data, buf[:n]...)
					r.mu.Unlock()
					if err != nil {
						return
					}
					_, _ = c.Write(buf[:n])
				}
			})
			f := newFarm(t, w, c.p)
			conn := f.dialName("a.example.com", "5432")
			got := 0
			for range 3 { // 1,000 bytes there and back
				_, err := conn.Write(make([]byte, 1000))
				if err != nil {
					break
				}
				n, err := io.ReadFull(conn, make([]byte, 1000))
				got += n
				if err != nil {
					break
				}
			}
			if c.code == "" {
				if got != 3000 {
					t.Errorf("%d bytes came back", got)
				}
				return
			}
			f.denied(c.code)
			if n := len(r.text()); n > c.tx || got != 1000 {
				t.Errorf("%d bytes went, %d came back", n, got)
			}
			before := len(r.text()) // the budget is the box's, not the connection's
			if again, err := f.dial(net.JoinHostPort(f.lookup("a.example.com").String(), "5432")); err == nil {
				_, _ = again.Write(make([]byte, 1000))
				if n, err := io.ReadFull(again, make([]byte, 1000)); err == nil || n > 0 {
					t.Errorf("a new connection gets %d bytes", n)
				}
			}
			if n := len(r.text()); n > c.tx+1000 || c.tx == 1500 && n != before {
				t.Errorf("a new connection has a new budget: %d bytes went", n)
			}
		})
	}
}

// The time is the policy's, also when it is changed while the connection stands; without
// one in it, it is long enough for an answer that a server thinks about.
func TestAPolicySaysForHowLongAConnectionMayStand(t *testing.T) {
	w := newWorld()
	w.host(t, "a.example.com", "8.8.4.4", "5432", echo)
	for name, c := range map[string]struct {
		policy, gateway time.Duration
		ends            bool
	}{
		"shorter than the gateway's": {time.Second, time.Hour, true},
		"longer than the gateway's":  {time.Hour, 300 * time.Millisecond, false},
		"none":                       {0, time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFarm(t, w, limited(t, rawPolicy, func(p *rules.Policy) { p.Limits.Idle = c.policy }), func(cfg *Config) { cfg.Timeouts.Idle = c.gateway })
			conn := f.dialName("a.example.com", "5432")
			if !c.ends {
				_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
			}
			_, err := conn.Read(make([]byte, 1))
			var ne net.Error
			if timeout := errors.As(err, &ne) && ne.Timeout(); err == nil || timeout == c.ends {
				t.Errorf("in the end: %v", err)
			}
		})
	}
	if d := (Timeouts{}).filled().Idle; d != time.Minute {
		t.Errorf("without one in the policy: %s", d)
	}
}

// Requests are counted with their heads, for their rule and for its entry, over all
// connections; and what is one byte too long does not pass.
func TestRequestsHaveTheBudgetsOfTheirRuleAndItsEntry(t *testing.T) {
	const hosts = `  - name: web
    host: a.example.com
    port: 80
    tx_bytes: 3000
    rules:
      - { name: say, methods: [POST], paths: [/say], tx_bytes: 1000 }
      - { name: more, methods: [POST], paths: [/more] }
      - { name: read, methods: [GET], paths: [/read], rx_bytes: 100 }
`
	w := newWorld()
	a := origin{}
	var over atomic.Int64
	w.host(t, "a.example.com", "8.8.4.4", "80", func(c net.Conn) {
		defer over.Add(1)
		a.serve(c)
	})
	f := newFarm(t, w, load(t, hosts))
	post := func(path string, all int) (sent bool) { // of all bytes, as the upstream gets them
		t.Helper()
		waitFor(t, "the upstream has all of the requests before", func() bool { // of which a part may be on its way
			w.mu.Lock()
			defer w.mu.Unlock()
			return int(over.Load()) == len(w.dials)
		})
		head := "POST " + path + " HTTP/1.1\r\nHost: a.example.com\r\nContent-Length: %d\r\n"
		n := all - len(fmt.Sprintf(head, 100)+"Connection: close\r\n\r\n")
		conn := f.dialName("a.example.com", "80")
		before := len(a.text())
		_, _ = io.WriteString(conn, fmt.Sprintf(head, n)+"\r\n"+strings.Repeat("b", n))
		r, err := http.ReadResponse(bufio.NewReader(conn), nil)
		got := len(a.text()) - before
		if err == nil && r.StatusCode == 200 && got != all {
			t.Errorf("%s: the upstream got %d bytes of %d", path, got, all)
		}
		return err == nil && r.StatusCode == 200
	}
	for i, c := range []struct {
		path string
		size int
		want bool
	}{
		{"/say", 500, true}, {"/say", 501, false}, {"/say", 500 - 89, true}, // of which the head of the one before was sent
		{"/say", 200, false}, {"/more", 900, true}, {"/more", 900, true},
	} {
		if got := post(c.path, c.size); got != c.want {
			t.Errorf("%d: %s with %d bytes: %v; the upstream got %d in all", i, c.path, c.size, got, len(a.text()))
		}
	}
	f.denied("bytes_exhausted")
	if n := len(a.text()); n > 3000 { // the last was answered, and has come
		t.Errorf("the upstream got %d bytes", n)
	}
	read := func() bool {
		conn := f.dialName("a.example.com", "80")
		_, _ = io.WriteString(conn, "GET /read HTTP/1.1\r\nHost: a.example.com\r\n\r\n")
		r, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return false
		}
		body, err := io.ReadAll(r.Body)
		return err == nil && string(body) == "ok"
	}
	if one, two, three := read(), read(), read(); !one || !two || three { // 40 bytes each
		t.Errorf("answers: %v, %v, %v", one, two, three)
	}
}

func TestAConnectionOnWhichNothingMovesEnds(t *testing.T) {
	w := newWorld()
	w.host(t, "a.example.com", "8.8.4.4", "5432", echo)
	for idle := 250 * time.Millisecond; ; idle *= 4 {
		f := newFarm(t, w, load(t, rawPolicy), func(c *Config) { c.Timeouts.Idle = idle })
		last := time.Now()
		busy := f.dialName("a.example.com", "5432")
		stop := make(chan error, 1)
		longest := time.Duration(0)
		go func() {
			for begin := time.Now(); time.Since(begin) < 2*idle; time.Sleep(20 * time.Millisecond) {
				_, _ = busy.Write([]byte("x"))
				_, err := io.ReadFull(busy, make([]byte, 1))
				longest, last = max(longest, time.Since(last)), time.Now()
				if err != nil {
					stop <- err
					return
				}
			}
			stop <- nil
		}()
		if quiet := f.dialName("a.example.com", "5432"); !ended(quiet) {
			t.Error("it goes on")
		}
		f.event(func(e event.Event) bool { return e.Kind == event.Close && e.Code == "idle" }, "the end")
		if e := f.denied("idle"); !strings.Contains(e.Reason, "no byte moved on it for "+idle.String()) || e.Fix == "" {
			t.Errorf("it is told as %+v", e)
		}
		err := <-stop
		if err == nil {
			return
		}
		// A host on which nothing moved for so long says nothing of the busy one.
		if longest < idle/2 || idle > 30*time.Second {
			t.Fatalf("a busy connection ended: %v; the longest wait on it was %v, and it may be %v", err, longest, idle)
		}
		t.Logf("with %v of patience nothing moved on this host for %v", idle, longest)
	}
}

// A panic ends its connection and nothing else.
func TestAPanicEndsOneConnection(t *testing.T) {
	w := newWorld()
	w.host(t, "a.example.com", "8.8.4.4", "5432", echo)
	var bomb atomic.Bool
	f := newFarm(t, w, load(t, rawPolicy), func(c *Config) {
		c.Dialer.Map = func(a netip.AddrPort) netip.AddrPort {
			if bomb.Load() {
				panic("of the test")
			}
			return w.place(a)
		}
	})
	good := f.dialName("a.example.com", "5432")
	bomb.Store(true)
	if _, err := f.dial(net.JoinHostPort(f.lookup("a.example.com").String(), "5432")); err == nil {
		t.Error("a connection whose handler failed is accepted")
	}
	bomb.Store(false)
	_, _ = good.Write([]byte("still"))
	if _, err := io.ReadFull(good, make([]byte, 5)); err != nil {
		t.Errorf("another connection: %v", err)
	}
	if s := f.cell.Stats(); s.Panics != 1 || s.Open != 1 {
		t.Errorf("%+v", s)
	}
}

// One box's storm of questions, denied connections and half-open ones does not
// keep another from its work, and leaves nothing behind.
func TestAStormInOneBoxIsBoundedAndNoOtherBoxsMatter(t *testing.T) {
	w := newWorld()
	w.host(t, "a.example.com", "8.8.4.4", "5432", echo)
	calm, wild := newFarm(t, w, load(t, rawPolicy)), newFarm(t, w, load(t, rawPolicy))
	before := runtime.NumGoroutine()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 3000 {
			go wild.knock(i)
			_, _ = wild.askFor(5*time.Second, "8.8.8.8:53", query(t, fmt.Sprintf("d%d.evil.net.", i), dnsmessage.TypeA))
		}
	}()
	worst := time.Duration(0)
	for range 50 {
		begin := time.Now()
		c := calm.dialName("a.example.com", "5432")
		_, _ = c.Write([]byte("x"))
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		c.Close()
		worst = max(worst, time.Since(begin))
	}
	<-done
	waitFor(t, "all questions that came are answered", func() bool {
		s := wild.cell.Stats().Wire.DNS
		time.Sleep(100 * time.Millisecond)
		return wild.cell.Stats().Wire.DNS == s
	})
	t.Logf("the worst of 50 connections beside the storm took %v", worst)
	s := wild.cell.Stats()
	if len(s.Denials) > maxDenials+8 || s.Lost == 0 {
		t.Errorf("%d denials are kept, %d events lost", len(s.Denials), s.Lost)
	}
	total := int64(0)
	for _, d := range s.Denials {
		if d.Kind == event.DNS {
			total += d.Count
		}
	}
	if n := s.Wire.DNS; total != n || n < 2000 { // one may be lost in the box's own queue
		t.Errorf("%d denied questions were counted, of %d that came", total, n)
	}
	waitFor(t, "the storm has left nothing behind", func() bool {
		return wild.cell.Stats().Open == 0 && runtime.NumGoroutine() < before+50
	})
}

func TestTenThousandNamesBelowAWildcardAreBounded(t *testing.T) {
	f := newFarm(t, newWorld(), limited(t, "  - { host: \"*.w.example.com\", tls: splice }\n", func(p *rules.Policy) { p.Limits.Names = 65536 }))
	in := ingress{f.cell}
	seen := map[string]bool{}
	for i := range 10000 {
		_, addrs := unpack(t, in.DNS(query(t, fmt.Sprintf("n%d.w.example.com.", i), dnsmessage.TypeA)))
		if len(addrs) != 1 || seen[addrs[0].String()] && i < 4096 {
			t.Fatalf("name %d: %v", i, addrs)
		}
		seen[addrs[0].String()] = true
	}
	_, addrs := unpack(t, in.DNS(query(t, "n9999.w.example.com.", dnsmessage.TypeA)))
	if name, _, ok := f.cell.names.Lookup(addrs[0]); !ok || name != "n9999.w.example.com" {
		t.Errorf("the last name is %q, %v", name, ok)
	}
}

// A box that asks for much and takes nothing holds what waits for it in
// connections that count, and no longer than the idle limit.
func TestWhatABoxDoesNotTakeCountsAsOpen(t *testing.T) {
	w := newWorld()
	w.host(t, "a.example.com", "8.8.4.4", "5432", func(c net.Conn) { _, _ = c.Write(make([]byte, 3<<18)) })
	f := newFarm(t, w, limited(t, rawPolicy, func(p *rules.Policy) { p.Limits.Conns = 4 }), func(c *Config) { c.Timeouts.Idle = 20 * time.Second })
	to := net.JoinHostPort(f.lookup("a.example.com").String(), "5432")
	for range 4 {
		c, err := f.dial(to)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.CloseWrite() // it says that it is done, and reads nothing
	}
	waitFor(t, "all waits for the box", func() bool { return f.cell.Stats().RX == 4*3<<18 })
	time.Sleep(100 * time.Millisecond)
	if _, err := f.dial(to); err == nil {
		t.Error("a fifth connection is accepted beside four that hold what was not taken")
	}
	waitFor(t, "they end", func() bool { return f.cell.Stats().Open == 0 })
}

// Descriptors can run out: then nothing is dialled, and nothing else happens.
func TestAHostWithoutDescriptorsRefusesAndRecovers(t *testing.T) { // 128
	w := newWorld()
	w.host(t, "a.example.com", "8.8.4.4", "5432", echo)
	f := newFarm(t, w, load(t, rawPolicy))
	to := net.JoinHostPort(f.lookup("a.example.com").String(), "5432")
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	none := before
	none.Cur = 3
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	_, err := f.dial(to)
	if e := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); e != nil {
		t.Fatal(e)
	}
	if err == nil {
		t.Error("a connection without a descriptor is accepted")
	}
	f.denied("gateway_full")
	if _, err := f.dial(to); err != nil {
		t.Errorf("it does not recover: %v", err)
	}
}

// A resolver that hangs is one box's trouble: it holds a bounded number of
// questions open for it, and what waits ends with its connection.
func TestDialsThatAreUnderWayHaveABound(t *testing.T) {
	w := newWorld()
	w.host(t, "a.example.com", "8.8.4.4", "5432", echo)
	var now, most atomic.Int64
	slow := &gated{world: w, open: make(chan struct{}), now: &now, most: &most}
	f := newFarm(t, w, load(t, rawPolicy), func(c *Config) { c.Dialer.Resolver = slow })
	to := net.JoinHostPort(f.lookup("a.example.com").String(), "5432")
	const n = 3 * maxDialing
	result := make(chan error, n)
	for range n {
		go func() {
			_, err := f.dial(to)
			result <- err
		}()
	}
	waitFor(t, "all have begun", func() bool { return f.cell.Stats().Open == n && now.Load() == maxDialing })
	close(slow.open)
	for range n {
		if err := <-result; err != nil {
			t.Errorf("one of those that waited: %v", err)
		}
	}
	if most.Load() > maxDialing {
		t.Errorf("%d were under way at once", most.Load())
	}
}

// gated is a resolver that answers once it is opened.
type gated struct {
	*world
	open      chan struct{}
	now, most *atomic.Int64
}

func (g *gated) Resolve(ctx context.Context, n hostName) ([]addr, error) {
	k := g.now.Add(1)
	defer g.now.Add(-1)
	for m := g.most.Load(); k > m && !g.most.CompareAndSwap(m, k); m = g.most.Load() {
	}
	select {
	case <-g.open:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return g.world.Resolve(ctx, n)
}

// A box that asks for much that it may not have does not hide what it does: what is
// allowed is told all the same, and how many events were not.
func TestAFloodOfDenialsHidesNothing(t *testing.T) {
	w := newWorld()
	w.host(t, "a.example.com", "8.8.4.4", "5432", echo)
	f := newFarm(t, w, load(t, rawPolicy))
	begin := time.Now()
	for i := range 3 * denialBurst {
		ingress{f.cell}.DNS(query(t, fmt.Sprintf("n%d.evil.test.", i), dnsmessage.TypeA))
	}
	c := f.dialName("a.example.com", "5432")
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	f.event(func(e event.Event) bool { return e.Kind == event.Connect && e.Decision == event.Allow }, "the connection that is allowed")
	c.Close()
	f.event(func(e event.Event) bool { return e.Kind == event.Close }, "its end")
	f.mu.Lock()
	defer f.mu.Unlock()
	var told, lost int64
	for _, e := range f.events {
		if e.Decision == event.Deny {
			told++
		}
		lost += e.Lost
	}
	most := denialBurst + 1 + int64(denialRate*time.Since(begin).Seconds())
	if told+lost != 3*denialBurst || told > most {
		t.Errorf("%d denials were told, and that %d were lost, of %d", told, lost, 3*denialBurst)
	}
	if s := f.cell.Stats(); s.Lost != lost {
		t.Errorf("%d were lost, it is said: %d", s.Lost, lost)
	}
}
