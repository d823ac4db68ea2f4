package rest_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/internal/server/servertest"
)

// Streams that are cut, of every kind, leave no goroutine behind.
func TestCutStreamsLeaveNothing(t *testing.T) {
	d := serve(t)
	s := d.stage()
	cut := func() {
		for _, a := range []ask{
			{method: "POST", path: at(s.id, "/exec"), body: map[string]any{"command": words("flood 100000000")}},
			{method: "POST", path: at(s.id, "/exec"), body: map[string]any{"command": words("wait"), "stdin_data": "x"}},
			{method: "GET", path: at(s.id, "/processes/%d/output", s.alive)},
			{method: "GET", path: at(s.id, "/files/watch?path=/workspace")},
			{method: "POST", path: at(s.id, "/contexts/%s/run", s.context), body: map[string]any{"code": "loop"}},
			{method: "GET", path: at(s.id, "/ports/7"), header: map[string]string{"Connection": "Upgrade", "Upgrade": "tcp"}},
		} {
			a.key = servertest.Key
			ctx, leave := context.WithCancel(t.Context())
			res := d.open(ctx, a)
			leave()
			res.Body.Close()
		}
		d.client.CloseIdleConnections()
	}
	cut()
	until(t, "only the first program lives", longest, func() bool { return d.service.Live() == 1 })
	time.Sleep(200 * time.Millisecond) // what ends, ends
	before := runtime.NumGoroutine()
	for range 10 {
		cut()
	}
	until(t, "no goroutine is left", longest, func() bool { return runtime.NumGoroutine() <= before+2 && d.service.Live() == 1 })
}
