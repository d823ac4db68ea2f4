//go:build !hostile && !hostilelong

package hostile

const long = false // whether cases marked long are run
