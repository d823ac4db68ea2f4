package engine

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/egress/rules"
)

// Link implements box.Linked.
func (b *plainBox) Link(context.Context) (box.Link, error) {
	f, err := os.Open(os.DevNull)
	return box.Link{File: f, Kind: box.LinkTUN}, err
}

// plainEgress remembers what is in force, and fails as it is told.
type plainEgress struct {
	mu     sync.Mutex
	rules  map[box.ID]string
	gen    map[box.ID]uint64
	refuse error // of attach
	update error
	gone   []box.ID
	names  map[box.ID]string // that boxes knew from the first
}

func newPlainEgress() *plainEgress {
	return &plainEgress{rules: map[box.ID]string{}, gen: map[box.ID]uint64{}, names: map[box.ID]string{}}
}

func (e *plainEgress) Attach(_ context.Context, id box.ID, l box.Link, r json.RawMessage, gen uint64, names []byte) error {
	l.File.Close()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.refuse != nil {
		return e.refuse
	}
	e.rules[id], e.gen[id], e.names[id] = string(r), gen, string(names)
	return nil
}

// Names are one that says which box knows it.
func (e *plainEgress) Names(id box.ID) ([]byte, error) {
	return []byte("300 " + string(id) + ".test\n"), nil
}

// Sweep notes what there was.
func (e *plainEgress) Sweep(keep func(box.ID) bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.names, func(id box.ID, _ string) bool { return !keep(id) })
	return nil
}

func (e *plainEgress) Update(_ context.Context, id box.ID, r json.RawMessage, gen uint64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.update != nil {
		return e.update
	}
	if gen <= e.gen[id] {
		return errors.New("an older generation")
	}
	e.rules[id], e.gen[id] = string(r), gen
	return nil
}

func (e *plainEgress) Traffic(_ context.Context, id box.ID) (box.Traffic, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gen[id] == 0 {
		return box.Traffic{}, box.Errorf(box.Unavailable, "ask", "cannot ask")
	}
	return box.Traffic{Generation: e.gen[id], Denied: []box.Denial{{Kind: "dns", Name: "x.test", Code: "host_not_allowed", Count: 3}}}, nil
}

func (e *plainEgress) Detach(ctx context.Context, id box.ID) box.Traffic {
	t, _ := e.Traffic(ctx, id)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.gone = append(e.gone, id)
	delete(e.rules, id)
	delete(e.gen, id)
	return t
}

// says is the rules in force for a box and their generation.
func (e *plainEgress) says(id box.ID) (string, uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rules[id], e.gen[id]
}

// fail sets what the next calls fail with.
func (e *plainEgress) fail(attach, update error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refuse, e.update = attach, update
}

// forget is what the end of a daemon does to a gateway.
func (e *plainEgress) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.rules)
	clear(e.gen)
}

func newNetworkBench(t *testing.T) (*bench, *plainEgress) {
	e := newPlainEgress()
	return newBench(t, func(c *Config) {
		c.Engine.Egress = e
		plain := c.Parse
		c.Parse = func(raw json.RawMessage) (Wish, error) {
			w, err := plain(raw)
			var asked struct {
				Network struct{ Allowlist []string }
			}
			if err == nil && w.Policy.Spec.Net.Mode == box.NetAllowlist {
				if err = json.Unmarshal(raw, &asked); err == nil {
					var p *rules.Policy
					if p, err = rules.FromAllowlist(asked.Network.Allowlist); err == nil {
						w.Policy.Reach = p.JSON()
					}
				}
			}
			return w, err
		}
	}), e
}

func reaching(hosts ...string) json.RawMessage {
	b, err := json.Marshal(map[string]any{"mode": "allowlist", "allowlist": append([]string{}, hosts...)})
	if err != nil {
		panic(err)
	}
	return b
}

func networked(hosts ...string) box.CreateRequest {
	return box.CreateRequest{Sandbox: json.RawMessage(`{"network":` + string(reaching(hosts...)) + `}`)}
}

// inForce makes sure what a box reaches, and that it is that generation.
func (e *plainEgress) inForce(t *testing.T, id box.ID, host string, generation uint64) {
	t.Helper()
	if r, gen := e.says(id); !strings.Contains(r, host) || gen != generation {
		t.Errorf("in force is generation %d, %s; want %d with %s", gen, r, generation, host)
	}
}

