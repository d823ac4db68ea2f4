package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/config"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/snapshot"
	"github.com/sunaba-dev/sunaba/internal/store"
	"github.com/sunaba-dev/sunaba/internal/tenant"
	"github.com/sunaba-dev/sunaba/internal/volume"
)

// plainTier makes boxes of nothing; what they do is the test's to say.
type plainTier struct {
	name   box.TierName
	mu     sync.Mutex
	boxes  map[box.ID]*plainBox // what is "on the host": it outlives a service
	create func(box.Spec) error
	unable error           // see standing; of the boxes to come
	slow   time.Duration   // before a box is found again
	born   func(*plainBox) // what is so of a box from its first moment on
	again  restoring
}

func newPlainTier() *plainTier {
	return &plainTier{name: box.TierGvisor, boxes: map[box.ID]*plainBox{}}
}

func (t *plainTier) Name() box.TierName             { return t.name }
func (t *plainTier) Probe(context.Context) box.Caps { return box.Caps{Usable: true} }
func (t *plainTier) Create(_ context.Context, s box.Spec) (box.Box, error) {
	if t.create != nil {
		if err := t.create(s); err != nil {
			return nil, err
		}
	}
	b := &plainBox{t: t, id: s.ID, ended: make(chan struct{})}
	for _, v := range s.Volumes { // its kernel has them from now on
		f, err := host.Dup(v.Image)
		if err != nil {
			return nil, err
		}
		b.volumes = append(b.volumes, f)
	}
	b.unable = t.unable
	if t.born != nil {
		t.born(b)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.boxes[s.ID] = b
	return b, nil
}

func (t *plainTier) Recover(_ context.Context, id box.ID, state []byte) (box.Box, error) {
	time.Sleep(t.slow)
	t.mu.Lock()
	defer t.mu.Unlock()
	if b := t.boxes[id]; b != nil && string(state) == "state of "+string(id) {
		return b, nil
	}
	return nil, errors.New("cannot recover box: it is not there")
}
func (t *plainTier) Sweep(context.Context, func(box.ID) bool) ([]box.ID, error) { return nil, nil }
func (t *plainTier) SweepLasting(_ context.Context, keep func(box.ID) bool) (gone []box.ID, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id := range t.boxes {
		if !keep(id) {
			t.boxes[id].unmount()
			delete(t.boxes, id)
			gone = append(gone, id)
		}
	}
	return gone, nil
}

func (t *plainTier) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.boxes)
}

type plainBox struct {
	t     *plainTier
	id    box.ID
	ended chan struct{}
	stuck atomic.Bool // it cannot be destroyed
	// Or that takes all the time that there is for it.
	lingers atomic.Bool
	tried   atomic.Int64 // how often that was tried
	acc     box.Account

	volumes []*os.File
	plainAgent
	standing
	copying
	pooled
}

func (b *plainBox) ID() box.ID     { return b.id }
func (b *plainBox) State() []byte  { return []byte("state of " + string(b.id)) }
func (b *plainBox) Weak() []string { return []string{"all: it has no walls"} }
func (b *plainBox) Run(context.Context, box.Command, box.Streams) (box.Result, error) {
	return box.Result{Cause: box.Exited}, nil
}
func (b *plainBox) Destroy(ctx context.Context) error {
	b.tried.Add(1)
	if b.stuck.Load() {
		return errors.New("cannot end it")
	}
	if b.lingers.Load() {
		<-ctx.Done()
	}
	b.t.mu.Lock()
	defer b.t.mu.Unlock()
	delete(b.t.boxes, b.id)
	b.unmount()
	return nil
}

func (b *plainBox) unmount() {
	for _, f := range b.volumes {
		f.Close()
	}
	b.volumes = nil
}

func (b *plainBox) Agent(context.Context) (net.Conn, error) {
	return agentConn{Agent: &b.plainAgent}, nil
}

// agentConn is a stream that leads to an agent without a protocol.
type agentConn struct {
	net.Conn
	Agent Agent
}

