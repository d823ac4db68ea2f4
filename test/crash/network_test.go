package crash

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/test/harness"
	"github.com/sunaba-dev/sunaba/test/upstream"
)

// network is what the owner of a box knows of its rules. Each generation of them
// allows one name, which no other and no other box has; so rules that are older or
// wider than what was told last show in the world.
type network struct {
	serial int
	told   []time.Time // when each generation was told to be in force, the first one first
	doubt  bool        // the next one was asked for, and no answer came
	ended  time.Time   // when the box was told to be no more
	tries  int         // of the program in the box that tries everything, at least
}

// network is a new one, of the first generation, for who is about to ask for a box.
func (w *world) network() *network {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := &network{serial: len(w.nets) + 1, told: []time.Time{time.Now()}}
	w.nets = append(w.nets, n)
	return n
}

func (n *network) host(generation int) string {
	return fmt.Sprintf("b%d-g%d.wild.example.com", n.serial, generation)
}

func (n *network) rules(generation int) map[string]any {
	return map[string]any{"mode": "allowlist", "allowlist": []string{n.host(generation) + ":80"}}
}

// everything is a program that tries, as long as its box lives, what its rules allow,
// what older ones did and later ones may, and what none does: by name, by an address
// that a name had, and by true addresses.
const everything = `
import socket, sys, time
serial, evil, top, known = sys.argv[1], sys.argv[2:], 1, {}
def ask(name):
    q = b"\0\1\1\0\0\1\0\0\0\0\0\0" + b"".join(bytes([len(l)]) + l.encode() for l in name.split(".")) + b"\0\0\1\0\1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(0.3)
        try: s.connect(("198.18.0.1", 53)); s.send(q); a = s.recv(512)
        except OSError: return
    return socket.inet_ntoa(a[-4:]) if a[3] & 15 == 0 and a[7] else None
def get(name, addr, wait):
    with socket.socket() as s:
        s.settimeout(wait)
        try: s.connect((addr, 80)); s.sendall(b"GET /try HTTP/1.1\r\nHost: " + name.encode() + b"\r\n\r\n"); s.recv(99)
        except OSError: pass
while True:
    for g in range(max(1, top - 2), top + 3):
        name = "b%s-g%d.wild.example.com" % (serial, g)
        addr = ask(name)
        if addr: top, known[name] = max(top, g), addr
        if name in known: get(name, known[name], 1)
    for name in evil:
        addr = name if name[0].isdigit() else ask(name)
        if addr: get("evil.example.net", addr, 0.1)
    open("tries", "ab").write(b".")
    time.sleep(0.1)
`

// neverReached are where nothing may ever arrive.
var neverReached = []string{"evil.example.net", upstream.EvilAddr, upstream.MetadataAddr, upstream.PrivateAddr} //house:const a list

// trying starts the program in a box. Who got no answer starts it again: two do no harm.
func (w *world) trying(k *known) error {
	if k.net == nil || k.tries {
		return nil
	}
	argv := append([]string{"python3", "-c", everything, fmt.Sprint(k.net.serial)}, neverReached...)
	if _, err := w.call("POST", path(k)+"/processes", map[string]any{"command": argv, "timeout_sec": 0}, nil); err != nil {
		return err
	}
	k.tries = true
	return nil
}

// reaches holds a box's network against its rules of a generation. A gateway may be on
// its way: the box is patient.
func (w *world) reaches(k *known, generation int) error {
	n := k.net
	was := n.host(generation - 1)
	shell := upstream.Shell + fmt.Sprintf(`a=$(gets %d %s)
for i in $(seq 600); do t=$(cat tries 2>/dev/null | wc -c); [ "$t" -le %d ] || break; sleep 0.1; done
echo $a $(get %s) $(get evil.example.net) $t`, w.patience, n.host(generation), n.tries, was)
	var e ended
	status, err := w.call("POST", path(k)+"/exec", map[string]any{"shell": shell, "timeout_sec": patience.Seconds() - 10}, &e)
	if status == 0 {
		return fmt.Errorf("%w: %w", errDead, err)
	}
	f := strings.Fields(e.Stdout)
	if err != nil || len(f) != 4 || f[0] != n.host(generation) || f[1] != "no" || f[2] != "no" {
		return fmt.Errorf("box %s (%s) with rules of generation %d: what they allow, what older ones did, and what none does says %q (%+v), %v", k.id, k.tier, generation, e.Stdout, e, err)
	}
	tries, err := strconv.Atoi(f[3])
	if err != nil || k.tries && tries <= n.tries {
		return fmt.Errorf("box %s (%s) has tried everything %s times, and before %d times", k.id, k.tier, f[3], n.tries)
	}
	n.tries = tries
	return nil
}

