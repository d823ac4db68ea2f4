package main

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
)

// What is to be reached.
const (
	leastSpeed   = 0.2       // of loopback, in the same mode
	mostConnect  = 1.0       // of squid
	mostQuiet    = 100 << 20 // bytes of the gateway's process for a thousand links
	mostActive   = 600 << 10 // bytes that each link with a connection adds
	enoughActive = 50        // or what each adds is mostly what all share
	quietLinks   = 1000
)

type result struct {
	options
	peers               []*peer
	before              string // load average
	quiet, active       held
	quietErr, activeErr error
}

// write writes the tables: medians, and medians of the ratios within the rounds.
func (r result) write() error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d rounds of %d connections, %d requests, %d MiB down and up; load average %s at the start, %s at the end.\n\n", r.rounds, r.conns, r.ping, r.megabytes, r.before, load())
	r.targets(&b)
	for _, m := range modes() {
		r.table(&b, m)
		r.change(&b, m)
	}
	r.memory(&b)
	r.rest(&b)
	fmt.Print(b.String())
	if r.out == "" {
		return nil
	}
	_ = os.Remove(r.out)
	return write(r.out, []byte(b.String()), 0o644)
}

// rest names what is not in the figures.
func (r result) rest(b *strings.Builder) {
	for _, p := range r.peers {
		switch {
		case p.absent != nil:
			fmt.Fprintf(b, "\n**Not measured: %s, %s: %s.**\n", p.name, p.mode, strings.Join(strings.Fields(p.absent.Error()), " "))
		case len(p.bad) > 0:
			fmt.Fprintf(b, "\n**%s, %s, failed %d times, which are not in the figures; at first: %s.**\n", p.name, p.mode, len(p.bad), strings.Join(strings.Fields(p.bad[0]), " "))
		}
	}
}

func (r result) targets(b *strings.Builder) {
	b.WriteString("| target | | measured | middle half | |\n|---|---:|---:|---|---|\n")
	for _, name := range []string{nameProcess, nameGvisor} {
		p := r.find(name, modeSplice)
		for _, c := range []struct {
			what, to string
			at       func(turn) float64
		}{{"download", nameLoopback, download}, {"upload", nameLoopback, upload}} {
			list := ratios(p, r.find(c.to, modeSplice), c.at)
			fmt.Fprintf(b, "| %s, splice: %s to loopback | at least %.2f | %s | %s to %s | %s |\n", name, c.what, leastSpeed, number(median(list)), number(quantile(list, 0.25)), number(quantile(list, 0.75)), verdict(median(list), median(list) >= leastSpeed))
		}
		list := ratios(p, r.find(nameSquid, modeSplice), connect)
		fmt.Fprintf(b, "| %s, splice: connect to squid | at most %.2f | %s | %s to %s | %s |\n", name, mostConnect, number(median(list)), number(quantile(list, 0.25)), number(quantile(list, 0.75)), verdict(median(list), median(list) <= mostConnect))
	}
	for _, name := range []string{nameProcess, nameGvisor} {
		for _, c := range []struct{ what, p, q string }{
			{"the name known to both", name + knownSuffix, nameSquid}, {"the name asked by both", name, nameSquid + askedSuffix},
		} {
			list := ratios(r.find(c.p, modeSplice), r.find(c.q, modeSplice), connect)
			fmt.Fprintf(b, "| %s, splice: connect to squid, %s | no target | %s | %s to %s | |\n", name, c.what, number(median(list)), number(quantile(list, 0.25)), number(quantile(list, 0.75)))
		}
	}
	all, each := math.NaN(), math.NaN()
	if r.quietErr == nil && r.options.quiet == quietLinks {
		all = float64(r.quiet.after)
	}
	if r.activeErr == nil && r.options.active >= enoughActive {
		each = r.active.each(r.options.active)
	}
	fmt.Fprintf(b, "| the gateway's process with %d quiet links | at most 100 MiB | %s MiB | | %s |\n", quietLinks, number(all/(1<<20)), verdict(all, all <= mostQuiet))
	fmt.Fprintf(b, "| each link with a connection | at most 600 KiB | %s KiB | | %s |\n", number(each/(1<<10)), verdict(each, each <= mostActive))
}

func verdict(x float64, met bool) string {
	switch {
	case math.IsNaN(x):
		return "not measured"
	case met:
		return "met"
	}
	return "missed"
}