func TestRulesOfABoxAreInForceFromItsStartToItsEnd(t *testing.T) {
	b, e := newNetworkBench(t)
	i := b.make(networked("one.example.com:443"))
	e.inForce(t, i.ID, "one.example.com", 1)
	if i.Policy.Network.Mode != box.NetAllowlist {
		t.Errorf("the policy says %q", i.Policy.Network.Mode)
	}
	n, err := b.SetNetwork(t.Context(), alice(), i.ID, reaching("two.example.com:443"))
	if err != nil || !n.Up || n.Traffic.Generation != 2 || !strings.Contains(string(n.Rules), "two.example.com") {
		t.Errorf("%+v, %v", n, err)
	}
	e.inForce(t, i.ID, "two.example.com", 2)
	// A later service puts the same in force, with the same generation.
	b.Service.Close()
	e.forget()
	b.again()
	e.inForce(t, i.ID, "two.example.com", 2)
	if err := b.Destroy(t.Context(), alice(), i.ID); err != nil {
		t.Fatal(err)
	}
	if r, _ := e.says(i.ID); r != "" {
		t.Errorf("a box that is no more reaches %s", r)
	}
	n, err = b.Network(t.Context(), alice(), i.ID)
	if err != nil || n.Up || len(n.Traffic.Denied) != 1 || n.Traffic.Denied[0].Count != 3 {
		t.Errorf("after the end: %+v, %v", n, err)
	}
	bob := box.Caller{Tenant: "b", Principal: "bob", Scopes: []box.Scope{box.ScopeAdmin}}
	if _, err := b.Network(t.Context(), bob, i.ID); box.KindOf(err) != box.NotFound {
		t.Errorf("another tenant's: %v", err)
	}
	reader := box.Caller{Tenant: "a", Principal: "r", Scopes: []box.Scope{box.ScopeRead}}
	if _, err := b.SetNetwork(t.Context(), reader, i.ID, reaching()); box.KindOf(err) != box.Denied {
		t.Errorf("a reader changes rules: %v", err)
	}
}

func TestABoxWhoseLinkIsRefusedIsNotMade(t *testing.T) {
	b, e := newNetworkBench(t)
	e.fail(box.Errorf(box.Unusable, "attach", "cannot start the gateway"), nil)
	if _, err := b.Create(t.Context(), alice(), networked("one.example.com")); box.KindOf(err) != box.Unusable {
		t.Errorf("%v", err)
	}
	if b.tier.count() != 0 {
		t.Error("a box is left")
	}
	e.fail(nil, nil)
	b.make(networked("one.example.com"))
}

func TestRulesThatTheGatewayRefusesAreNotKept(t *testing.T) {
	b, e := newNetworkBench(t)
	i := b.make(networked("one.example.com"))
	e.fail(nil, errors.New("the gateway refuses"))
	if _, err := b.SetNetwork(t.Context(), alice(), i.ID, reaching("two.example.com")); err == nil {
		t.Error("they are accepted")
	}
	e.inForce(t, i.ID, "one.example.com", 1)
	e.fail(nil, nil)
	e.forget()
	b.again()
	e.inForce(t, i.ID, "one.example.com", 1)
	for _, bad := range []string{`{"mode":"none"}`, `{"mode":"allowlist","allowlist":["*"]}`, `[]`, `{"mode":"open"}`} {
		if _, err := b.SetNetwork(t.Context(), alice(), i.ID, json.RawMessage(bad)); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
	e.inForce(t, i.ID, "one.example.com", 1)
	plain := b.make(box.CreateRequest{})
	if _, err := b.SetNetwork(t.Context(), alice(), plain.ID, reaching("one.example.com")); box.KindOf(err) != box.Unsupported {
		t.Errorf("a box without a network got one: %v", err)
	}
	if n, err := b.Network(t.Context(), alice(), plain.ID); err != nil || n.Mode != box.NetNone || n.Rules != nil {
		t.Errorf("%+v, %v", n, err)
	}
}

// What an operator has closed since a box was made is not opened for it by the next
// service; other rules are put in force.
func TestRulesThatAreNoLongerAllowedAreNotPutInForceAgain(t *testing.T) {
	b, e := newNetworkBench(t)
	closed, open := b.make(networked("one.example.com")), b.make(networked("two.example.com"))
	b.Service.Close()
	e.forget()
	parse := b.conf.Parse
	b.conf.Parse = func(raw json.RawMessage) (Wish, error) {
		if strings.Contains(string(raw), "one.example.com") {
			return Wish{}, box.Errorf(box.Denied, "read request", "cannot use one.example.com in a request")
		}
		return parse(raw)
	}
	b.again()
	e.inForce(t, open.ID, "two.example.com", 1)
	if r, gen := e.says(closed.ID); gen != 0 {
		t.Errorf("in force is generation %d, %s", gen, r)
	}
	if n, err := b.Network(t.Context(), alice(), closed.ID); err != nil || n.Up {
		t.Errorf("%+v, %v", n, err)
	}
	if _, err := b.SetNetwork(t.Context(), alice(), closed.ID, reaching("three.example.com")); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(longest); ; time.Sleep(20 * time.Millisecond) {
		if _, gen := e.says(closed.ID); gen != 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("rules that are allowed are not put in force")
		}
	}
	e.inForce(t, closed.ID, "three.example.com", 2)
}

