package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sunaba-dev/sunaba/test/harness"
)

func TestInputsMayBeLargerThanTheMemory(t *testing.T) {
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		harness.NothingLeft(t)
		dir := harness.Dir(t, u)
		cases := []struct {
			memory, size string
			bytes        int64
		}{{"512m", "314572800", 300 << 20}, {"64m", "629145600", 600 << 20}}
		if u == harness.Ordinary && len(harness.Users()) > 1 {
			t.Log("600 MiB in 64 MiB is left to root, whose control group would tell")
			cases = cases[:1]
		}
		for _, c := range cases {
			file := filepath.Join(dir, "big")
			f, err := os.Create(file) // sparse here, not in the box
			if err != nil {
				t.Fatal(err)
			}
			f.Truncate(c.bytes)
			f.Close()
			r := harness.Run(t, u, "run", "--memory", c.memory, "--copy", file, "--", "wc", "-c", "big")
			if r.Code != 0 || r.Stdout != c.size+" big\n" {
				t.Errorf("%s in %s: exit code %d, %q\n%s", c.size, c.memory, r.Code, r.Stdout, r.Stderr)
			}
		}
	})
}
