package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// quote shows a given value in a message: on one line, with nothing invisible,
// and not too long.
func quote(s string) string {
	const most = 64
	if utf8.RuneCountInString(s) > most {
		return strconv.Quote(string([]rune(s)[:most])) + "..."
	}
	return strconv.Quote(s)
}

// formatSize writes bytes in the largest unit that loses nothing.
func formatSize(n int64) string {
	if n == 0 {
		return "0"
	}
	for _, u := range []struct {
		shift int
		name  string
	}{{40, "t"}, {30, "g"}, {20, "m"}, {10, "k"}} {
		if n&(1<<u.shift-1) == 0 {
			return fmt.Sprintf("%d%s", n>>u.shift, u.name)
		}
	}
	return strconv.FormatInt(n, 10)
}

// formatMilli writes thousandths as a decimal number.
func formatMilli(n int64) string {
	s := fmt.Sprintf("%d.%03d", n/1000, n%1000)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

func formatSeconds(n int64) string {
	return strconv.FormatFloat(time.Duration(n).Seconds(), 'f', -1, 64)
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
