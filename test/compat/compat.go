// Package compat checks that real software runs in a box as it does outside:
// programs people use, in work_test.go, and Debian's build of CPython's test
// suite, test by test against a run outside, in cpython_test.go.
//
// The programs are scripts in testdata/work. Each checks itself and prints ok
// as its last line, so it can also be tried by hand, in a box or outside.
//
// `go test` runs what CI has time for. The build tag compat, which is
// `make compat`, adds every user with every image and the long list of modules.
package compat