func (b *plainBox) Ended() <-chan struct{}                       { return b.ended }
func (b *plainBox) Account(context.Context) (box.Account, error) { return b.acc, nil }
func (b *plainBox) Detach()                                      {}

// plainAgent answers for a plainBox.
type plainAgent struct {
	box.Guest // what is not below is not asked
	mu        sync.Mutex
	list      []box.Process
	hang      chan struct{} // if set, Stat waits for it
	still     atomic.Bool   // Stat fails: the box is paused
	slow      time.Duration // if set, Stat takes twice as long
	inStat    atomic.Int64  // calls that wait for hang
	started   []box.ProcessSpec
	next      int // number of the next program; 0 = 7
	end       *box.End
	silent    bool        // it does not say what runs
	mute      atomic.Bool // nor how it is
	apart
}

func (a *plainAgent) Close() {}
func (a *plainAgent) Processes(context.Context) ([]box.Process, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.silent {
		return nil, box.Errorf(box.Unavailable, "list processes", "cannot list processes: the box does not answer")
	}
	return a.list, nil
}
func (a *plainAgent) Contexts(context.Context) ([]box.CodeContext, error) { return nil, nil }
func (a *plainAgent) Stat(ctx context.Context, p string, _ bool) (box.Entry, error) {
	for range 2 {
		if a.still.Load() {
			return box.Entry{}, errors.New("it was called while it is paused")
		}
		if a.slow > 0 {
			<-time.After(a.slow)
		}
	}
	if a.hang == nil {
		return box.Entry{Path: p}, nil
	}
	a.inStat.Add(1)
	defer a.inStat.Add(-1)
	select {
	case <-a.hang:
		return box.Entry{Path: p}, nil
	case <-ctx.Done():
		return box.Entry{}, ctx.Err()
	}
}
func (a *plainAgent) Start(_ context.Context, p box.ProcessSpec) (box.Process, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.started = append(a.started, p)
	return box.Process{PID: cmp.Or(a.next, 7)}, nil
}
func (a *plainAgent) Follow(_ context.Context, _ box.ProcessRef, _ box.Positions, fn func(box.ProcessEvent) error) error {
	return fn(box.ProcessEvent{Kind: box.EventEnd, End: a.end})
}
func (a *plainAgent) Read(context.Context, string, int64, int64) (box.Entry, io.ReadCloser, error) {
	return box.Entry{}, io.NopCloser(strings.NewReader("x")), nil
}

// bench is a service over a plainTier.
type bench struct {
	*Service
	t    *testing.T
	dir  string
	tier *plainTier
	st   *store.Store
	conf Config
}

func newBench(t *testing.T, change func(*Config)) *bench {
	b := &bench{t: t, dir: t.TempDir(), tier: newPlainTier()}
	b.conf = Config{
		Engine: &Engine{Tiers: []box.Tier{b.tier}}, TTL: time.Hour, MaxTTL: 24 * time.Hour,
		Log: slog.New(slog.DiscardHandler),
		Parse: func(raw json.RawMessage) (Wish, error) {
			c := config.Default()
			if len(raw) > 0 {
				var err error
				if c, err = config.Load("sandbox", strings.NewReader(`{"sandbox":`+string(raw)+`}`)); err != nil {
					return Wish{}, err
				}
			}
			return Wish{Policy: c.Request(), User: c.User, Env: c.Environ(), Reuse: c.Reuse, PoolSize: c.PoolSize}, nil
		},
	}
	rules := tenant.Rules{Starts: 4, Line: 100, Wait: longest}
	b.conf.Gate = tenant.NewGate(rules)
	if change != nil {
		change(&b.conf)
	}
	b.open()
	return b
}

