package main

import (
	"math"
	"slices"
)

// quantile returns the q-th quantile of xs, 0 < q <= 1, as the smallest value
// that at least that share of all values does not exceed (nearest rank): it is
// always a value that was measured. It is NaN without values.
func quantile(xs []float64, q float64) float64 {
	if len(xs) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(xs))
	rank := int(math.Ceil(q*float64(len(s)))) - 1
	return s[min(max(rank, 0), len(s)-1)]
}

// median returns the middle value, or the mean of the two in the middle. It is
// NaN without values.
func median(xs []float64) float64 {
	n := len(xs)
	if n == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(xs))
	if n%2 == 1 {
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}

// ratios divides a by b round by round. A round that one of them lacks is left
// out: the machine's mood in one round says nothing about another.
func ratios(a, b map[int]float64) []float64 {
	var out []float64
	for round, x := range a {
		if y, ok := b[round]; ok && y > 0 {
			out = append(out, x/y)
		}
	}
	return out
}
