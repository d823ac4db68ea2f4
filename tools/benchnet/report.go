package main

import (
	"fmt"
	"os"
	"strings"
)

// report writes the table: medians, and the median of the ratios to the first and
// the last peer within the rounds.
func report(o options, peers []*peer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d rounds of %d connections, %d requests, %d MiB down and up; load average at the end %s\n\n", o.rounds, o.conns, o.ping, o.megabytes, load())
	b.WriteString("| | connect ms (name + dial + TLS) | request ms | download MB/s | upload MB/s | to direct: connect | request | download | upload | to squid: connect | request | download | upload |\n|---|" + strings.Repeat("---:|", 12) + "\n")
	for _, p := range peers {
		fmt.Fprintf(&b, "| %s |", p.name)
		for i := range 4 {
			fmt.Fprintf(&b, " %.4g", median(p.column(i)))
			if i == 0 {
				fmt.Fprintf(&b, " (%.2g + %.2g + %.2g)", median(p.column(4)), median(p.column(5)), median(p.column(6)))
			}
			b.WriteString(" |")
		}
		for _, to := range []string{peers[0].name, "no box, squid splices"} {
			for i := range 4 {
				b.WriteString(" " + ratio(p, peers, to, i) + " |")
			}
		}
		b.WriteByte('\n')
	}
	for _, p := range peers {
		if len(p.bad) > 0 {
			fmt.Fprintf(&b, "\n%s failed %d times, at first: %s\n", p.name, len(p.bad), p.bad[0])
		}
	}
	fmt.Print(b.String())
	if o.out == "" {
		return nil
	}
	_ = os.Remove(o.out)
	return write(o.out, []byte(b.String()), 0o644)
}

func (t turn) at(i int) float64 {
	return [...]float64{t.Connect, t.Request, t.Download, t.Upload, t.Name, t.Dial, t.TLS}[i]
}

// column is one figure of all turns that did not fail.
func (p *peer) column(i int) []float64 {
	var out []float64
	for _, t := range p.turns {
		if t != (turn{}) {
			out = append(out, t.at(i))
		}
	}
	return out
}

func ratio(p *peer, peers []*peer, to string, i int) string {
	for _, q := range peers {
		if q.name != to || q == p {
			continue
		}
		var list []float64
		for n := range p.turns {
			if p.turns[n] != (turn{}) && q.turns[n] != (turn{}) {
				list = append(list, p.turns[n].at(i)/q.turns[n].at(i))
			}
		}
		if len(list) > 0 {
			return fmt.Sprintf("%.2f", median(list))
		}
	}
	return "–"
}

func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(b), " ")
	return first
}
