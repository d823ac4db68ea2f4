package main

import (
	"math"
	"slices"
	"testing"
)

func TestMedianIsTheMiddle(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want float64
	}{
		{[]float64{7}, 7},
		{[]float64{9, 1, 5}, 5},
		{[]float64{4, 1, 3, 2}, 2.5},
		{[]float64{1, 1, 1, 1000}, 1},
	} {
		if got := median(c.in); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.in, got, c.want)
		}
	}
	if !math.IsNaN(median(nil)) {
		t.Error("nothing has a median")
	}
}

func TestAQuantileIsAMeasuredValue(t *testing.T) {
	var hundred []float64
	for i := range 100 {
		hundred = append(hundred, float64(100-i)) // 100 down to 1
	}
	for _, c := range []struct {
		in   []float64
		q    float64
		want float64
	}{
		{hundred, 0.95, 95},
		{hundred, 1, 100},
		{hundred, 0.001, 1},
		{hundred[:20], 0.95, 99}, // the 19th of 81 to 100
		{[]float64{3, 1, 2}, 0.95, 3},
		{[]float64{3}, 0.5, 3},
	} {
		if got := quantile(c.in, c.q); got != c.want {
			t.Errorf("quantile %v of %d values is %v, want %v", c.q, len(c.in), got, c.want)
		}
	}
	if !math.IsNaN(quantile(nil, 0.95)) {
		t.Error("nothing has a quantile")
	}
}

func TestSortingLeavesTheMeasurementsAlone(t *testing.T) {
	in := []float64{3, 1, 2}
	median(in)
	quantile(in, 0.5)
	if !slices.Equal(in, []float64{3, 1, 2}) {
		t.Errorf("the values are now %v", in)
	}
}

// The ratio of two peers is taken within each round. With the load of rounds
// drifting by a factor of ten, medians of all rounds would say something else.
func TestRatiosAreTakenWithinARound(t *testing.T) {
	slow := map[int]float64{0: 20, 1: 200, 2: 2000, 3: 5, 4: 8}
	base := map[int]float64{0: 10, 1: 100, 2: 1000, 4: 0, 5: 1}
	got := slices.Sorted(slices.Values(ratios(slow, base)))
	if !slices.Equal(got, []float64{2, 2, 2}) {
		t.Errorf("ratios are %v: rounds 0 to 2 have both, 3 and 5 only one, 4 was not measured", got)
	}
	if got := ratios(nil, base); len(got) != 0 {
		t.Errorf("ratios of nothing are %v", got)
	}
}
