package settings

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Quote shows a given value in a message: on one line, with nothing invisible,
// and not too long.
func Quote(s string) string {
	const most = 64
	if utf8.RuneCountInString(s) > most {
		return strconv.Quote(string([]rune(s)[:most])) + "..."
	}
	return strconv.Quote(s)
}

// Plain leaves a word as it is and quotes everything else.
func Plain(s string) string {
	if s != "" && len(s) <= 64 && strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789_-.") == "" {
		return s
	}
	return Quote(s)
}

// Nearest returns the candidate that s was most likely meant to be, or "".
func Nearest(s string, candidates []string) string {
	best, bestDistance := "", max(2, len(s)/3+1)
	for _, c := range candidates {
		if d := distance(strings.ToLower(s), c); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance counts the edits from a to b, in bytes: insert, delete, replace, and
// swap of two neighbours.
func distance(a, b string) int {
	if len(a) > 64 {
		return len(a) // no key is near it
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
