package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNoThreadOfACellHasABoundingSet(t *testing.T) {
	for _, way := range []string{"with a first step", "without one"} {
		t.Run(way, func(t *testing.T) {
			tier := newTier(t)
			if way == "without one" {
				tier.first = nil
			} else if tier.first == nil {
				t.Skip("no first step for this architecture")
			}
			b, err := tier.Create(t.Context(), spec())
			if err != nil {
				t.Fatal(err)
			}
			defer gone(t, tier, b)
			pid := b.(*pbox).Child.Pid()
			threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
			if err != nil || len(threads) == 0 {
				t.Fatalf("the cell has threads %v (%v)", threads, err)
			}
			for _, name := range threads {
				status, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(string(status), "\nCapBnd:\t0000000000000000\n") {
					t.Errorf("%s:\n%s", name, status)
				}
			}
			if !tier.Root() {
				return // the cell is not dumpable: only root may look at the rest
			}
			exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
			if err != nil || strings.Contains(exe, "first") {
				t.Errorf("the cell is %q (%v)", exe, err)
			}
			fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
			if err != nil {
				t.Fatal(err)
			}
			for _, fd := range fds {
				if to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name())); strings.Contains(to, "memfd") {
					t.Errorf("descriptor %s of the cell is %s", fd.Name(), to)
				}
			}
		})
	}
}
