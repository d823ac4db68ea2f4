package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// report writes the tables in Markdown.
type report struct {
	w        io.Writer
	rounds   int
	passes   int
	each     time.Duration
	idleN    int
	loads    []float64
	versions []string
}

func (r report) head() {
	var u syscall.Utsname
	_ = syscall.Uname(&u) // leaves it empty
	fmt.Fprintf(r.w, "Measured %s on %d cores (%s), %s of memory, Linux %s, %s; load average %.1f at the start, %.1f at the end.\n",
		time.Now().UTC().Format("2006-01-02"), runtime.NumCPU(), cpuModel(), memory(), utsText(u.Release[:]), distribution(), r.loads[0], r.loads[len(r.loads)-1])
	fmt.Fprintf(r.w, "Versions: %s.\n", strings.Join(r.versions, ", "))
}

func utsText(b []int8) string {
	var s strings.Builder
	for _, c := range b {
		if c == 0 {
			break
		}
		s.WriteByte(byte(c))
	}
	return s.String()
}

func field(file, key string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return "?"
	}
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(strings.Replace(line, "=", ":", 1), ":"); ok && strings.TrimSpace(k) == key {
			return strings.Trim(strings.TrimSpace(v), `"`)
		}
	}
	return "?"
}

func cpuModel() string { return field("/proc/cpuinfo", "model name") }

func distribution() string { return field("/etc/os-release", "PRETTY_NAME") }

func memory() string {
	var kib int64
	fmt.Sscanf(field("/proc/meminfo", "MemTotal"), "%d", &kib) // leaves it zero
	return fmt.Sprintf("%d GiB", kib>>20)
}

func load() float64 {
	b, err := os.ReadFile("/proc/loadavg")
	var l float64
	if err == nil {
		fmt.Sscanf(string(b), "%f", &l)
	}
	return l
}

// latency writes the table of one workload.
func (r report) latency(peers []peer, res *results) {
	fmt.Fprintf(r.w, "\n### `%s`\n\n", strings.Join(res.w.argv, " "))
	fmt.Fprintf(r.w, "%d rounds.\n\n", r.rounds)
	fmt.Fprintln(r.w, "| peer | n | median ms | p95 ms | CPU ms | peak MiB | x bubblewrap | x bubblewrap + seccomp | x runc |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|")
	for _, p := range peers {
		samples := res.samples[p.name]
		if len(samples) == 0 {
			continue
		}
		var cpu, peak, walls []float64
		for _, s := range samples {
			cpu, peak, walls = append(cpu, ms(s.cpu)), append(peak, float64(s.peak)/(1<<20)), append(walls, ms(s.wall))
		}
		fmt.Fprintf(r.w, "| %s | %d | %.1f | %.1f | %.1f | %.1f | %s | %s | %s |\n", p.name, len(walls), median(walls), quantile(walls, 0.95), median(cpu), median(peak),
			times(res, p.name, nameBwrap), times(res, p.name, nameFilter), times(res, p.name, nameRunc))
	}
}

func times(res *results, a, b string) string {
	return number(median(ratios(res.walls(a), res.walls(b))))
}

func number(x float64) string {
	if math.IsNaN(x) {
		return "-"
	}
	return fmt.Sprintf("%.2f", x)
}

// targets writes what was to be reached and what was.
func (r report) targets(all map[string]*results) {
	fmt.Fprintln(r.w, "\n### Targets\n\nMedian of the ratios of each round, and the middle half of them.\n\n| peer | to | workload | at most | measured | middle half | |\n|---|---|---|---:|---:|---|---|")
	for _, t := range targets() {
		for _, w := range workloads() {
			if t.workload != w.name && (t.workload != "" || w.few) {
				continue
			}
			res := all[w.name]
			rs := ratios(res.walls(t.peer), res.walls(t.to))
			verdict := "not measured"
			if m := median(rs); !math.IsNaN(m) {
				verdict = map[bool]string{true: "met", false: "missed"}[m <= t.most]
			}
			fmt.Fprintf(r.w, "| %s | %s | `%s` | %.2f | %s | %s to %s | %s |\n", t.peer, t.to, w.name, t.most, number(median(rs)), number(quantile(rs, 0.25)), number(quantile(rs, 0.75)), verdict)
		}
	}
}

