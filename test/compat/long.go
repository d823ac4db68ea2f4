//go:build compat

package compat

const long = true