func (b *bench) open() {
	b.t.Helper()
	var err error
	if b.st, err = store.Open(b.t.Context(), b.dir); err != nil {
		b.t.Fatal(err)
	}
	b.conf.Store = b.st
	snaps, err := snapshot.Open(filepath.Join(b.dir, "snapshots"))
	if err != nil {
		b.t.Fatal(err)
	}
	b.conf.Snapshots, b.conf.MaxSnapshot, b.conf.MaxSnapshots = snaps, 1<<20, 5
	if b.conf.Volumes, err = volume.Open(filepath.Join(b.dir, "volumes")); err != nil {
		b.t.Fatal(err)
	}
	b.conf.MaxVolumes, b.conf.MaxVolumeBytes = 4, 32<<20
	b.conf.Guest = func(dial func(context.Context) (net.Conn, error)) Agent {
		c, err := dial(context.Background())
		if err != nil {
			b.t.Fatal(err)
		}
		return c.(agentConn).Agent
	}
	if b.Service, err = Start(b.t.Context(), b.conf); err != nil {
		b.t.Fatal(err)
	}
	s, st, vols := b.Service, b.st, b.conf.Volumes
	b.t.Cleanup(func() { s.Close(); st.Close(); snaps.Close(); vols.Close() })
}

// again ends the service as a crash would, but for the lock, and starts another.
func (b *bench) again() {
	b.t.Helper()
	b.Service.Close()
	if err := errors.Join(b.st.Close(), b.conf.Snapshots.Close(), b.conf.Volumes.Close()); err != nil {
		b.t.Fatal(err)
	}
	b.conf.Gate = tenant.NewGate(tenant.Rules{Starts: 4, Line: 100, Wait: longest})
	b.open()
}

func alice() box.Caller {
	return box.Caller{Tenant: "a", Principal: "alice", Scopes: []box.Scope{box.ScopeAdmin}}
}

func (b *bench) make(req box.CreateRequest) box.Info {
	b.t.Helper()
	i, err := b.Create(b.t.Context(), alice(), req)
	if err != nil {
		b.t.Fatal(err)
	}
	return i
}

// host is the box as it is on the host.
func (b *bench) host(id box.ID) *plainBox {
	b.tier.mu.Lock()
	defer b.tier.mu.Unlock()
	return b.tier.boxes[id]
}

func (b *bench) guest(id box.ID) box.Guest {
	b.t.Helper()
	g, err := b.Guest(b.t.Context(), alice(), id, box.ScopeExec)
	if err != nil {
		b.t.Fatal(err)
	}
	return g
}

// becomes waits for a box's end and returns what is then known of it.
func (b *bench) becomes(id box.ID, want box.Reason) box.Info {
	b.t.Helper()
	for end := time.Now().Add(longest); ; {
		i, err := b.Inspect(b.t.Context(), alice(), id)
		if err != nil {
			b.t.Fatal(err)
		}
		if i.Phase == box.PhaseDestroyed {
			if i.Reason != want {
				b.t.Errorf("reason %s, want %s (%s)", i.Reason, want, i.Detail)
			}
			return i
		}
		if time.Now().After(end) {
			b.t.Fatalf("after %v box %s is still %s: %+v", longest, id, i.Phase, i)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestABoxIsMadeUsedAndDestroyedOnce(t *testing.T) {
	b := newBench(t, nil)
	i := b.make(box.CreateRequest{Metadata: map[string]string{"k": "v"}, Sandbox: json.RawMessage(`{"env":{"A":"1"},"user":"root"}`)})
	if i.Phase != box.PhaseRunning || i.Ends.Sub(i.Created) != time.Hour || len(i.Weak) != 1 || i.Policy.Limits.MemoryBytes == 0 || i.Metadata["k"] != "v" {
		t.Errorf("%+v", i)
	}
	if l := i.Policy.Limits; l.TimeoutSec != 0 || l.IdleSec != 0 || l.OutputBytes != 0 {
		t.Errorf("%+v: the box is said to have bounds that only its programs have", l)
	}
	if _, err := b.guest(i.ID).Start(t.Context(), box.ProcessSpec{Command: box.Command{Argv: []string{"x"}, Env: []string{"B=2", "HOME=/h"}}}); err != nil {
		t.Fatal(err)
	}
	got := b.host(i.ID).started[0]
	if env := strings.Join(got.Env, " "); got.Dir != "/workspace" || got.User != box.UserRoot || !strings.Contains(env, "A=1 B=2 HOME=/h") || strings.Contains(env, "HOME=/root") {
		t.Errorf("%+v", got)
	}
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if err := b.Destroy(context.Background(), alice(), i.ID); err != nil {
				t.Error(err)
			}
			if b.tier.count() != 0 {
				t.Error("destroyed, and still there")
			}
		})
	}
	wg.Wait()
	if i := b.becomes(i.ID, box.ReasonAsked); i.Destroyed.IsZero() {
		t.Errorf("%+v", i)
	}
	_, err := b.Guest(t.Context(), alice(), i.ID, box.ScopeExec)
	if box.KindOf(err) != box.NotFound || !strings.Contains(err.Error(), "its owner asked for it") {
		t.Error(err)
	}
}

