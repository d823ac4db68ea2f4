//go:build !long

package posture

// every says that all of a long table is tried; CI tries a part.
const every = false
