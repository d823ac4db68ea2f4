package api

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/client"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// TestREST runs the cases through the daemon's HTTP interface, on both tiers.
func TestREST(t *testing.T) {
	harness.NothingLeft(t)
	onREST(t, harness.StartServer(t, harness.Users()[0]), func(t *testing.T, _ box.ID, b Box) Place {
		return Place{Box: b, Dir: "/workspace", Walls: true}
	})
}

// onREST runs the cases in boxes of a daemon's, each at the place that is made of
// it.
func onREST(t *testing.T, d *harness.Server, place func(*testing.T, box.ID, Box) Place) {
	c, err := client.New(d.URL, d.Key)
	if err != nil {
		t.Fatal(err)
	}
	for _, tier := range []box.TierName{box.TierProcess, box.TierGvisor} {
		t.Run(string(tier), func(t *testing.T) {
			Run(t, func(t *testing.T) Place {
				sandbox, err := json.Marshal(map[string]any{
					"runtime": tier, "trust": "trusted",
					"resource_limits": map[string]any{"memory": "256m", "disk": "128m", "max_processes": 64},
				})
				if err != nil {
					t.Fatal(err)
				}
				b, err := c.Create(t.Context(), box.Caller{}, box.CreateRequest{Sandbox: sandbox})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					// A box that is not gone in time is asked for again, as any client does.
					for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
						err := c.Destroy(context.Background(), box.Caller{}, b.ID)
						if err == nil {
							return
						}
						if box.KindOf(err) != box.Unavailable || time.Now().After(end) {
							t.Error(err)
							return
						}
						t.Logf("asked again: %v", err)
					}
				})
				g, err := c.Guest(t.Context(), box.Caller{}, b.ID, box.ScopeAdmin)
				if err != nil {
					t.Fatal(err)
				}
				return place(t, b.ID, Over(g))
			})
		})
	}
}