// A box is not lost because its network is; that comes when it can.
func TestABoxWithoutItsNetworkRunsAndGetsItLater(t *testing.T) {
	b, e := newNetworkBench(t)
	i := b.make(networked("one.example.com"))
	e.forget()
	e.fail(box.Errorf(box.Unusable, "attach", "cannot start the gateway"), nil)
	b.again()
	if n, err := b.Network(t.Context(), alice(), i.ID); err != nil || n.Up || n.Mode != box.NetAllowlist {
		t.Errorf("%+v, %v", n, err)
	}
	if _, err := b.guest(i.ID).Stat(t.Context(), "/", true); err != nil {
		t.Error(err)
	}
	if _, err := b.SetNetwork(t.Context(), alice(), i.ID, reaching("two.example.com")); err != nil {
		t.Error(err)
	}
	e.fail(nil, nil)
	for deadline := time.Now().Add(longest); ; time.Sleep(20 * time.Millisecond) {
		if r, _ := e.says(i.ID); r != "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("its network does not come")
		}
	}
	e.inForce(t, i.ID, "two.example.com", 2)
}

func TestThereIsNoNetworkWithoutWhoJudges(t *testing.T) {
	b, _ := newNetworkBench(t)
	b.conf.Engine.Egress = nil
	if _, err := b.Create(t.Context(), alice(), networked("one.example.com")); box.KindOf(err) != box.Unsupported {
		t.Errorf("%v", err)
	}
	if b.tier.count() != 0 {
		t.Error("a box is left")
	}
}

// The programs in a copy of a box's memory remember addresses that its network told
// them; those in a copy of its files do not run any more.
func TestACopyOfMemoryKnowsTheNamesOfItsNetwork(t *testing.T) {
	b, e := newNetworkBench(t)
	i := b.holding("text", networked("one.example.com"))
	for kind, want := range map[box.SnapshotKind]string{box.SnapshotMemory: "300 " + string(i.ID) + ".test\n", box.SnapshotFiles: ""} {
		c := b.make(box.CreateRequest{Snapshot: b.snap(i.ID, box.SnapshotRequest{Kind: kind}).ID})
		if got := e.knew(c.ID); got != want {
			t.Errorf("%s: it begins with %q, not %q", kind, got, want)
		}
	}
	forked, err := b.Fork(t.Context(), alice(), i.ID, box.ForkRequest{Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range forked {
		if f.Err != nil || e.knew(f.Info.ID) != "300 "+string(i.ID)+".test\n" {
			t.Errorf("a fork begins with %q (%v)", e.knew(f.Info.ID), f.Err)
		}
	}
	b.again()
	if e.knew(i.ID) == "gone" || e.knew(forked[0].Info.ID) == "gone" {
		t.Error("a start sweeps what belongs to boxes that are there")
	}
}

func (e *plainEgress) knew(id box.ID) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if names, ok := e.names[id]; ok {
		return names
	}
	return "gone"
}
