package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
)

// wordsOfDenials is how many denials are told one by one.
const wordsOfDenials = 5

// denialWords say what the network did not let through, and how to allow it. Adding
// is the flag that takes an entry of the short form, where there is one.
func denialWords(all []box.Denial, adding string) []string {
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
		if d.Fix != "" {
			fix := d.Fix
			if entry, _, _ := strings.Cut(fix, " in place of "); !strings.Contains(entry, " ") {
				fix = strings.TrimLeft(adding+" "+fix, " ")
			}
			line += "; to allow it: " + strings.ReplaceAll(fix, "\n", `\n`) // whole: it is to be copied
		}
		out = append(out, line)
	}
	return out
}
