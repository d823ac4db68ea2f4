//go:build load

package load

import "time"

const (
	clients          = 200
	duration         = 5 * time.Minute
	killEvery        = 20 * time.Second
	killGatewayEvery = 7 * time.Second
	seed             = 2
)
