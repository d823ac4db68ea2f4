//go:build hostile || hostilelong

package hostile

const long = true