func TestAnotherTenantsBoxIsAsIfItWereNot(t *testing.T) {
	b := newBench(t, nil)
	i := b.make(box.CreateRequest{})
	eve := box.Caller{Tenant: "b", Principal: "eve", Scopes: box.Scopes()}
	never := box.NewID()
	for what, call := range map[string]func(id box.ID) error{
		"inspect": func(id box.ID) error { _, err := b.Inspect(t.Context(), eve, id); return err },
		"prolong": func(id box.ID) error { _, err := b.Prolong(t.Context(), eve, id, time.Hour); return err },
		"destroy": func(id box.ID) error { return b.Destroy(t.Context(), eve, id) },
		"guest":   func(id box.ID) error { _, err := b.Guest(t.Context(), eve, id, box.ScopeRead); return err },
	} {
		for range 2 { // running, and then destroyed
			is, isNot := call(i.ID), call(never)
			if box.KindOf(is) != box.NotFound || is.Error() != strings.ReplaceAll(isNot.Error(), string(never), string(i.ID)) {
				t.Errorf("%s: %v, and %v", what, is, isNot)
			}
		}
	}
	if page, _, err := b.List(t.Context(), eve, box.ListRequest{Destroyed: true}); err != nil || len(page) != 0 {
		t.Errorf("%v, %v", err, page)
	}
}

func TestEveryCallNeedsItsScope(t *testing.T) {
	b := newBench(t, nil)
	i := b.make(box.CreateRequest{})
	for what, c := range map[string]struct {
		needs box.Scope
		call  func(c box.Caller) error
	}{
		"create":  {box.ScopeWrite, func(c box.Caller) error { _, err := b.Create(t.Context(), c, box.CreateRequest{}); return err }},
		"inspect": {box.ScopeRead, func(c box.Caller) error { _, err := b.Inspect(t.Context(), c, i.ID); return err }},
		"list":    {box.ScopeRead, func(c box.Caller) error { _, _, err := b.List(t.Context(), c, box.ListRequest{}); return err }},
		"prolong": {box.ScopeWrite, func(c box.Caller) error { _, err := b.Prolong(t.Context(), c, i.ID, time.Hour); return err }},
		"guest":   {box.ScopeExec, func(c box.Caller) error { _, err := b.Guest(t.Context(), c, i.ID, box.ScopeExec); return err }},
		"execute": {box.ScopeExec, func(c box.Caller) error {
			_, err := b.Execute(t.Context(), c, box.ExecuteRequest{Argv: []string{"x"}})
			return err
		}},
		"create key": {box.ScopeAdmin, func(c box.Caller) error {
			_, _, err := b.CreateKey(t.Context(), c, box.Key{Tenant: "t", Principal: "p", Scopes: box.Scopes()})
			return err
		}},
		"list keys":  {box.ScopeAdmin, func(c box.Caller) error { _, err := b.ListKeys(t.Context(), c, ""); return err }},
		"revoke key": {box.ScopeAdmin, func(c box.Caller) error { return b.RevokeKey(t.Context(), c, "x") }},
	} {
		for _, has := range box.Scopes() {
			err := c.call(box.Caller{Tenant: "a", Principal: "p", Scopes: []box.Scope{has}})
			if may := has == c.needs || has == box.ScopeAdmin; may == (box.KindOf(err) == box.Denied && err != nil) {
				t.Errorf("%s with scope %s: %v", what, has, err)
			}
		}
	}
}

