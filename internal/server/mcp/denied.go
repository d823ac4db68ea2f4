package mcp

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
)

// denied is something that the network did not let through, or that was allowed and
// did not answer. What was asked for are the program's own words.
type denied struct {
	What   string `json:"what" jsonschema:"a name or an address, a port, a request"`
	Code   string `json:"code" jsonschema:"the stable reason"`
	Reason string `json:"reason"`
	Fix    string `json:"fix,omitempty" jsonschema:"what whoever started this server can add to allow it"`
	Count  int64  `json:"count"`
}

// mostDenied bounds how much of it an answer holds.
const mostDenied = 20

// traffic returns what was denied to a box until now, by what tells it apart. A box
// without a network, and one that cannot be asked, was denied nothing.
func (c call) traffic(ctx context.Context, id box.ID) map[box.Denial]int64 {
	n, err := c.cfg.Service.Network(ctx, c.caller, id)
	if err != nil {
		return nil
	}
	out := map[box.Denial]int64{}
	for _, d := range n.Traffic.Denied {
		count := d.Count
		d.Count = 0
		out[d] = count
	}
	return out
}

// deniedSince adds what was denied to a box after before was taken. Others may use
// the box at the same time: it is what the box was denied meanwhile.
func (r *report) deniedSince(ctx context.Context, c call, id box.ID, before map[box.Denial]int64) {
	n, err := c.cfg.Service.Network(ctx, c.caller, id)
	if err != nil {
		return
	}
	var all []box.Denial
	for _, d := range n.Traffic.Denied {
		key := d
		key.Count = 0
		if d.Count -= before[key]; d.Count > 0 {
			all = append(all, d)
		}
	}
	r.denied(all)
}

// denied adds what the network did not let through. Names and paths are a program's
// words, so they stand in a fence.
func (r *report) denied(all []box.Denial) {
	var lines strings.Builder
	for i, d := range all {
		if i == mostDenied {
			fmt.Fprintf(&lines, "... and %d more\n", len(all)-i)
			break
		}
		what := cmp.Or(d.Name, d.Addr, d.Kind)
		if d.Port != 0 {
			what += fmt.Sprintf(" port %d", d.Port)
		}
		if d.Method != "" {
			what += strings.TrimRight(" "+d.Method+" "+d.Path, " ")
		}
		o := denied{What: clean(what), Code: d.Code, Reason: clean(cmp.Or(d.Reason, d.Code)), Fix: clean(d.Fix), Count: d.Count}
		r.out.Denied = append(r.out.Denied, o)
		verb := "denied"
		if d.Unanswered() {
			verb = "allowed, but not reached"
		}
		line := fmt.Sprintf("%s: %s: %s", verb, o.What, o.Reason)
		if o.Fix != "" {
			line += "; whoever started this server can allow it: " + o.Fix
		}
		lines.WriteString(strings.ReplaceAll(line, "\n", " ") + "\n")
	}
	if lines.Len() > 0 {
		r.blocks = append(r.blocks, text("the network of the box let less through than the program asked for; what is denied stays denied:"),
			text(fence(r.word, fmt.Sprintf("box=%q about=\"network\"", r.box), lines.String())))
	}
}

// reaches says in a sentence what the boxes of this server reach.
func (c Config) reaches() string {
	const most = 30
	list := c.Reach
	switch {
	case c.Reach == nil:
		return "A new box has no network."
	case len(list) == 0:
		return "A new box has a network on which nothing can be reached."
	case len(list) > most:
		list = append(list[:most:most], fmt.Sprintf("and %d more", len(c.Reach)-most))
	}
	return "A new box reaches this of the network, and nothing else: " + strings.Join(list, "; ") + "."
}
