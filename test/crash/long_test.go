//go:build crash

package crash

const (
	eachPoint   = 3
	randomKills = 100
)