func TestTheSameKeyIsTheSameBoxHoweverManyAsk(t *testing.T) {
	b := newBench(t, nil)
	ids := make(chan box.ID, 8)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			i, err := b.Create(context.Background(), alice(), box.CreateRequest{Key: "k"})
			if err != nil {
				t.Error(err)
			}
			ids <- i.ID
		})
	}
	wg.Wait()
	first := <-ids
	for len(ids) > 0 {
		if id := <-ids; id != first {
			t.Errorf("%s and %s", first, id)
		}
	}
	if n := b.tier.count(); n != 1 {
		t.Errorf("%d boxes", n)
	}
	if _, err := b.Create(t.Context(), alice(), box.CreateRequest{Key: "k", TTL: time.Minute}); box.KindOf(err) != box.Invalid {
		t.Errorf("another request with the key: %v", err)
	}
}

func TestAFailedCreateLeavesARowAShareAndAKeyThatCanBeUsedAgain(t *testing.T) {
	b := newBench(t, func(c *Config) {
		c.Gate = tenant.NewGate(tenant.Rules{Share: tenant.Amounts{Boxes: 1}, Starts: 1, Line: 9, Wait: time.Second})
	})
	b.tier.create = func(box.Spec) error { return box.Errorf(box.Invalid, "create", "cannot do this") }
	for range 3 {
		if _, err := b.Create(t.Context(), alice(), box.CreateRequest{Key: "k"}); err == nil || !strings.Contains(err.Error(), "cannot do this") {
			t.Fatal(err)
		}
	}
	b.tier.create = nil
	b.make(box.CreateRequest{Key: "k"})
	page, _, err := b.List(t.Context(), alice(), box.ListRequest{Destroyed: true})
	if err != nil || len(page) != 4 || page[0].Reason != box.ReasonFailed || !strings.Contains(page[0].Detail, "cannot do this") {
		t.Errorf("%v, %+v", err, page)
	}
	if _, err := b.Create(t.Context(), alice(), box.CreateRequest{}); box.KindOf(err) != box.Exhausted {
		t.Errorf("over the share: %v", err)
	}
}

func TestPagesHoldEveryBoxOnce(t *testing.T) {
	b := newBench(t, nil)
	want := map[box.ID]bool{}
	for i := range 23 {
		m := map[string]string{"odd": "no"}
		if i%2 == 1 {
			m["odd"] = "yes"
		}
		if got := b.make(box.CreateRequest{Metadata: m}); i%2 == 1 {
			want[got.ID] = true
		}
	}
	cursor := ""
	for pages := 0; ; pages++ {
		page, next, err := b.List(t.Context(), alice(), box.ListRequest{Limit: 3, Cursor: cursor, Metadata: map[string]string{"odd": "yes"}})
		if err != nil || pages > 9 {
			t.Fatal(err, pages)
		}
		for _, i := range page {
			if !want[i.ID] {
				t.Errorf("%s twice, or not asked for", i.ID)
			}
			delete(want, i.ID)
		}
		if cursor = next; next == "" {
			break
		}
	}
	if len(want) > 0 {
		t.Errorf("%d are missing", len(want))
	}
	for _, bad := range []string{"x", "MTIz", "===="} {
		if _, _, err := b.List(t.Context(), alice(), box.ListRequest{Cursor: bad}); box.KindOf(err) != box.Invalid {
			t.Errorf("cursor %q: %v", bad, err)
		}
	}
}

func TestTimeEndsABoxAndProlongingNeverShortens(t *testing.T) {
	b := newBench(t, nil)
	short := b.make(box.CreateRequest{TTL: 300 * time.Millisecond})
	long := b.make(box.CreateRequest{TTL: time.Hour})
	i, err := b.Prolong(t.Context(), alice(), long.ID, time.Minute)
	if err != nil || !i.Ends.Equal(long.Ends) {
		t.Errorf("%v: ends %v, was %v", err, i.Ends, long.Ends)
	}
	if i, err = b.Prolong(t.Context(), alice(), long.ID, 2*time.Hour); err != nil || time.Until(i.Ends) < 119*time.Minute {
		t.Errorf("%v: ends %v", err, i.Ends)
	}
	for _, bad := range []time.Duration{0, -1, 25 * time.Hour} {
		if _, err := b.Prolong(t.Context(), alice(), long.ID, bad); box.KindOf(err) != box.Invalid {
			t.Errorf("%v: %v", bad, err)
		}
	}
	b.becomes(short.ID, box.ReasonTTL)
	if b.host(long.ID) == nil || b.host(short.ID) != nil {
		t.Error("the wrong one is gone")
	}
}

