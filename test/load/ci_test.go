//go:build !load

package load

import "time"

const (
	clients          = 50
	duration         = 30 * time.Second
	killEvery        = 10 * time.Second
	killGatewayEvery = 5 * time.Second
	seed             = 1
)
