package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/egress/control"
	"github.com/sunaba-dev/sunaba/internal/egress/gate"
	"github.com/sunaba-dev/sunaba/internal/egress/rules"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/nic"
)

func TestMain(m *testing.M) {
	if os.Args[0] == argvFalse {
		os.Exit(falseGateway(os.Args[1]))
	}
	if code, ok := gate.Dispatch(os.Args); ok {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// testUser is who the gateway is when the test is root.
const testUser = 54322

type events struct {
	mu  sync.Mutex
	all []string
}

func (e *events) add(raw json.RawMessage) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, string(raw))
}

func (e *events) text() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.all, "\n")
}

// patience is for what comes at last, however busy the host is; quiet is for how long
// nobody answers before that is taken for true.
const (
	patience = time.Minute
	quiet    = 200 * time.Millisecond
)

func newKeeper(t *testing.T, change ...func(*Config)) (*Keeper, *events) {
	t.Helper()
	var e events
	cfg := Config{
		Start: func(f, stderr *os.File) (*host.Child, error) {
			h := host.Helper{Args: []string{gate.Argv}, Files: []*os.File{f}, Stderr: stderr}
			if os.Getuid() == 0 {
				h.UID, h.GID = testUser, testUser
			}
			return h.Start()
		},
		Settings: func() (control.Settings, error) {
			return control.Settings{Resolvers: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1")}}, nil
		},
		Event: e.add, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Answer: patience, Ask: 500 * time.Millisecond,
	}
	for _, c := range change {
		c(&cfg)
	}
	k := New(cfg)
	t.Cleanup(func() { k.Close() })
	return k, &e
}

func policy(t *testing.T, hosts ...string) json.RawMessage {
	t.Helper()
	p, err := rules.FromAllowlist(hosts)
	if err != nil {
		t.Fatal(err)
	}
	return p.JSON()
}

// wire is a box's end of a link.
type wire struct{ f *os.File }

// newLink makes a link and its box's end.
func newLink(t *testing.T) (box.Link, wire) {
	t.Helper()
	ours, theirs, err := nic.Pair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { theirs.Close() })
	return box.Link{File: ours, Kind: box.LinkSeqpacket}, wire{theirs}
}

// attach gives a box of this test a link.
func attach(t *testing.T, k *Keeper, id box.ID, hosts ...string) wire {
	t.Helper()
	l, w := newLink(t)
	if err := k.Attach(t.Context(), id, l, policy(t, hosts...), 1, nil); err != nil {
		t.Fatal(err)
	}
	return w
}

// resolves asks for a name over the wire: true, false, or nobody answers soon.
func (w wire) resolves(name string) (bool, error) { return w.resolvesIn(quiet, name) }

// resolvesIn waits for the answer only so long.
func (w wire) resolvesIn(wait time.Duration, name string) (bool, error) {
	most := syscall.NsecToTimeval(int64(wait))
	if err := syscall.SetsockoptTimeval(int(w.f.Fd()), syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &most); err != nil {
		return false, err
	}
	n, err := dnsmessage.NewName(name + ".")
	if err != nil {
		return false, err
	}
	q := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true}, Questions: []dnsmessage.Question{{Name: n, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	body, err := q.Pack()
	if err != nil {
		return false, err
	}
	if _, err := w.f.Write(datagram(body)); err != nil {
		return false, err
	}
	buf := make([]byte, 1<<16)
	var a dnsmessage.Message
	for len(a.Questions) == 0 || a.Questions[0].Name != n { // an earlier question may be answered late
		m, err := w.f.Read(buf)
		if err != nil {
			return false, err
		}
		if err := a.Unpack(buf[28:m]); err != nil {
			return false, err
		}
	}
	switch a.RCode {
	case dnsmessage.RCodeSuccess:
		return len(a.Answers) == 1, nil
	case dnsmessage.RCodeNameError:
		return false, nil
	}
	return false, fmt.Errorf("the answer is %v", a.RCode)
}

// datagram is a UDP packet from a box to the gateway's port 53.
func datagram(body []byte) []byte {
	ip := make([]byte, 28, 28+len(body))
	size := 28 + len(body)
	from, to := netip.MustParseAddr(box.LinkBox4).As4(), netip.MustParseAddr(box.LinkGateway4).As4()
	ip[0], ip[2], ip[3], ip[8], ip[9] = 0x45, byte(size>>8), byte(size), 64, 17
	copy(ip[12:], from[:])
	copy(ip[16:], to[:])
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(ip[i])<<8 | uint32(ip[i+1])
	}
	sum = sum>>16 + sum&0xffff
	sum = ^(sum>>16 + sum&0xffff)
	ip[10], ip[11] = byte(sum>>8), byte(sum)
	ip[20], ip[21], ip[23] = 0x30, 0x39, 53
	ip[24], ip[25] = byte((size-20)>>8), byte(size-20)
	return append(ip, body...)
}

