//go:build cgo

package main

// A plain `go build` on a machine with a C compiler uses cgo, and would make a
// dynamic binary. The sentry re-executes itself in an empty root, where there
// is no loader; so that such a build works too, it is linked statically. There
// is no C in this program. Builds without cgo, which `make` does, start faster
// and drop their rights on all threads at once.

// #cgo LDFLAGS: -static
import "C"
