//go:build !crash

package crash

const (
	eachPoint   = 1  // kills at each moment
	randomKills = 10 // of each kind of user together

	// Whether boxes have networks, and use them, around all moments, or around those of
	// networks alone.
	mixNetworks = false
)

// gatewayDies reports whether the gateway is killed at a moment, too.
func gatewayDies(point string) bool {
	return point == "keeper.attached" || point == "keeper.rules-kept"
}
