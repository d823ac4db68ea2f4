package gvisor

import (
	"context"
	"errors"

	"github.com/sunaba-dev/sunaba/box"
)

// probeGroups tries the control groups. Root's boxes need them; an ordinary
// user's boxes do without, and say so.
func (t *Tier) probeGroups(ctx context.Context, p *prober) {
	const prefix = "control group: "
	if t.cfg.Groups == nil {
		p.add(step{Step: missing(prefix+"all", errors.New("not looked for"), ""), needed: t.Root()})
		return
	}
	steps := t.cfg.Groups.Probe(ctx)
	ok := map[string]bool{}
	for _, s := range steps {
		ok[s.Name] = s.State != box.Missing
	}
	// What gbox.limit asks for: without these there is no group at all.
	group := ok["memory limit"] && ok["pids limit"] && ok["process membership"]
	for _, s := range steps {
		out := step{Step: s, needed: t.Root()}
		if s.State == box.Missing && !t.Root() {
			out.State = box.Weak
			switch {
			case s.Name == "cpu limit":
				out.weak = []string{weakCPU}
			case !group:
				out.weak = []string{weakMemory, weakCPU}
			}
		}
		out.Name = prefix + s.Name
		p.add(out)
	}
	// What the group's life was not long enough for.
	for _, name := range []string{"process membership", "kill", "counters", "removal"} {
		if _, tried := ok[name]; tried {
			continue
		}
		out := notTried(prefix+name, prefix+"process membership")
		if out.needed = t.Root(); !t.Root() {
			out.State = box.Weak
		}
		p.add(out)
	}
}