func (w wire) want(t *testing.T, name string, want bool) {
	t.Helper()
	if got, err := w.resolvesIn(patience, name); err != nil || got != want {
		t.Errorf("%s resolves: %v, %v; want %v", name, got, err, want)
	}
}

func TestEachBoxHasItsOwnRules(t *testing.T) {
	k, e := newKeeper(t)
	one, other, none := box.NewID(), box.NewID(), box.NewID()
	a, b, c := attach(t, k, one, "a.example.com:443"), attach(t, k, other, "b.example.com:443"), attach(t, k, none)
	a.want(t, "a.example.com", true)
	a.want(t, "b.example.com", false)
	b.want(t, "a.example.com", false)
	b.want(t, "b.example.com", true)
	c.want(t, "a.example.com", false)
	tr, err := k.Traffic(t.Context(), one)
	if err != nil || len(tr.Denied) != 1 || tr.Denied[0].Name != "b.example.com" || tr.Denied[0].Count != 1 || tr.Denied[0].Fix == "" || tr.Generation != 1 {
		t.Errorf("traffic: %+v, %v", tr, err)
	}
	if tr := k.Detach(t.Context(), other); len(tr.Denied) != 1 {
		t.Errorf("at the end: %+v", tr)
	}
	if _, err := b.resolves("b.example.com"); err == nil {
		t.Error("a box whose link was given up is answered")
	}
	if _, err := k.Traffic(t.Context(), other); box.KindOf(err) != box.Unavailable {
		t.Errorf("traffic of no box: %v", err)
	}
	a.want(t, "a.example.com", true)
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		text := e.text()
		if strings.Contains(text, `"name":"b.example.com"`) && strings.Contains(text, string(one)) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("events:\n%s", text)
		}
	}
}

func TestAChangeOfRulesIsInForceAtOnceAndNeverGoesBack(t *testing.T) {
	k, _ := newKeeper(t)
	id := box.NewID()
	w := attach(t, k, id, "a.example.com:443")
	w.want(t, "b.example.com", false)
	if err := k.Update(t.Context(), id, policy(t, "b.example.com:443"), 2); err != nil {
		t.Fatal(err)
	}
	w.want(t, "b.example.com", true)
	w.want(t, "a.example.com", false)
	if err := k.Update(t.Context(), id, policy(t, "a.example.com:443"), 2); box.KindOf(err) != box.Conflict {
		t.Errorf("an older generation: %v", err)
	}
	if err := k.Update(t.Context(), id, json.RawMessage(`{"version":1,"x":1}`), 3); err == nil {
		t.Error("rules that are none are accepted")
	}
	w.want(t, "b.example.com", true)
	w.want(t, "a.example.com", false)
}

// A change may name other resolvers; until the gateway took it they were refused.
func TestAChangeOfRulesMayNameOtherResolvers(t *testing.T) {
	k, _ := newKeeper(t)
	id := box.NewID()
	w := attach(t, k, id, "a.example.com:443")
	w.want(t, "b.example.com", false)
	p, err := rules.Load("p", []byte("version: 1\ndns: { resolvers: [127.0.0.1:2] }\nhosts: [ { host: b.example.com, tls: splice } ]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Update(t.Context(), id, p.JSON(), 2); err != nil {
		t.Fatal(err)
	}
	w.want(t, "b.example.com", true)
	w.want(t, "a.example.com", false)
}

// killed kills a box's gateway and waits for its next one. Which of the gateways that is
// may change with each end; but a box that stays always gets one.
func killed(t *testing.T, k *Keeper, id box.ID) {
	t.Helper()
	before := pidOf(t, k, id)
	if before <= 0 { // else it would be this test's own group
		t.Fatal("there is no gateway to kill")
	}
	if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(2 * patience); ; time.Sleep(5 * time.Millisecond) {
		if now := pidOf(t, k, id); now != before && now != 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("no gateway comes back")
		}
	}
}

func TestAGatewayThatDiesComesBackWithTheRulesInForce(t *testing.T) {
	k, _ := newKeeper(t)
	id := box.NewID()
	w := attach(t, k, id, "a.example.com:443")
	if err := k.Update(t.Context(), id, policy(t, "b.example.com:443"), 2); err != nil {
		t.Fatal(err)
	}
	w.want(t, "a.example.com", false)
	if _, err := k.Traffic(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		killed(t, k, id)
		for deadline := time.Now().Add(2 * patience); ; {
			ok, err := w.resolves("b.example.com")
			if ok {
				break
			}
			if !errors.Is(err, syscall.EAGAIN) || time.Now().After(deadline) {
				t.Fatalf("the box's network is not back: %v, %v", ok, err)
			}
		}
	}
	w.want(t, "a.example.com", false)
	tr, err := k.Traffic(t.Context(), id)
	if err != nil || tr.Generation != 2 || len(tr.Denied) != 1 || tr.Denied[0].Count != 2 {
		t.Errorf("traffic over all gateways: %+v, %v", tr, err)
	}
}

