package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
	"github.com/sunaba-dev/sunaba/test/upstream"
)

// A box with a network may reach one name, which no other box has, and says what that
// name says, which is the name.

// linked gives a box that is asked for a network.
func linked(s map[string]any, name string) map[string]any {
	s["network"] = allows(name)
	return s
}

func allows(name string) map[string]any {
	return map[string]any{"mode": "allowlist", "allowlist": []string{name + ":80"}}
}

func host(name string) string { return name + ".wild.example.com" }

const denied = "evil.example.net"

// reaches is a line of shell that says what a name says, what one that is denied says,
// and what another one does. A gateway may be on its way, so it is patient.
func reaches(name, other string) string {
	return upstream.Shell + fmt.Sprintf("echo $(gets 100 %s) $(get %s) $(get %s)", name, denied, other)
}

// oneLinkedCall has a program in a box of its own reach what it may.
func (l *load) oneLinkedCall(ctx context.Context, n int, tier string) {
	var rep box.Report
	name := host(fmt.Sprint("c", n))
	err := l.call(ctx, "execute, network, "+tier, "POST", "/v1/execute", map[string]any{
		"language": "bash", "code": reaches(name, host("other")), "sandbox": linked(sandbox(tier), name),
	}, &rep)
	switch {
	case err != nil:
		l.fail("execute with a network on %s: %v", tier, err)
	case rep.Stdout == nil || *rep.Stdout != name+" no no\n":
		l.fail("execute with a network on %s of %s: %s %+v", tier, name, text(rep.Stdout), rep)
	case len(rep.Network.Denied) == 0 && l.gateways.Load() == 0:
		l.fail("what was denied on %s is not told: %+v", tier, rep.Network)
	}
}

func text(s *string) string {
	if s == nil {
		return "nothing"
	}
	return *s
}

// fetch has a box that lasts reach what it may, if it has a network, and not what it
// might before.
func (g *guest) fetch() {
	if g.reaches == "" {
		return
	}
	var e exec
	if err := g.l.call(g.ctx, "exec, network, "+g.tier, "POST", g.path+"/exec", map[string]any{"shell": reaches(g.reaches, g.before)}, &e); err != nil {
		g.l.fail("exec with a network on %s: %v", g.tier, err)
	} else if e.Stdout != g.reaches+" no no\n" {
		g.l.fail("exec with a network on %s says %q, and may reach %s (%+v)", g.tier, e.Stdout, g.reaches, e)
	}
}

// change lets the box reach another name, and no longer the one of before.
func (g *guest) change(n int) {
	if g.reaches == "" {
		return
	}
	next := host(fmt.Sprint(g.name, "-", n))
	if err := g.l.call(g.ctx, "change rules", "PUT", g.path+"/network", map[string]any{"network": allows(next)}, nil); err != nil {
		g.l.fail("change of rules on %s: %v", g.tier, err)
		return
	}
	g.before, g.reaches = g.reaches, next
}

// restore keeps the files of the box and makes another one from them, which has the
// rules that this one had.
func (g *guest) restore(n int) {
	var s, b made
	err := g.l.once(g.ctx, "snapshot "+g.tier, "POST", g.path+"/snapshots", map[string]any{"kind": "files"}, &s)
	if err == errCut {
		return // it is removed at the end
	}
	if err != nil {
		g.l.fail("snapshot on %s: %v", g.tier, err)
		return
	}
	key := fmt.Sprint(g.name, " from ", n)
	if err := g.l.call(g.ctx, "restore "+g.tier, "POST", "/v1/boxes", map[string]any{"snapshot": s.ID, "ttl_sec": 600}, &b, "Idempotency-Key: "+key); err != nil {
		g.l.fail("restore on %s: %v", g.tier, err)
		return
	}
	c := *g
	c.path = "/v1/boxes/" + b.ID
	c.fetch()
	c.exec(key)
	c.destroy()
	g.l.removeSnapshot(g.ctx, s.ID)
}

func (l *load) removeSnapshot(ctx context.Context, id string) {
	if err := l.call(ctx, "remove snapshot", "DELETE", "/v1/snapshots/"+id, nil, nil); err != nil && status(err) != http.StatusNotFound {
		l.fail("snapshot %s: %v", id, err)
	}
}

// removeSnapshots removes those of which nobody was told.
func (l *load) removeSnapshots() {
	var all struct {
		Snapshots []made `json:"snapshots"`
	}
	if err := l.call(l.t.Context(), "list snapshots", "GET", "/v1/snapshots?limit=1000", nil, &all); err != nil {
		l.t.Error(err)
	}
	for _, s := range all.Snapshots {
		l.removeSnapshot(l.t.Context(), s.ID)
	}
}

