package keeper

import (
	"cmp"
	"slices"
	"strings"
	"unicode"

	"github.com/sunaba-dev/sunaba/box"
)

// What is believed of a gateway, which may have been taken over: an honest one says
// no more.
const (
	maxDenials = 512
	maxText    = 1 << 10 // bytes of one text of a denial
	maxEvent   = 8 << 10 // bytes
)

// believable bounds what a gateway says of a box, and cleans its texts.
func believable(t box.Traffic) box.Traffic {
	t.Open, t.Sent, t.Received = max(t.Open, 0), max(t.Sent, 0), max(t.Received, 0)
	for i := range t.Denied {
		d := &t.Denied[i]
		d.Count = max(d.Count, 0)
		for _, text := range []*string{&d.Kind, &d.Name, &d.Addr, &d.Method, &d.Path, &d.Code, &d.Rule, &d.Reason, &d.Fix} {
			*text = cleaned(*text, maxText)
		}
	}
	t.Denied = merged(t.Denied, nil)
	return t
}

// cleaned is a text without what acts on who reads it: controls, and marks that turn
// the direction of writing.
func cleaned(s string, most int) string {
	s = strings.ToValidUTF8(s[:min(len(s), most)], "?")
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

// merged adds up equal denials, the most frequent first. Of those that are too many to
// be told apart it tells the code.
func merged(a, b []box.Denial) []box.Denial {
	counts := map[box.Denial]int64{}
	for _, d := range slices.Concat(a, b) {
		n := d.Count
		d.Count = 0
		counts[d] += n
	}
	out := sorted(counts)
	if len(out) <= maxDenials {
		return out
	}
	rest := map[box.Denial]int64{}
	for _, d := range out[maxDenials/2:] {
		rest[box.Denial{Kind: d.Kind, Code: d.Code}] += d.Count
	}
	more := sorted(rest)
	return merged(out[:maxDenials/2], more[:min(len(more), maxDenials/2)])
}

func sorted(counts map[box.Denial]int64) []box.Denial {
	out := make([]box.Denial, 0, len(counts))
	for d, n := range counts {
		d.Count = n
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b box.Denial) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Addr, b.Addr),
			cmp.Compare(a.Path, b.Path), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Method, b.Method), cmp.Compare(a.Rule, b.Rule))
	})
	return out
}
