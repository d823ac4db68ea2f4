package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/internal/settings"
)

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

// Nearest is [settings.Nearest].
func Nearest(s string, candidates []string) string { return settings.Nearest(s, candidates) }