// reach has a box use its network.
func (w *world) reach(k *known, _ *rand.Rand) error {
	if k.net == nil {
		return nil
	}
	k.phase = "" // it resumes the box, before it answers
	err := w.reaches(k, len(k.net.told))
	if err == nil {
		k.phase = "running"
	}
	return w.noted(err)
}

// noted tells of an error that is not the daemon's death.
func (w *world) noted(err error) error {
	if err != nil && !errors.Is(err, errDead) {
		w.t.Error(err)
	}
	return err
}

// change puts the next rules in force.
func (w *world) change(k *known, _ *rand.Rand) error {
	n := k.net
	if n == nil {
		return nil
	}
	next := len(n.told) + 1
	n.doubt = true
	var got networkJSON
	status, err := w.call("PUT", path(k)+"/network", map[string]any{"network": n.rules(next)}, &got)
	if status == 0 {
		return fmt.Errorf("%w: %w", errDead, err)
	}
	if err != nil || got.Traffic.Generation != next {
		return w.noted(fmt.Errorf("rules %d of box %s (%s): %+v, %v", next, k.id, k.tier, got, err))
	}
	n.told, n.doubt = append(n.told, time.Now()), false
	return nil
}

type networkJSON struct {
	Up      bool `json:"up"`
	Traffic struct {
		Generation int `json:"generation"`
	} `json:"traffic"`
}

// connects holds the network of a box that a daemon has taken up against what its owner
// knows: the rules that were told last, or those that no answer came to.
func (w *world) connects(k *known) error {
	n := k.net
	var got networkJSON
	if _, err := w.call("GET", path(k)+"/network", nil, &got); err != nil {
		return err
	}
	switch g := got.Traffic.Generation; {
	case g == len(n.told):
	case n.doubt && g == len(n.told)+1:
		n.told = append(n.told, time.Now())
	default:
		return fmt.Errorf("box %s (%s) has rules of generation %d, %d were told (in doubt: %v)", k.id, k.tier, g, len(n.told), n.doubt)
	}
	n.doubt = false
	if err := w.trying(k); err != nil {
		return err
	}
	return w.reaches(k, len(n.told))
}

// late is how long what was sent before a change may take until the world has written
// it down, on a host that is loaded.
const late = 20 * time.Second

var named = regexp.MustCompile(`b(\d+)-g(\d+)\.wild\.example\.com`) //house:const compiled once

// arrived holds what came to the world against what boxes may reach.
func (w *world) arrived() (wrong []string) {
	w.t.Helper()
	if w.farm == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.farm.Take(w.t) {
		if slices.ContainsFunc(neverReached, func(never string) bool { return strings.Contains(s.At+" "+s.What, never) }) {
			wrong = append(wrong, fmt.Sprintf(anything+" arrived: %v", s))
			continue
		}
		m := named.FindStringSubmatch(s.What)
		if m == nil {
			continue
		}
		serial, _ := strconv.Atoi(m[1])
		g, _ := strconv.Atoi(m[2])
		if serial < 1 || serial > len(w.nets) {
			wrong = append(wrong, fmt.Sprintf("of nobody: %v", s))
			continue
		}
		n := w.nets[serial-1]
		last := len(n.told)
		if n.doubt {
			last++
		}
		switch {
		case g > last:
			wrong = append(wrong, fmt.Sprintf("generation %d is not asked for: %v", g, s))
		case g < len(n.told) && s.When.After(n.told[g].Add(late)):
			wrong = append(wrong, fmt.Sprintf("generation %d was told to be in force %v before: %v", g+1, s.When.Sub(n.told[g]), s))
		case !n.ended.IsZero() && s.When.After(n.ended.Add(late)):
			wrong = append(wrong, fmt.Sprintf("the box had ended %v before: %v", s.When.Sub(n.ended), s))
		}
		w.arrivals++
	}
	return wrong
}