func TestABoxThatNobodyUsesEndsUnlessAProgramRuns(t *testing.T) {
	b := newBench(t, nil)
	b.tier.born = func(h *plainBox) { h.list = []box.Process{{PID: 3}} } // until all is as it should be
	idle := b.make(box.CreateRequest{Idle: 200 * time.Millisecond})
	busy := b.make(box.CreateRequest{Idle: 200 * time.Millisecond})
	called := b.make(box.CreateRequest{Idle: 200 * time.Millisecond})
	hang := make(chan struct{})
	done := b.statHangs(called.ID, hang)
	for _, i := range []box.Info{idle, called} {
		b.host(i.ID).runs()
	}
	b.becomes(idle.ID, box.ReasonIdle)
	time.Sleep(2 * reapEvery)
	if b.host(busy.ID) == nil || b.host(called.ID) == nil {
		t.Fatal("one in use was ended")
	}
	close(hang)
	if err := <-done; err != nil {
		t.Error(err)
	}
	b.host(busy.ID).runs(box.Process{PID: 3, End: &box.End{Ended: time.Now()}})
	b.becomes(busy.ID, box.ReasonIdle)
	b.becomes(called.ID, box.ReasonIdle)
}

func TestABoxThatDoesNotAnswerIsIdleAfterAWhile(t *testing.T) {
	b := newBench(t, nil)
	b.tier.born = func(h *plainBox) { h.silent = true }
	i := b.make(box.CreateRequest{Idle: 100 * time.Millisecond})
	time.Sleep(2 * reapEvery)
	if b.host(i.ID) == nil {
		t.Fatal("it was ended at once: something may run in it")
	}
	l := b.lookup(i.ID)
	l.mu.Lock()
	l.used = time.Now().Add(-silentTime - time.Second)
	l.mu.Unlock()
	b.becomes(i.ID, box.ReasonIdle)
}

func TestABoxThatEndsByItselfIsKnownWithItsReason(t *testing.T) {
	b := newBench(t, nil)
	lost, full := b.make(box.CreateRequest{}), b.make(box.CreateRequest{})
	called := b.statHangs(lost.ID, make(chan struct{}))
	b.host(full.ID).acc.Limits = []box.LimitHit{{Limit: "memory", Source: "host cgroup", Ended: true}}
	b.host(lost.ID).acc.Ending = "the agent ended: signal 9 (killed)"
	close(b.host(full.ID).ended)
	close(b.host(lost.ID).ended)
	if i := b.becomes(full.ID, box.ReasonLimit); !strings.Contains(i.Detail, "memory (host cgroup)") || len(i.Limits) != 1 {
		t.Errorf("%+v", i)
	}
	if i := b.becomes(lost.ID, box.ReasonLost); i.Detail != "its first process ended: the agent ended: signal 9 (killed)" {
		t.Errorf("its end is told as %q", i.Detail)
	}
	if err := <-called; box.KindOf(err) != box.NotFound {
		t.Errorf("a call that was under way: %v", err)
	}
	if used, _ := b.conf.Gate.Used("a"); used.Boxes != 0 {
		t.Errorf("%d boxes of the share are not given back", used.Boxes)
	}
}

func TestAHangingBoxHoldsNobodyElse(t *testing.T) {
	b := newBench(t, nil)
	bad, good := b.make(box.CreateRequest{}), b.make(box.CreateRequest{})
	b.host(bad.ID).hang = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := b.guest(bad.ID).Stat(ctx, "/x", false); done <- err }()
	if _, err := b.guest(good.ID).Stat(t.Context(), "/x", false); err != nil {
		t.Error(err)
	}
	if _, _, err := b.List(t.Context(), alice(), box.ListRequest{}); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := b.Destroy(t.Context(), alice(), bad.ID); err != nil {
		t.Error(err)
	}
}