// Boxes come and go while gateways die; those that stay have their network.
func TestBoxesThatGoHoldUpNobodysReturn(t *testing.T) {
	k, _ := newKeeper(t)
	var stay [20]wire
	first := box.NewID()
	for i := range stay {
		id := first
		if i > 0 {
			id = box.NewID()
		}
		stay[i] = attach(t, k, id, "a.example.com:443")
	}
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				ours, theirs, err := nic.Pair()
				if err != nil {
					t.Error(err)
					return
				}
				id := box.NewID()
				if err := k.Attach(t.Context(), id, box.Link{File: ours, Kind: box.LinkSeqpacket}, policy(t, "b.example.com:443"), 1, nil); err != nil {
					t.Error(err)
				}
				k.Detach(t.Context(), id)
				theirs.Close()
			}
		})
	}
	for range 8 {
		killed(t, k, first)
	}
	close(stop)
	all.Wait()
	for i, w := range stay {
		for deadline := time.Now().Add(2 * patience); ; {
			ok, err := w.resolves("a.example.com")
			if ok {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("box %d has no network: %v", i, err)
			}
		}
	}
}

// A link that was given up between a gateway's end and the next one's begin says
// nothing of the next one.
func TestALinkThatWasGivenUpIsNoSignOfAGatewaysEnd(t *testing.T) {
	k, _ := newKeeper(t)
	id := box.NewID()
	attach(t, k, id, "a.example.com:443")
	other := attach(t, k, box.NewID(), "a.example.com:443")
	c, err := k.find(id)
	if err != nil {
		t.Fatal(err)
	}
	s := k.wards[0].now
	k.Detach(t.Context(), id)
	if err := s.attach(t.Context(), id, c); errors.Is(err, errGone) || box.KindOf(err) != box.Unavailable {
		t.Errorf("a closed link: %v", err)
	}
	if err := k.attachAgain(t.Context(), s, id, c); err != nil {
		t.Errorf("a box that was given up: %v", err)
	}
	if _, err := k.Traffic(t.Context(), id); box.KindOf(err) != box.Unavailable {
		t.Errorf("it is back: %v", err)
	}
	other.want(t, "a.example.com", true)
}

// What one gateway could not take is tried again, with the rules of then.
func TestABoxThatAGatewayCouldNotTakeIsTriedAgain(t *testing.T) {
	k, _ := newKeeper(t)
	id := box.NewID()
	w := attach(t, k, id, "a.example.com:443")
	w.want(t, "a.example.com", true)
	c, err := k.find(id)
	if err != nil {
		t.Fatal(err)
	}
	c.turn.Lock() // so that it is not tried before it was seen that nobody answers
	_, gone := k.ask(t.Context(), c, control.Request{Op: control.Detach, Cell: string(id)})
	c.at = nil
	ok, err := w.resolves("a.example.com")
	c.turn.Unlock()
	if gone != nil || ok || err == nil {
		t.Fatalf("somebody answers: %v, %v; %v", ok, err, gone)
	}
	if err := k.Update(t.Context(), id, policy(t, "b.example.com:443"), 2); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(2 * patience); ; {
		if ok, _ := w.resolves("b.example.com"); ok {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the box's network does not come")
		}
	}
	w.want(t, "a.example.com", false)
}

// Rules may change while a gateway comes up that has not taken the box yet: that is
// no error, and it takes the box with the rules of then.
func TestRulesChangeBeforeTheNextGatewayHasTheBox(t *testing.T) {
	k, _ := newKeeper(t)
	attach(t, k, box.NewID(), "a.example.com:443") // there is a gateway
	l, w := newLink(t)
	id := box.NewID()
	book, err := k.ledgerOf(id, nil)
	if err != nil {
		t.Fatal(err)
	}
	k.mu.Lock()
	k.cells[id] = &kept{link: l, ledger: book, policy: policy(t, "a.example.com:443"), generation: 1, ward: k.wards[0]}
	k.mu.Unlock()
	if err := k.Update(t.Context(), id, policy(t, "b.example.com:443"), 2); err != nil {
		t.Fatal(err)
	}
	k.retry(k.wards[0], k.wards[0].now)
	w.want(t, "b.example.com", true)
	w.want(t, "a.example.com", false)
}

