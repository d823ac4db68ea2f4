//go:build hostile && !hostilelong

package hostile

const (
	long     = true
	rounds   = 0
	together = 0
)
