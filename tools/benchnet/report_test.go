package main

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func TestARoundInWhichOneFailedIsInNoRatio(t *testing.T) {
	ok := func(mb float64) turn { return turn{Connects: []float64{1}, Download: mb} }
	p := &peer{turns: []turn{ok(10), {}, ok(30), ok(8)}}
	q := &peer{turns: []turn{ok(20), ok(20), {}, ok(2)}}
	if got := ratios(p, q, download); len(got) != 2 || got[0] != 0.5 || got[1] != 4 {
		t.Errorf("%v, want those of the first and the last round", got)
	}
	if got := p.median(download); got != 10 {
		t.Errorf("the median is %v: one of a turn that failed is in it", got)
	}
	if got := median(nil); !math.IsNaN(got) {
		t.Errorf("the median of nothing is %v", got)
	}
}

func TestWhatWasNotMeasuredIsNeitherMetNorLeftOut(t *testing.T) {
	r := result{options: options{quiet: 10, active: 50}, quietErr: errors.New("no links"), active: held{0, 50 * mostActive}}
	r.peers = []*peer{{name: nameSquid, mode: modeSplice, absent: errors.New("it is not installed")}}
	var b strings.Builder
	r.targets(&b)
	if met, missing := strings.Count(b.String(), "| met |"), strings.Count(b.String(), "| not measured |"); met != 1 || missing != 7 {
		t.Errorf("%d are met, %d not measured:\n%s", met, missing, &b)
	}
	b.Reset()
	r.active.after++
	r.targets(&b)
	if !strings.Contains(b.String(), "| missed |") {
		t.Errorf("a byte too much is not missed:\n%s", &b)
	}
	b.Reset()
	r.rest(&b)
	if !strings.Contains(b.String(), "Not measured: no box, squid, splice: it is not installed") {
		t.Errorf("what is absent is not named:\n%s", &b)
	}
}
