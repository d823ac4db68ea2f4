//go:build hostilelong

package hostile

const (
	long     = true
	rounds   = 20
	together = 4
)