// Whoever gives up while a gateway is slow to take a box is not answered before it is
// known whether it has it: else it would have rules that no change reaches.
func TestABoxIsNotGivenUpWhileAGatewayTakesIt(t *testing.T) {
	k, _ := newKeeper(t)
	attach(t, k, box.NewID(), "a.example.com:443") // there is a gateway
	l, w := newLink(t)
	pid := k.PID()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(500*time.Millisecond, func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	id := box.NewID()
	if err := k.Attach(ctx, id, l, policy(t, "a.example.com:443"), 1, nil); err != nil {
		t.Fatalf("it was given up: %v", err)
	}
	if err := k.Update(t.Context(), id, policy(t, "b.example.com:443"), 2); err != nil {
		t.Fatal(err)
	}
	w.want(t, "b.example.com", true)
	w.want(t, "a.example.com", false)
}

// One that stands still does not know what is in force: another one takes its place.
func TestAGatewayThatHangsIsReplaced(t *testing.T) {
	k, _ := newKeeper(t, func(c *Config) { c.Answer = 10 * time.Second })
	w := attach(t, k, box.NewID(), "a.example.com:443")
	w.want(t, "a.example.com", true)
	before := k.PID()
	if err := syscall.Kill(before, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(2 * patience); ; {
		if ok, _ := w.resolves("a.example.com"); ok && k.PID() != before {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a gateway that hangs is not replaced")
		}
	}
	if syscall.Kill(before, 0) == nil {
		t.Error("the one that hung is still there")
	}
}

// Whoever hears of events and is slow holds up nothing.
func TestASlowListenerHoldsUpNobody(t *testing.T) {
	k, e := newKeeper(t)
	e.mu.Lock() // its add waits
	defer e.mu.Unlock()
	id := box.NewID()
	w := attach(t, k, id, "a.example.com:443")
	for i := range 600 {
		if ok, err := w.resolvesIn(patience, fmt.Sprintf("n%d.example.net", i)); ok || err != nil {
			t.Fatalf("question %d: %v, %v", i, ok, err)
		}
	}
	if _, err := k.Traffic(t.Context(), id); err != nil { // after a minute without an answer it is an error
		t.Error(err)
	}
	w.want(t, "a.example.com", true)
}

// Without a gateway nobody answers; the control is the answer before.
func TestThereIsNoNetworkWithoutAGateway(t *testing.T) {
	k, _ := newKeeper(t)
	w := attach(t, k, box.NewID(), "a.example.com:443")
	w.want(t, "a.example.com", true)
	pid := k.PID()
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.resolves("a.example.com"); err == nil {
		t.Error("somebody answers")
	}
	if syscall.Kill(pid, 0) == nil {
		t.Error("the gateway lives on")
	}
	ours, theirs, err := nic.Pair()
	if err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	if err := k.Attach(t.Context(), box.NewID(), box.Link{File: ours, Kind: box.LinkSeqpacket}, policy(t), 1, nil); box.KindOf(err) != box.Unavailable {
		t.Errorf("a link for a keeper that has ended: %v", err)
	}
}

// The kernel says what the gateway has.
func TestTheGatewayHasNothingToLose(t *testing.T) {
	k, _ := newKeeper(t)
	attach(t, k, box.NewID())
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", k.PID()))
	if err != nil {
		t.Fatal(err)
	}
	status := string(raw)
	for _, want := range []string{"\nSeccomp:\t2\n", "\nNoNewPrivs:\t1\n", "\nCapEff:\t0000000000000000\n", "\nCapPrm:\t0000000000000000\n", "\nCapInh:\t0000000000000000\n", "\nCapAmb:\t0000000000000000\n"} {
		if !strings.Contains(status, want) {
			t.Errorf("no %q in\n%s", want, status)
		}
	}
	if os.Getuid() == 0 && (!strings.Contains(status, fmt.Sprintf("\nUid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\n", testUser)) || !strings.Contains(status, "\nGroups:\t \n")) {
		t.Errorf("it is another user:\n%s", status)
	}
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", k.PID()))
	if err != nil || len(tasks) < 2 {
		t.Fatalf("%d threads, %v", len(tasks), err)
	}
	for _, task := range tasks {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/status", k.PID(), task.Name()))
		if err == nil && !strings.Contains(string(raw), "\nSeccomp:\t2\n") {
			t.Errorf("thread %s is not filtered", task.Name())
		}
	}
}

func TestWhatIsNoLinkIsRefused(t *testing.T) {
	k, _ := newKeeper(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := k.Attach(context.Background(), box.NewID(), box.Link{File: r, Kind: box.LinkSeqpacket}, policy(t), 1, nil); box.KindOf(err) != box.Fault {
		t.Errorf("a pipe: %v", err)
	}
	if k.PID() != 0 {
		t.Error("a gateway was started for it")
	}
}