// throughput writes runs per second.
func (r report) throughput(peers map[string][]peer, all map[string]map[string][]rate) {
	fmt.Fprintf(r.w, "\n### Runs per second, %d workers\n\nMedian of %d passes of %v each, in random order.\n\n| peer |", workers, r.passes, r.each)
	for _, w := range general() {
		fmt.Fprintf(r.w, " `%s` runs/s | x bubblewrap | CPU ms per run | failed |", w.name)
	}
	fmt.Fprint(r.w, "\n|---|")
	for range general() {
		fmt.Fprint(r.w, "---:|---:|---:|---:|")
	}
	fmt.Fprintln(r.w)
	for _, p := range peers[workloads()[0].name] {
		fmt.Fprintf(r.w, "| %s |", p.name)
		for _, w := range general() {
			var perSecond, cpu []float64
			var failed int64
			mine, base := map[int]float64{}, map[int]float64{}
			for i, x := range all[w.name][p.name] {
				mine[i] = float64(x.runs) / x.took.Seconds()
				perSecond = append(perSecond, mine[i])
				failed += x.failed
				if x.runs > 0 {
					cpu = append(cpu, ms(x.cpu)/float64(x.runs))
				}
			}
			for i, x := range all[w.name][nameBwrap] {
				base[i] = float64(x.runs) / x.took.Seconds()
			}
			fmt.Fprintf(r.w, " %.1f | %s | %.1f | %d |", median(perSecond), number(median(ratios(mine, base))), median(cpu), failed)
		}
		fmt.Fprintln(r.w)
	}
}

func (r report) idle(all []held) {
	fmt.Fprintf(r.w, "\n### Memory of an idle box\n\nAnonymous memory, tmpfs and the kernel's own, charged to all that a peer started; %d boxes that sleep, divided by %d.\n\n| peer | MiB a box | |\n|---|---:|---|\n", r.idleN, r.idleN)
	for _, h := range all {
		if h.err != nil {
			fmt.Fprintf(r.w, "| %s | - | failed: %s |\n", h.name, oneLine(h.err))
			continue
		}
		fmt.Fprintf(r.w, "| %s | %.1f | %s |\n", h.name, float64(h.each)/(1<<20), h.what)
	}
}

// crowd writes what many boxes of the daemon's cost.
func (r report) crowd(c crowd) {
	if len(c.forks)+len(c.held)+len(c.lives) == 0 {
		return
	}
	fmt.Fprint(r.w, "\n### Many boxes of one daemon\n\nForks are of a gvisor box with an interpreter that has numpy. Idle boxes have run nothing; what their daemon grew by is in the figure.\n\n| what | median | |\n|---|---:|---|\n")
	for _, n := range []int{10, 100} {
		var each []float64
		failed := ""
		for _, f := range c.forks {
			if f.n == n && f.err == nil {
				each = append(each, ms(f.took)/float64(n))
			} else if f.n == n {
				failed = " failed: " + oneLine(f.err)
			}
		}
		fmt.Fprintf(r.w, "| fork into %d, a copy | %.1f ms |%s |\n", n, median(each), failed)
	}
	for _, d := range c.held {
		if d.err != nil {
			fmt.Fprintf(r.w, "| %d idle boxes of tier %s, each | - | failed: %s |\n", d.n, d.tier, oneLine(d.err))
			continue
		}
		fmt.Fprintf(r.w, "| %d idle boxes of tier %s, each | %.1f MiB | |\n", d.n, d.tier, float64(d.each)/(1<<20))
	}
	for _, tier := range []string{"process", "gvisor"} {
		var second, core []float64
		failed := ""
		for _, l := range c.lives {
			if l.tier != tier {
				continue
			}
			if l.err != nil {
				failed = " failed: " + oneLine(l.err)
				continue
			}
			second = append(second, float64(l.boxes)/l.took.Seconds())
			core = append(core, float64(l.boxes)/l.cpu.Seconds())
		}
		fmt.Fprintf(r.w, "| whole lives of tier %s by HTTP, cold | %.1f a second | %.1f for each second of a core%s |\n", tier, median(second), median(core), failed)
	}
}

// legend says what each peer is, and which are missing and why.
func (r report) legend(all []peer, missing map[string]string, failed map[string]string) {
	fmt.Fprint(r.w, "\n### The peers\n\n| peer | what it is |\n|---|---|\n")
	for _, p := range all {
		what := p.what
		if why := missing[p.name]; why != "" {
			what += " **Not measured: " + why + ".**"
		}
		if why := failed[p.name]; why != "" {
			what += " **" + why + ".**"
		}
		fmt.Fprintf(r.w, "| %s | %s |\n", p.name, what)
	}
}

func oneLine(err error) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(err.Error()), " "), "|", "/")
}
