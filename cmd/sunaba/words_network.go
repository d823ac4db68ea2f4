package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/egress/rules"
	"github.com/sunaba-dev/sunaba/internal/hostname"
)

// wordsOfDenials is how many denials are told one by one.
const wordsOfDenials = 5

// denialWords say what the network did not let through, and how to allow it. Adding
// is the flag that takes an entry of the short form, where there is one; now are rules
// that came into force after some of it, and may allow it, or want it said in another
// form; nil if there are none.
func denialWords(all []box.Denial, adding string, now *rules.Policy) []string {
	var out []string
	for i, d := range all {
		if i == wordsOfDenials {
			return append(out, fmt.Sprintf("the network denied %d more (see network in `-o json`)", len(all)-i))
		}
		what := cmp.Or(d.Name, d.Addr, d.Kind)
		if d.Kind == "link" {
			what = "packets"
		}
		if d.Port != 0 {
			what = fmt.Sprintf("%s port %d", what, d.Port)
		}
		if d.Method != "" {
			what = strings.TrimRight(what+" "+d.Method+" "+d.Path, " ")
		}
		verb := "denied"
		if d.Unanswered() {
			verb = "allowed, and could not reach,"
		}
		line := fmt.Sprintf("the network %s %s: %s", verb, oneLine(what), oneLine(cmp.Or(d.Reason, d.Code)))
		if d.Count > 1 {
			line += fmt.Sprintf(" (%d times)", d.Count)
		}
		allowed, fix := today(now, d)
		switch {
		case allowed:
			line += "; it is allowed now"
		case fix != "":
			if entry, _, _ := strings.Cut(fix, " in place of "); !strings.Contains(entry, " ") {
				fix = strings.TrimLeft(adding+" "+fix, " ")
			}
			to := "to allow it"
			if d.Kind == "dns" { // a question does not say what for
				to += " on port 443"
			}
			line += "; " + to + ": " + strings.ReplaceAll(fix, "\n", `\n`) // whole: it is to be copied
		}
		out = append(out, line)
	}
	return out
}

// today says whether rules allow the name, or the connection, that was denied, and
// else what would let it through: the denial's own words are of the rules of its time.
func today(p *rules.Policy, d box.Denial) (bool, string) {
	n, err := hostname.Parse(d.Name)
	if p == nil || err != nil {
		return false, d.Fix
	}
	switch d.Code {
	case string(rules.NotListed), string(rules.PortClosed), string(rules.DeniedByRule):
	default:
		return false, d.Fix // of what came over it
	}
	switch d.Kind {
	case "dns":
		_, v := p.Host(n, 443)
		return p.Name(n), v.Fix
	case "connect":
		_, v := p.Host(n, d.Port)
		return v.Allow, v.Fix
	}
	return false, d.Fix
}