func (r result) table(b *strings.Builder, m mode) {
	if !slices.ContainsFunc(r.peers, func(p *peer) bool { return p.mode == m.name }) {
		return
	}
	fmt.Fprintf(b, "\n### Mode %s: %s\n\n", m.name, m.what)
	b.WriteString("| | connect p50 | p95 ms | of which name, dial, TLS | request p50 | p95 ms | download MB/s | upload MB/s | to loopback: download, upload | to squid: connect, request |\n|---|" + strings.Repeat("---:|", 9) + "\n")
	for _, p := range r.peers {
		if p.mode != m.name || p.absent != nil {
			continue
		}
		to := func(name string, at func(turn) float64) string {
			if name == p.name {
				return "1"
			}
			return number(some(median(ratios(p, r.find(name, m.name), at))))
		}
		var connects, requests []float64
		for _, t := range p.turns {
			connects, requests = append(connects, t.Connects...), append(requests, t.Requests...)
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s, %s, %s | %s | %s | %s | %s | %s, %s | %s, %s |\n", p.name, number(median(connects)), number(quantile(connects, 0.95)),
			number(p.median(func(t turn) float64 { return t.Name })), number(p.median(func(t turn) float64 { return t.Dial })), number(p.median(func(t turn) float64 { return t.TLS })),
			number(median(requests)), number(quantile(requests, 0.95)), whole(p.median(download)), whole(p.median(upload)),
			to(nameLoopback, download), to(nameLoopback, upload), to(nameSquid, connect), to(nameSquid, request))
	}
}

// change writes what is different from the other build, within the rounds.
func (r result) change(b *strings.Builder, m mode) {
	if r.options.before == "" {
		return
	}
	for _, name := range []string{nameProcess, nameGvisor} {
		p, q := r.find(name, m.name), r.find(name+beforeSuffix, m.name)
		if len(p.turns) == 0 || len(q.turns) == 0 {
			continue
		}
		fmt.Fprintf(b, "\n%s, %s, to before:", name, m.name)
		for _, c := range []struct {
			what string
			at   func(turn) float64
		}{{"connect", connect}, {"request", request}, {"download", download}, {"upload", upload}} {
			list := ratios(p, q, c.at)
			fmt.Fprintf(b, " %s %s (middle half %s to %s)", c.what, number(median(list)), number(quantile(list, 0.25)), number(quantile(list, 0.75)))
		}
		b.WriteString("\n")
	}
}

func (r result) memory(b *strings.Builder) {
	if r.options.quiet+r.options.active == 0 {
		return
	}
	b.WriteString("\n### Memory of the gateway's process\n\nPrivate memory and its part of what is shared (Pss), without links and with them.\n\n| links | without | with | each |\n|---|---:|---:|---:|\n")
	for _, h := range []struct {
		n    int
		what string
		held held
		err  error
	}{{r.options.quiet, "quiet", r.quiet, r.quietErr}, {r.options.active, "each with a connection of TLS in mode splice that has carried 8 MiB and is open", r.active, r.activeErr}} {
		switch {
		case h.n == 0:
		case h.err != nil:
			fmt.Fprintf(b, "| %d, %s | | | failed: %s |\n", h.n, h.what, strings.Join(strings.Fields(h.err.Error()), " "))
		default:
			fmt.Fprintf(b, "| %d, %s | %.1f MiB | %.1f MiB | %.1f KiB |\n", h.n, h.what, float64(h.held.before)/(1<<20), float64(h.held.after)/(1<<20), h.held.each(h.n)/(1<<10))
		}
	}
}

func connect(t turn) float64  { return median(t.Connects) }
func request(t turn) float64  { return median(t.Requests) }
func download(t turn) float64 { return t.Download }
func upload(t turn) float64   { return t.Upload }

func (t turn) ok() bool { return len(t.Connects) > 0 }

// median is that of one figure of all turns that did not fail.
func (p *peer) median(at func(turn) float64) float64 {
	var out []float64
	for _, t := range p.turns {
		if t.ok() {
			out = append(out, at(t))
		}
	}
	return median(out)
}

// find returns the way of that name and mode; one without turns if there is none.
func (r result) find(name, mode string) *peer {
	for _, p := range r.peers {
		if p.name == name && p.mode == mode {
			return p
		}
	}
	return &peer{}
}

// ratios divides p by q in each round in which neither failed.
func ratios(p, q *peer, at func(turn) float64) []float64 {
	var list []float64
	for n := range min(len(p.turns), len(q.turns)) {
		if p.turns[n].ok() && q.turns[n].ok() {
			list = append(list, at(p.turns[n])/at(q.turns[n]))
		}
	}
	return list
}

func number(x float64) string {
	if math.IsNaN(x) {
		return "–"
	}
	return fmt.Sprintf("%.2f", x)
}

// some is NaN for 0, which is a figure that a way was not asked for.
func some(x float64) float64 {
	if x == 0 {
		return math.NaN()
	}
	return x
}

func whole(x float64) string {
	if math.IsNaN(some(x)) {
		return "–"
	}
	return fmt.Sprintf("%.0f", x)
}

func median(list []float64) float64 { return quantile(list, 0.5) }

// quantile is the smallest value that at least that share of all does not exceed;
// NaN without values.
func quantile(list []float64, q float64) float64 {
	if len(list) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(list))
	return s[min(max(int(math.Ceil(q*float64(len(s))))-1, 0), len(s)-1)]
}

func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(b), " ")
	return first
}
