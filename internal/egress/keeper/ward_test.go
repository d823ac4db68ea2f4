package keeper

import (
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// pidOf is the gateway that a box has now, 0 if it has none.
func pidOf(t *testing.T, k *Keeper, id box.ID) int {
	t.Helper()
	c, err := k.find(id)
	if err != nil {
		t.Fatal(err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := c.ward.now; s != nil {
		return s.child.Pid()
	}
	return 0
}

// panics ends a box's gateway as a panic in one of its goroutines does, once that has
// answered the box. It returns false if it does not in time.
func panics(t *testing.T, k *Keeper, id box.ID, w wire, patience time.Duration) bool {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if ok, _ := w.resolves("a.example.com"); !ok {
			continue
		}
		if pid := pidOf(t, k, id); pid != 0 && syscall.Kill(pid, syscall.SIGABRT) == nil {
			for syscall.Kill(pid, 0) == nil && pidOf(t, k, id) == pid {
				time.Sleep(time.Millisecond)
			}
			return true
		}
	}
	return false
}

// One box ends each gateway that takes its packets. Others have their network, with
// their rules, back each time, and after a few times they do not notice any more.
func TestABoxThatEndsGatewaysIsAloneWithThat(t *testing.T) {
	k, _ := newKeeper(t)
	const others = 15
	var ids [others]box.ID
	var wires [others]wire
	for i := range wires {
		ids[i] = box.NewID()
		wires[i] = attach(t, k, ids[i], "a.example.com:443")
		if i%3 == 0 { // rules that are not the first ones
			if err := k.Update(t.Context(), ids[i], policy(t, "a.example.com:443", "c.example.com:443"), 2); err != nil {
				t.Fatal(err)
			}
		}
	}
	bad := box.NewID()
	badWire := attach(t, k, bad, "a.example.com:443")

	back := func() (longest time.Duration) {
		t.Helper()
		began := time.Now()
		for i, w := range wires {
			for {
				if ok, _ := w.resolves("a.example.com"); ok {
					break
				}
				if time.Since(began) > 2*patience {
					t.Fatalf("box %d has no network", i)
				}
			}
			longest = time.Since(began)
			w.want(t, "b.example.com", false)
			w.want(t, "c.example.com", i%3 == 0)
		}
		return longest
	}
	back()
	// 16 boxes are halved four times, and the first end divides nobody.
	shared := func() (n int) {
		mine := pidOf(t, k, bad)
		for _, id := range ids {
			if pidOf(t, k, id) == mine {
				n++
			}
		}
		return n
	}
	ends := 0
	for shared() > 0 {
		if ends++; ends > 5 {
			t.Fatalf("after %d ends %d boxes still share the gateway of the one that ends it", ends, shared())
		}
		if !panics(t, k, bad, badWire, patience) {
			t.Fatalf("after %d ends the box has no gateway", ends)
		}
		t.Logf("end %d: all others have their network after %v, %d share its gateway", ends, back().Round(time.Millisecond), shared())
	}
	// From now on nobody else notices: the same gateways answer all the time.
	var before [others]int
	for i := range ids {
		before[i] = pidOf(t, k, ids[i])
	}
	begin := time.Now()
	const alone = 5
	for i := range alone {
		if !panics(t, k, bad, badWire, patience) {
			t.Fatalf("after %d ends alone the box has no gateway", i)
		}
		for i, w := range wires {
			w.want(t, "a.example.com", true)
			if now := pidOf(t, k, ids[i]); now != before[i] {
				t.Errorf("box %d has another gateway", i)
			}
		}
	}
	// Between five ends are four waits, each twice the one before.
	if took := time.Since(begin); took < (1+2+4+8)*firstWait {
		t.Errorf("its own gateway came back %d times in %v", alone, took)
	}
	// Who comes now is not put beside it.
	late := box.NewID()
	w := attach(t, k, late, "a.example.com:443")
	w.want(t, "a.example.com", true)
	c, err := k.find(bad)
	if err != nil {
		t.Fatal(err)
	}
	l, err := k.find(late)
	if err != nil {
		t.Fatal(err)
	}
	if k.wardOf(c) == k.wardOf(l) {
		t.Error("a new box shares its gateway")
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) { // an end is noted when its last words have been heard
		st := k.State()
		if st.Ends == uint64(ends+alone) && st.Gateways >= 5 && st.Without <= 1 {
			break
		}
		if st.Ends > uint64(ends+alone) || time.Now().After(deadline) {
			t.Fatalf("after %d ends: %+v", ends+alone, st)
		}
	}
	// What is known is told, and that there is no network, while there is none.
	if pid := pidOf(t, k, bad); pid == 0 {
		if tr, err := k.Traffic(t.Context(), bad); (err != nil || pidOf(t, k, bad) == 0) && box.KindOf(err) != box.Unavailable || tr.Denied == nil {
			t.Errorf("traffic of a box without a gateway: %+v, %v", tr, err)
		}
	}
	// A gateway goes with the last of its boxes, but for the first one.
	for _, id := range append(ids[:], bad, late) {
		k.Detach(t.Context(), id)
	}
	k.mu.Lock()
	n := len(k.wards)
	k.mu.Unlock()
	if n != 1 {
		t.Errorf("%d wards are left without a box", n)
	}
}

// A link that takes the place of an earlier one goes to the gateway that has that one,
// which lets go of it: else two gateways would read what a box sends.
func TestABoxKeepsItsGatewayWithAnotherLink(t *testing.T) {
	k, _ := newKeeper(t)
	id := box.NewID()
	first := attach(t, k, id, "a.example.com:443")
	first.want(t, "a.example.com", true)
	k.mu.Lock()
	w := k.wards[0]
	w.ends, w.last = 2, time.Now()
	k.mu.Unlock()
	attach(t, k, box.NewID(), "a.example.com:443") // which is put elsewhere
	second := attach(t, k, id, "b.example.com:443")
	second.want(t, "b.example.com", true)
	if c, err := k.find(id); err != nil || k.wardOf(c) != w {
		t.Errorf("it is elsewhere: %v", err)
	}
	if _, err := first.resolves("a.example.com"); err == nil {
		t.Error("somebody answers on its earlier link")
	}
	if st := k.State(); st.Gateways != 2 || st.Without != 0 {
		t.Errorf("%+v", st)
	}
}

// Two ends of a gateway in an hour are what it takes; what was long ago is forgotten.
func TestAWardIsDividedBySecondEnds(t *testing.T) {
	k, _ := newKeeper(t)
	w := k.first()
	for range 5 {
		id := box.NewID()
		k.cells[id] = &kept{ward: w}
	}
	defer func() { clear(k.cells) }()
	k.mu.Lock()
	defer k.mu.Unlock()
	if half, _ := k.ended(w, true); half != nil || k.place() != w {
		t.Error("the first end divides")
	}
	w.last = w.last.Add(-2 * calm)
	if half, _ := k.ended(w, true); half != nil {
		t.Error("an end long after another one divides")
	}
	if half, _ := k.ended(w, false); half != nil {
		t.Error("boxes that another gateway has already are moved")
	}
	half, _ := k.ended(w, true)
	if half == nil || len(k.in(half)) != 2 || len(k.in(w)) != 3 {
		t.Fatalf("not divided: %v", half)
	}
	if p := k.place(); p == half || p == w {
		t.Error("a new box is put where a gateway ended")
	}
	for len(k.wards) < mostWards {
		k.wards = append(k.wards, &ward{ends: 9, last: time.Now()})
	}
	for _, v := range k.wards {
		v.ends, v.last = 9, time.Now()
	}
	half.last = half.last.Add(-time.Minute)
	if more, wait := k.ended(w, true); more != nil || wait != longestWait || k.place() != half {
		t.Errorf("with as many gateways as there may be: %v, %v", more, wait)
	}
	k.wards = k.wards[:1]
}
