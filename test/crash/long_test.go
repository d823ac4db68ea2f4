//go:build crash

package crash

import "strings"

const (
	eachPoint   = 3
	randomKills = 100

	mixNetworks = true
)

// gatewayDies reports whether the gateway is killed at a moment, too.
func gatewayDies(point string) bool {
	return strings.HasPrefix(point, "keeper.") || point == "engine.network-written"
}