func TestABoxThatCannotBeDestroyedStaysKnownAndIsTriedAgain(t *testing.T) {
	b := newBench(t, nil)
	i := b.make(box.CreateRequest{})
	b.host(i.ID).stuck.Store(true)
	if err := b.Destroy(t.Context(), alice(), i.ID); box.KindOf(err) != box.Unavailable || !strings.Contains(err.Error(), "cannot end it") {
		t.Fatal(err)
	}
	if used, _ := b.conf.Gate.Used("a"); used.Boxes != 1 {
		t.Error("its share was given away while it is there")
	}
	if _, err := b.Guest(t.Context(), alice(), i.ID, box.ScopeRead); box.KindOf(err) != box.NotFound {
		t.Errorf("it can still be used: %v", err)
	}
	b.host(i.ID).stuck.Store(false)
	b.becomes(i.ID, box.ReasonAsked)
}

func TestABoxWhoseEndTakesAllOfItsTimeIsToldAsEnded(t *testing.T) {
	t.Parallel() // it mostly waits
	b := newBench(t, nil)
	i := b.make(box.CreateRequest{})
	b.host(i.ID).lingers.Store(true)
	if err := b.Destroy(t.Context(), alice(), i.ID); err != nil {
		t.Error(err)
	}
	if got, err := b.Inspect(t.Context(), alice(), i.ID); err != nil || got.Phase != box.PhaseDestroyed || got.Reason != box.ReasonAsked {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestABoxThatIsDestroyedAtTheSecondTryEndsForTheFirstReason(t *testing.T) {
	b := newBench(t, nil)
	b.tier.born = func(h *plainBox) { h.stuck.Store(true) }
	i := b.make(box.CreateRequest{TTL: 100 * time.Millisecond})
	h := b.host(i.ID)
	b.until("its end was tried", func() bool { return h.tried.Load() > 0 })
	if b.host(i.ID) == nil {
		t.Fatal("it could be destroyed")
	}
	h.stuck.Store(false)
	b.becomes(i.ID, box.ReasonTTL)
}

func TestAProgramKilledForWantOfMemoryIsTold(t *testing.T) {
	b := newBench(t, nil)
	b.tier.name = box.TierProcess
	i := b.make(box.CreateRequest{Sandbox: json.RawMessage(`{"trust":"trusted"}`)})
	h := b.host(i.ID)
	pid := 0
	start := func() box.ProcessRef {
		pid++
		h.next = pid
		p, err := b.guest(i.ID).Start(t.Context(), box.ProcessSpec{Command: box.Command{Argv: []string{"x"}}})
		if err != nil {
			t.Fatal(err)
		}
		return box.ProcessRef{PID: p.PID}
	}
	wants := func(p box.ProcessRef, end box.End, want box.Cause) {
		t.Helper()
		h.end = &end
		if err := b.guest(i.ID).Follow(t.Context(), p, box.Positions{}, func(ev box.ProcessEvent) error {
			if ev.End.Cause != want {
				t.Errorf("%+v, want %s", *ev.End, want)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	killed, shell := box.End{Cause: box.Signaled, Signal: 9}, box.End{Cause: box.Exited, ExitCode: 137}
	wants(start(), killed, box.Signaled) // nothing was killed for want of memory
	p, q, r := start(), start(), start()
	h.acc.MemoryKills = 1
	wants(q, box.End{Cause: box.Exited, ExitCode: 1}, box.Exited)
	wants(p, killed, box.OutOfMemory)
	wants(r, killed, box.Signaled) // one kill explains one end
	p = start()
	h.acc.MemoryKills = 2
	wants(p, shell, box.OutOfMemory)
	h.acc.MemoryKills = 3 // of a child that nobody was told of
	wants(start(), killed, box.Signaled)
	wants(box.ProcessRef{PID: 999}, killed, box.Signaled) // started before this service
}

func TestMountsOfTheHostNeedTheOperatorsWord(t *testing.T) {
	dir := t.TempDir()
	req := box.CreateRequest{Sandbox: json.RawMessage(`{"filesystem":{"read_only_mounts":[{"host":"` + dir + `","container":"/data"}]}}`)}
	b := newBench(t, nil)
	if _, err := b.Create(t.Context(), alice(), req); box.KindOf(err) != box.Denied || !strings.Contains(err.Error(), dir) {
		t.Errorf("nothing is listed: %v", err)
	}
	if _, err := b.Execute(t.Context(), alice(), box.ExecuteRequest{Sandbox: req.Sandbox, Argv: []string{"x"}}); box.KindOf(err) != box.Denied {
		t.Errorf("by the one-call form: %v", err)
	}
	b = newBench(t, func(c *Config) { c.MountRoots = []string{dir + "/other", dir} })
	b.make(req)
	b = newBench(t, func(c *Config) { c.MountRoots = []string{dir[:len(dir)-1]} })
	if _, err := b.Create(t.Context(), alice(), req); box.KindOf(err) != box.Denied {
		t.Errorf("a name that only begins alike: %v", err)
	}
}

func TestACallThatTheEndOfTheServiceCutsShortSaysThatTheBoxLives(t *testing.T) {
	b := newBench(t, nil)
	i := b.make(box.CreateRequest{})
	done := b.statHangs(i.ID, make(chan struct{}))
	b.Service.Close()
	_, err := b.Guest(t.Context(), alice(), i.ID, box.ScopeRead)
	for _, err := range []error{<-done, err} {
		if box.KindOf(err) != box.Unavailable || !strings.Contains(err.Error(), "lives on") {
			t.Error(err)
		}
	}
	if b.tier.count() != 1 {
		t.Error("the box went with the service")
	}
}

func TestBoxesThatAnswerLateHoldNoStartUpTogether(t *testing.T) {
	b := newBench(t, nil)
	for range 20 {
		b.make(box.CreateRequest{})
	}
	b.tier.slow = 3 * time.Second
	begun := time.Now()
	b.again()
	if took := time.Since(begun); took > 50*time.Second { // one after the other a minute
		t.Errorf("20 boxes that take three seconds each took %v", took)
	}
	if b.tier.count() != 20 {
		t.Errorf("%d of 20 boxes are there", b.tier.count())
	}
}

func TestALaterServiceTakesUpWhatItCanAndEndsTheRest(t *testing.T) {
	b := newBench(t, nil)
	stays, lost := b.make(box.CreateRequest{TTL: 2 * time.Hour, Metadata: map[string]string{"k": "v"}}), b.make(box.CreateRequest{})
	b.tier.mu.Lock()
	delete(b.tier.boxes, lost.ID)
	b.tier.mu.Unlock()
	half := box.Record{ID: box.NewID(), Tenant: "a", Principal: "alice", Phase: box.PhaseCreated, Tier: box.TierGvisor, Created: now()}
	if err := b.st.Add(t.Context(), half); err != nil {
		t.Fatal(err)
	}
	orphan := &plainBox{t: b.tier, id: box.NewID(), ended: make(chan struct{})}
	b.tier.boxes[orphan.id], b.tier.boxes[half.ID] = orphan, &plainBox{t: b.tier, id: half.ID}
	b.again()

	i, err := b.Inspect(t.Context(), alice(), stays.ID)
	if err != nil || i.Phase != box.PhaseRunning || !i.Ends.Equal(stays.Ends) || i.Metadata["k"] != "v" {
		t.Errorf("%v, %+v", err, i)
	}
	if _, err := b.guest(stays.ID).Stat(t.Context(), "/x", false); err != nil {
		t.Error(err)
	}
	b.becomes(lost.ID, box.ReasonLost)
	b.becomes(half.ID, box.ReasonFailed)
	if b.tier.count() != 1 {
		t.Errorf("%d boxes are on the host, one is known", b.tier.count())
	}
	if used, _ := b.conf.Gate.Used("a"); used.Boxes != 1 {
		t.Errorf("%d boxes of the share are taken", used.Boxes)
	}
}
