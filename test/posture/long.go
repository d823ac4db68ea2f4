//go:build long

package posture

// every says that all of a long table is tried: go test -tags long ./test/posture
const every = true
