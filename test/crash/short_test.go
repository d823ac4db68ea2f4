//go:build !crash

package crash

const (
	eachPoint   = 1  // kills at each moment
	randomKills = 10 // of each kind of user together
)