// links holds the links that daemon and gateway have open against boxes that have one,
// and the interfaces of this host against those of before.
func (w *world) links() {
	w.t.Helper()
	if w.farm == nil {
		return
	}
	tuns := 0
	for _, k := range w.boxes {
		if k.net != nil && k.tier == "process" && w.d.User == harness.Root {
			tuns++
		}
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		have := map[string]int{"daemon": opened(w.d.Pid())}
		for _, pid := range harness.Gateways(w.t, w.d.Pid()) {
			have["gateway"] += opened(pid)
		}
		if have["daemon"] == tuns && have["gateway"] == tuns {
			break
		}
		if time.Now().After(deadline) {
			w.t.Errorf("%d boxes have a TUN device, and open are %v", tuns, have)
			break
		}
	}
	if now := interfaces(w.t); !slices.Equal(now, w.interfaces) {
		w.t.Errorf("interfaces %v, and before %v", now, w.interfaces)
	}
}

// opened counts the TUN devices that a process has open.
func opened(pid int) (n int) {
	all, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, f := range all {
		// A file of the box's own, which has no name here.
		if to, _ := os.Readlink(f); strings.TrimSuffix(filepath.Base(to), " (deleted)") == "tun" {
			n++
		}
	}
	return n
}

func interfaces(t *testing.T) (names []string) {
	t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		names = append(names, i.Name)
	}
	return names
}

// killGateways ends the gateway as a crash would.
func (w *world) killGateways() {
	for _, pid := range harness.Gateways(w.t, w.d.Pid()) {
		if syscall.Kill(pid, syscall.SIGKILL) == nil {
			w.gateways++
		}
	}
}

// The controls: rules that are wider than what was told, older than what was told, and
// a network that is not there are seen.
func TestNetworksThatAreWrongAreSeen(t *testing.T) {
	upstream.Of(t)
	w := newWorld(t, harness.Root)
	for _, tier := range []string{"gvisor", "process"} {
		if _, err := w.get(tier, false, true); err != nil {
			t.Fatal(err)
		}
	}
	seen := func(what string) {
		t.Helper()
		var wrong []string
		for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			wrong = append(wrong, w.arrived()...)
			all := !slices.ContainsFunc(w.boxes, func(k *known) bool { // of each box
				return !slices.ContainsFunc(wrong, func(s string) bool {
					return strings.Contains(s, what) && (what == anything || strings.Contains(s, fmt.Sprintf("b%d-", k.net.serial)))
				})
			})
			if all {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%q is not seen; what is: %q", what, wrong)
			}
		}
	}
	put := func(k *known, allow ...string) {
		t.Helper()
		w.d.Must("PUT", path(k)+"/network", map[string]any{"network": map[string]any{"mode": "allowlist", "allowlist": allow}}, nil)
	}
	tell := func(k *known) { k.net.told = append(k.net.told, time.Now().Add(-late)) }
	for _, k := range w.boxes {
		if err := w.connects(k); err != nil {
			t.Fatal(err)
		}
	}
	if wrong := w.arrived(); len(wrong) > 0 || w.arrivals == 0 {
		t.Fatalf("nothing is wrong yet, and %d arrived: %q", w.arrivals, wrong)
	}
	for _, k := range w.boxes {
		put(k, k.net.host(1)+":80", "evil.example.net:80")
		if err := w.connects(k); err == nil || !strings.Contains(err.Error(), "generation 2") {
			t.Errorf("rules that nobody asked for: %v", err)
		}
		seen(anything)
		tell(k)
		put(k, k.net.host(1)+":80") // in force as generation 3, and told is 2
	}
	seen("generation 2 was told")
	for _, k := range w.boxes {
		put(k, k.net.host(3)+":80")
	}
	seen("generation 3 is not asked for")
	w.patience = 1 // for what must not be reached
	for _, k := range w.boxes {
		tell(k)
		tell(k)
		if err := w.connects(k); err == nil {
			t.Error("a box that does not reach what it may is not seen")
		}
		k.net.ended = time.Now().Add(-late)
		put(k, k.net.host(4)+":80")
	}
	seen("the box had ended")
}

const anything = "what no rules allow"
