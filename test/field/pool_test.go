package field

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// pooled is a request for a warm box, which there is again after a while.
func (c *client) pooled(t *testing.T, cpu string) (id string, start, why string) {
	t.Helper()
	var b struct {
		ID     string `json:"id"`
		Start  string `json:"start"`
		Reason string `json:"start_reason"`
	}
	c.Must("POST", "/v1/boxes", map[string]any{"sandbox": map[string]any{
		"runtime": c.tier, "trust": "trusted", "image": "base",
		"resource_limits": map[string]any{"memory": "128m", "disk": "32m", "cpu": cpu}, "env": map[string]any{"WHOSE": "mine"},
		"lifecycle": map[string]any{"reuse": true, "pool_size": 2},
	}}, &b)
	return b.ID, b.Start, b.Reason
}

// A warm box is as a cold one to who gets it, is never given twice, and does not
// outlive a daemon that is killed.
func TestAWarmBoxIsTheCallersAloneAndNoneSurvivesAKill(t *testing.T) {
	inTurn(t, func(c *client) {
		seen := map[string]bool{}
		warm := func() string {
			var id, start, why string
			within(c.t, "a warm box", func() bool {
				id, start, why = c.pooled(c.t, "0.5")
				if start == "warm" {
					return true
				}
				if why == "" {
					c.t.Error("a cold start without a reason")
				}
				c.Must("DELETE", "/v1/boxes/"+id, nil, nil)
				time.Sleep(200 * time.Millisecond)
				return false
			})
			if seen[id] {
				c.t.Errorf("box %s was handed out twice", id)
			}
			seen[id] = true
			return "/v1/boxes/" + id
		}
		for n := range 3 {
			b := warm()
			e := c.exec(b, `ls -A ~ . ; echo $WHOSE; echo `+fmt.Sprint(n)+` > mine; cat mine`, nil)
			if e.Stdout == "" || e.ExitCode == nil || *e.ExitCode != 0 || !strings.HasSuffix(e.Stdout, fmt.Sprintf("mine\n%d\n", n)) || strings.Count(e.Stdout, "mine") != 1 {
				c.t.Errorf("%+v", e)
			}
			var i struct {
				Policy box.Policy `json:"policy"`
			}
			c.Must("GET", b, nil, &i)
			if i.Policy.Limits.CPU != 0.5 {
				c.t.Errorf("cpu %v", i.Policy.Limits.CPU)
			}
			if n == 0 {
				c.Must("DELETE", b, nil, nil)
				if code, _ := c.Call(context.Background(), "GET", b+"/files?path=/workspace/mine", nil, nil); code != 404 {
					c.t.Errorf("a used box answers %d", code)
				}
				continue
			}
			c.t.Cleanup(func() { c.Must("DELETE", b, nil, nil) })
			c.Kill()
			c.Start() // the harness finds what is left on the host
			if e := c.exec(b, "cat mine", nil); e.Stdout != fmt.Sprintln(n) {
				c.t.Errorf("after a restart: %+v", e)
			}
		}
	})
}
