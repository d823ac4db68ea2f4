package gate

import (
	"testing"

	"pgregory.net/rapid"
)

// Whatever boxes take and give, one that has less than its part gets a place, and all
// together never have more than there are.
func TestRoomIsForWhoHasLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "boxes")
		r := &room{most: rapid.IntRange(4*n, 64).Draw(t, "most")}
		shares := make([]*share, n)
		for i := range shares {
			shares[i] = r.enter()
		}
		have := make([]int, n)
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				i := rapid.IntRange(0, n-1).Draw(t, "box")
				ok := shares[i].Take()
				if !ok && have[i] < r.most/2/n {
					t.Fatalf("box %d of %d has %d and gets none of %d", i, n, have[i], r.most)
				}
				if ok {
					have[i]++
				}
			},
			"give": func(t *rapid.T) {
				i := rapid.IntRange(0, n-1).Draw(t, "box")
				if have[i] > 0 {
					shares[i].Give()
					have[i]--
				}
			},
			"": func(t *rapid.T) {
				sum := 0
				for _, h := range have {
					sum += h
				}
				if sum > r.most || sum != r.used {
					t.Fatalf("%d are taken of %d, counted %d", sum, r.most, r.used)
				}
			},
		})
	})
}
