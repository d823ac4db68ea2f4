package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

func sandbox(tier string) map[string]any {
	return map[string]any{"runtime": tier, "trust": "trusted", "resource_limits": map[string]any{"memory": "256m", "disk": "64m", "timeout_sec": 240}}
}

// lasting asks for a box that can be forked, where the tier can, perhaps one that
// is warm, or that may reach a name.
func lasting(tier string, reuse bool, name string) map[string]any {
	s := sandbox(tier)
	if tier == "gvisor" {
		s["image"] = "base"
	}
	if reuse {
		s["lifecycle"] = map[string]any{"reuse": true, "pool_size": 2}
	}
	if name != "" {
		linked(s, name)
	}
	return s
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

type made struct {
	ID    string `json:"id"`
	Start string `json:"start"`
	Phase string `json:"phase"`
}

// guest is a box that lasts, and what its owner knows of it.
type guest struct {
	l    *load
	ctx  context.Context
	tier string
	path string
	name string // no other has it

	reaches string // by its network; empty if it has none
	before  string // what it might before
}

// mixed uses a box that lasts, for some of what there is, or for all of it.
func (l *load) mixed(ctx context.Context, n int, r *rand.Rand, all bool) {
	g := &guest{l: l, ctx: ctx, tier: []string{"gvisor", "process"}[r.IntN(2)], name: fmt.Sprint("client-", n)}
	reuse := r.IntN(2) == 0
	g.reaches, g.before = sometimes(r, g.name), host("other")
	if all {
		g.tier, reuse, g.reaches = "gvisor", true, host(g.name)
	}
	var b made
	what := "create " + g.tier
	if reuse {
		what = "create, reuse, " + g.tier
	}
	// Made again with its key, a request has one box.
	if err := l.call(ctx, what, "POST", "/v1/boxes", map[string]any{"sandbox": lasting(g.tier, reuse, g.reaches), "ttl_sec": 600}, &b, "Idempotency-Key: "+g.name); err != nil {
		l.fail("create on %s: %v", g.tier, err)
		return
	}
	if b.Start == "warm" {
		l.warm.Add(1)
	}
	g.path = "/v1/boxes/" + b.ID
	defer g.destroy()
	code := 1 + r.IntN(100)
	pid := g.background(code)
	for i := range 1 + r.IntN(4) {
		g.exec(fmt.Sprint(n, " ", i))
		g.fetch()
		does := r.IntN(8)
		if all || does == 0 {
			g.pause()
		}
		if all || does == 1 {
			g.fork(fmt.Sprint(n, " ", i))
		}
		if all || does == 2 {
			g.change(i)
		}
		if all && i == 0 || does == 3 {
			g.restore(i)
		}
	}
	g.fetch()
	var big exec
	if err := l.call(ctx, "1 MB of output "+g.tier, "POST", g.path+"/exec", map[string]any{"command": []string{"sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x"}}, &big); err != nil {
		l.fail("output on %s: %v", g.tier, err)
	} else if len(big.Stdout) != 1000000 || strings.Trim(big.Stdout, "x") != "" {
		l.fail("output on %s: %d bytes", g.tier, len(big.Stdout))
	}
	g.ended(pid, code)
}

func (g *guest) destroy() {
	if err := g.l.call(g.ctx, "destroy", "DELETE", g.path, nil, nil); err != nil {
		g.l.fail("destroy on %s: %v", g.tier, err)
	}
}

// exec adds a line to a file and is told it. Made twice, the line is there twice,
// and is the last one all the same: a program of a call that had no answer may run on, and
// has to end before another line may come.
func (g *guest) exec(want string) {
	var e exec
	in := map[string]any{"command": []string{"sh", "-c", "echo $0 >> log; tail -n 1 log; exit 3", want}}
	err := g.l.once(g.ctx, "exec "+g.tier, "POST", g.path+"/exec", in, &e)
	for err == errCut {
		g.ends()
		err = g.l.once(g.ctx, "exec "+g.tier, "POST", g.path+"/exec", in, &e)
	}
	if err != nil {
		g.l.fail("exec on %s: %v", g.tier, err)
	} else if e.Stdout != want+"\n" || e.ExitCode == nil || *e.ExitCode != 3 {
		g.l.fail("exec on %s: %+v, want %q", g.tier, e, want)
	}
}

// program is what the list of them says of one.
type program struct {
	PID int    `json:"pid"`
	Tag string `json:"tag"`
	End *exec  `json:"end"`
}

func (g *guest) programs() ([]program, error) {
	var all struct {
		Processes []program `json:"processes"`
	}
	err := g.l.call(g.ctx, "list programs", "GET", g.path+"/processes?limit=1000", nil, &all)
	return all.Processes, err
}

// ends waits until no program runs in the box but the one in the background.
func (g *guest) ends() {
	for end := time.Now().Add(patience); time.Now().Before(end); wait(g.ctx, 100*time.Millisecond) {
		all, err := g.programs()
		if err != nil {
			g.l.fail("programs on %s: %v", g.tier, err)
			return
		}
		if !slices.ContainsFunc(all, func(p program) bool { return p.Tag != "background" && p.End == nil }) {
			return
		}
	}
	g.l.fail("programs on %s do not end", g.tier)
}

// background starts a program that ends by itself with a code, at any time, and
// once: who got no answer looks whether it is there. On a busy host the call may be on its
// way in the box still, so it is looked for twice.
func (g *guest) background(code int) int {
	in := map[string]any{"shell": fmt.Sprintf("echo once >> started; sleep 1; exit %d", code), "tag": "background", "timeout_sec": 0}
	for {
		var p struct {
			PID int `json:"pid"`
		}
		err := g.l.once(g.ctx, "start "+g.tier, "POST", g.path+"/processes", in, &p)
		if err == nil {
			return p.PID
		}
		if err != errCut {
			g.l.fail("start on %s: %v", g.tier, err)
			return 0
		}
		for _, later := range []time.Duration{0, 5 * time.Second} {
			wait(g.ctx, later)
			all, err := g.programs()
			if err != nil {
				g.l.fail("programs on %s: %v", g.tier, err)
				return 0
			}
			for _, q := range all {
				if q.Tag == "background" {
					return q.PID
				}
			}
		}
	}
}

// ended holds the end of a program against what it must be, whoever is the daemon
// by then.
func (g *guest) ended(pid, code int) {
	for pid != 0 {
		var p struct {
			End *exec `json:"end"`
		}
		err := g.l.call(g.ctx, "tell of a program", "GET", fmt.Sprint(g.path, "/processes/", pid), nil, &p)
		switch {
		case err != nil:
			g.l.fail("a program on %s: %v", g.tier, err)
			return
		case p.End == nil:
			wait(g.ctx, 100*time.Millisecond)
			continue
		case p.End.ExitCode == nil || *p.End.ExitCode != code:
			g.l.fail("a program on %s exits with %d, and is told as %+v", g.tier, code, p.End)
		}
		var e exec
		if err := g.l.call(g.ctx, "exec "+g.tier, "POST", g.path+"/exec", map[string]any{"shell": "cat started"}, &e); err != nil || e.Stdout != "once\n" {
			g.l.fail("a program on %s was started %q times, %v", g.tier, e.Stdout, err)
		}
		return
	}
}

// pause has the box stand, and go on by its next call.
func (g *guest) pause() {
	err := g.l.call(g.ctx, "pause "+g.tier, "POST", g.path+"/pause", nil, nil)
	if status(err) == http.StatusNotImplemented {
		return // no freezer here
	}
	var b made
	if err == nil {
		err = g.l.call(g.ctx, "tell of a box", "GET", g.path, nil, &b)
	}
	if err != nil || b.Phase != "paused" {
		g.l.fail("pause on %s: %v, %s is %q", g.tier, err, g.path, b.Phase)
	}
}

// fork makes two copies, which have what the box had, and destroys them.
func (g *guest) fork(last string) {
	if g.tier != "gvisor" {
		return
	}
	var all struct {
		Forks []struct {
			Box   *made `json:"box"`
			Error *struct {
				Code    int    `json:"code"`
				Message string `json:"message"`
			} `json:"error"`
		} `json:"forks"`
	}
	mark := fmt.Sprint(g.name, " ", last)
	err := g.l.once(g.ctx, "fork in two", "POST", g.path+"/fork", map[string]any{"count": 2, "ttl_sec": 600, "metadata": map[string]any{"of": mark}}, &all)
	switch {
	case err == errCut:
		g.l.strays(g.ctx, mark)
		return
	case err != nil:
		g.l.fail("fork: %v", err)
		return
	}
	for _, f := range all.Forks {
		if f.Box == nil {
			if f.Error == nil || f.Error.Code != http.StatusTooManyRequests && f.Error.Code != http.StatusServiceUnavailable {
				g.l.fail("a copy that is none: %+v", f.Error)
			}
			g.l.later.Add(1)
			continue
		}
		c := *g
		c.path = "/v1/boxes/" + f.Box.ID
		var e exec
		if err := g.l.call(g.ctx, "first exec of a copy", "POST", c.path+"/exec", map[string]any{"shell": "tail -n 1 log; echo copy >> other"}, &e); err != nil || e.Stdout != last+"\n" {
			g.l.fail("a copy says %q, %v; want %q", e.Stdout, err, last)
		}
		c.fetch()
		c.destroy()
	}
	var e exec
	if err := g.l.call(g.ctx, "exec gvisor", "POST", g.path+"/exec", map[string]any{"shell": "cat other"}, &e); err != nil || e.ExitCode == nil || *e.ExitCode != 1 {
		g.l.fail("what copies write is in the box that they are of: %+v, %v", e, err)
	}
}

// strays destroys copies of which nobody was told: their owner sees them in the
// list.
func (l *load) strays(ctx context.Context, mark string) {
	for cursor := ""; ; {
		var page struct {
			Boxes []struct {
				made
				Labels map[string]string `json:"metadata"`
			} `json:"boxes"`
			Next string `json:"next"`
		}
		if err := l.call(ctx, "list boxes", "GET", "/v1/boxes?limit=1000&cursor="+cursor, nil, &page); err != nil {
			l.fail("list: %v", err)
			return
		}
		for _, b := range page.Boxes {
			if b.Labels["of"] == mark {
				(&guest{l: l, ctx: ctx, tier: "gvisor", path: "/v1/boxes/" + b.ID}).destroy()
			}
		}
		if cursor = page.Next; cursor == "" {
			return
		}
	}
}

// status is that of an answer that is an error, else 0.
func status(err error) int {
	var a answer
	if errors.As(err, &a) {
		return a.status
	}
	return 0
}
