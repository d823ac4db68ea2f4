//go:build !hostile && !hostilelong

package hostile

const (
	long     = false // whether cases marked long are run
	rounds   = 0     // how often all are run again in random order
	together = 0     // boxes at once in these rounds
)
