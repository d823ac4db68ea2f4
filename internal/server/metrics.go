package server

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Gauge is one number of the daemon, in the text format of Prometheus
// (https://prometheus.io/docs/instrumenting/exposition_formats/).
type Gauge struct {
	Name   string // sunaba_boxes
	Help   string // one line
	Labels []string
	Value  float64
	Total  bool // it only grows: a counter
}

// counts are those of requests. Their number is bounded by that of routes.
type counts struct {
	mu     sync.Mutex
	open   int
	by     map[outcome]int64
	times  map[string]*histogram
	bounds []float64
}

type outcome struct {
	route  string
	status int
}

type histogram struct {
	buckets []int64 // how many took no longer than the bound of the same index
	count   int64
	sum     float64
}

func newCounts() *counts {
	return &counts{
		by:     map[outcome]int64{},
		times:  map[string]*histogram{},
		bounds: []float64{0.001, 0.005, 0.02, 0.1, 0.5, 1, 5, 30, 120},
	}
}

func (c *counts) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open++
}

func (c *counts) end(route string, status int, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	c.by[outcome{route, status}]++
	h := c.times[route]
	if h == nil {
		h = &histogram{buckets: make([]int64, len(c.bounds))}
		c.times[route] = h
	}
	for i, bound := range c.bounds {
		if took.Seconds() <= bound {
			h.buckets[i]++
		}
	}
	h.count++
	h.sum += took.Seconds()
}

func (c *counts) write(w io.Writer, gauges []Gauge) {
	b := bufio.NewWriter(w)
	defer b.Flush()
	c.mu.Lock()
	defer c.mu.Unlock()
	head(b, "sunaba_http_requests_open", "Requests being served.", "gauge")
	fmt.Fprintf(b, "sunaba_http_requests_open %d\n", c.open)
	head(b, "sunaba_http_requests_total", "Requests by route and status; status 0 was cut before an answer.", "counter")
	for _, o := range slices.SortedFunc(maps.Keys(c.by), func(x, y outcome) int {
		if n := strings.Compare(x.route, y.route); n != 0 {
			return n
		}
		return x.status - y.status
	}) {
		fmt.Fprintf(b, "sunaba_http_requests_total{route=%s,status=\"%d\"} %d\n", label(o.route), o.status, c.by[o])
	}
	const name = "sunaba_http_request_seconds"
	head(b, name, "Time from a request's head to the end of its answer.", "histogram")
	for _, route := range slices.Sorted(maps.Keys(c.times)) {
		h := c.times[route]
		for i, bound := range c.bounds {
			fmt.Fprintf(b, "%s_bucket{route=%s,le=\"%g\"} %d\n", name, label(route), bound, h.buckets[i])
		}
		fmt.Fprintf(b, "%s_bucket{route=%s,le=\"+Inf\"} %d\n", name, label(route), h.count)
		fmt.Fprintf(b, "%s_sum{route=%s} %g\n", name, label(route), h.sum)
		fmt.Fprintf(b, "%s_count{route=%s} %d\n", name, label(route), h.count)
	}
	gauges = slices.Clone(gauges)
	slices.SortStableFunc(gauges, func(x, y Gauge) int { return strings.Compare(x.Name, y.Name) })
	for i, g := range gauges {
		if i == 0 || gauges[i-1].Name != g.Name {
			kind := "gauge"
			if g.Total {
				kind = "counter"
			}
			head(b, g.Name, g.Help, kind)
		}
		fmt.Fprintf(b, "%s%s %g\n", g.Name, labels(g.Labels), g.Value)
	}
}

func head(w io.Writer, name, help, kind string) {
	fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", name, strings.ReplaceAll(help, "\n", " "), name, kind)
}

// labels writes pairs of name and value.
func labels(pairs []string) string {
	var parts []string
	for i := 0; i+1 < len(pairs); i += 2 {
		parts = append(parts, pairs[i]+"="+label(pairs[i+1]))
	}
	if parts == nil {
		return ""
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// label quotes a value as the format wants it.
func label(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}