// watchGateway kills it now and then until it is time, and once at least, and looks how
// large it is.
func (l *load) watchGateway(until time.Time) {
	kill := time.Now().Add(killGatewayEvery)
	for now := time.Now(); now.Before(until) || l.gateways.Load() == 0 && now.Before(until.Add(patience)); now = time.Now() {
		for _, pid := range harness.Gateways(l.t, l.d.Pid()) {
			l.largest = max(l.largest, harness.Resident(l.t, pid))
			if now.After(kill) && syscall.Kill(pid, syscall.SIGKILL) == nil {
				kill = now.Add(killGatewayEvery)
				l.gateways.Add(1)
			}
		}
		l.arrived()
		time.Sleep(min(500*time.Millisecond, max(20*time.Millisecond, time.Until(until))))
	}
}

// arrived counts what reached the world, where nothing that is denied may.
func (l *load) arrived() {
	for _, s := range l.farm.Take(l.t) {
		if all := s.At + " " + s.What; strings.Contains(all, denied) || strings.Contains(all, upstream.EvilAddr) || strings.Contains(all, host("other")) {
			l.fail("what is denied arrived: %v", s)
		}
		if s.Kind == "data" {
			l.arrivals++
		}
	}
}

// mostMiB is what a gateway may hold, whatever boxes do: that of the storm in
// test/egress.
const mostMiB = 256

// gatewayHolds is what the gateway has open: descriptors.
func (l *load) gatewayHolds() (open int) {
	for _, pid := range harness.Gateways(l.t, l.d.Pid()) {
		all, err := os.ReadDir(filepath.Join("/proc", fmt.Sprint(pid), "fd"))
		if err != nil {
			l.t.Error(err)
		}
		open += len(all)
	}
	return open
}

// gatewayReturnsTo waits until the gateway has no more open than before.
func (l *load) gatewayReturnsTo(before int, links []string) {
	now := 0
	for end := time.Now().Add(patience); ; time.Sleep(250 * time.Millisecond) {
		if now = l.gatewayHolds(); now > 0 && now <= before+4 {
			break
		}
		if time.Now().After(end) {
			l.t.Errorf("the gateway has %d descriptors, before %d", now, before)
			break
		}
	}
	size := 0
	for _, pid := range harness.Gateways(l.t, l.d.Pid()) {
		size = harness.Resident(l.t, pid)
	}
	l.t.Logf("gateway: %d kills, %d things arrived, at most %d MiB, now %d MiB, %d descriptors, before %d", l.gateways.Load(), l.arrivals, l.largest>>10, size>>10, now, before)
	if l.largest>>10 > mostMiB {
		l.t.Errorf("the gateway held %d MiB", l.largest>>10)
	}
	if l.arrivals == 0 || l.gateways.Load() == 0 {
		l.t.Error("no box used its network, or no gateway was killed")
	}
	if after := interfaces(l); !slices.Equal(links, after) {
		l.t.Errorf("interfaces %v, before %v", after, links)
	}
}

func interfaces(l *load) (names []string) {
	all, err := net.Interfaces()
	if err != nil {
		l.t.Fatal(err)
	}
	for _, i := range all {
		names = append(names, i.Name)
	}
	return names
}

// ends are those of all boxes: each one because its owner asked.
func (l *load) ends() {
	for cursor := ""; ; {
		var page struct {
			Boxes []struct {
				made
				Tier   string `json:"tier"`
				Reason string `json:"reason"`
				Detail string `json:"detail"`
			} `json:"boxes"`
			Next string `json:"next"`
		}
		if err := l.call(l.t.Context(), "list boxes", "GET", "/v1/boxes?destroyed=true&limit=1000&cursor="+cursor, nil, &page); err != nil {
			l.t.Error(err)
			return
		}
		for _, b := range page.Boxes {
			if b.Phase == "destroyed" && b.Reason != "asked" && b.Reason != "failed" {
				l.fail("box %s (%s) ended: %s, %s", b.ID, b.Tier, b.Reason, b.Detail)
			}
		}
		if cursor = page.Next; cursor == "" {
			return
		}
	}
}

// sometimes is a name that the box of a client may reach, for some of them.
func sometimes(r *rand.Rand, name string) string {
	if r.IntN(2) == 0 {
		return ""
	}
	return host(name)
}
