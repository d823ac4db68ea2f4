package field

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/test/harness"
)

const templateFile = `templates:
  - name: kept
    size: 1
    sandbox: &box {runtime: gvisor, image: base, resource_limits: {memory: 192m, disk: 16m, max_files: 300, max_processes: 20, timeout_sec: 60}}
    warm_up: &code
      - {language: python, code: "import random, uuid; before = 41"}
      - {language: bash, code: "BEFORE=41"}
  - {name: asked, sandbox: *box, warm_up: *code}
`

// A box of a template has what was run beforehand, numbers of its own, and every limit
// in force, whether it was kept warm or is made when it is asked for.
func TestABoxOfATemplateGoesOnWithItsOwnNumbersAndLimits(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the limits of an ordinary user's boxes are judged in package limits")
	}
	harness.NothingLeft(t)
	file := filepath.Join(t.TempDir(), "templates.yaml")
	if err := os.WriteFile(file, []byte(templateFile), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &client{Server: harness.StartServer(t, harness.Root, "--templates", file), t: t, tier: "gvisor"}
	var numbers []string
	for name, start := range map[string]string{"kept": "warm", "asked": "restored"} {
		for range 2 {
			var b struct {
				ID    string `json:"id"`
				Start string `json:"start"`
			}
			within(t, "template "+name, func() bool {
				status, err := c.Call(context.Background(), "POST", "/v1/boxes", map[string]any{"template": name}, &b)
				if status != 503 && err != nil {
					t.Fatal(err)
				}
				if err != nil || b.Start == start {
					return err == nil
				}
				c.Must("DELETE", "/v1/boxes/"+b.ID, nil, nil)
				return false
			})
			path := "/v1/boxes/" + b.ID
			said := c.code(path, "print(before + 1, random.random(), uuid.uuid4(), open('/proc/sys/kernel/random/boot_id').read())")
			if len(said) != 4 || said[0] != "42" {
				t.Fatalf("%s: %q", name, said)
			}
			numbers = append(numbers, said[1:]...)
			c.bounded(path)
			c.Must("DELETE", path, nil, nil)
		}
	}
	slices.Sort(numbers)
	if n := len(slices.Compact(slices.Clone(numbers))); n != 12 {
		t.Errorf("%d different numbers of 12: %q", n, numbers)
	}
}

// bounded uses up what a box has.
func (c *client) bounded(path string) {
	c.t.Helper()
	for _, try := range []struct{ limit, shell, has string }{
		{"disk", `dd if=/dev/zero of=big bs=1M count=32 2>/dev/null; stat -c %s big; rm big`, "16777216"},
		{"max_files", `python3 -c "
n = 0
try:
    while n < 1000:
        open('f%d' % n, 'w').close()
        n += 1
except OSError as e: print('few' if n <= 300 else n, e.strerror)"; rm -f f*`, "few No space left"},
		{"max_processes", `python3 -c "
import os, time
n = 0
try:
    while n < 100:
        if os.fork() == 0: time.sleep(60)
        n += 1
except BlockingIOError: print('few' if n < 20 else n)
os.killpg(0, 9)" & wait`, "few"},
		{"memory", `python3 -c "
a = []
while len(a) < 60: a.append(bytearray(b'x') * (10 << 20))
print('all')"; echo ended`, "ended"},
	} {
		e := c.exec(path, try.shell, map[string]any{"timeout_sec": 100})
		if try.limit == "memory" && strings.Contains(e.Stdout, "all") || try.limit != "memory" && !strings.Contains(e.Stdout, try.has) {
			c.t.Errorf("%s: %+v", try.limit, e)
		}
	}
	b := c.inspect(path)
	for _, limit := range []string{"disk", "max_files", "max_processes", "memory"} {
		if !slices.ContainsFunc(b.Limits, func(h struct {
			Limit string `json:"limit"`
		}) bool {
			return h.Limit == limit
		}) {
			c.t.Errorf("limit %s was not touched: %+v", limit, b.Limits)
		}
	}
	if b.Phase != "running" {
		c.t.Errorf("the box is %s", b.Phase)
	}
}
