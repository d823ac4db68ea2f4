//go:build compat

package compat

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sunaba-dev/sunaba/test/harness"
)

// TestSpeedOfFiles measures and judges nothing; the figures go to
// docs/compat.md by hand. Of three rounds in turn the best counts.
func TestSpeedOfFiles(t *testing.T) {
	script, err := filepath.Abs("testdata/speed.py")
	if err != nil {
		t.Fatal(err)
	}
	var order []string // of the works
	best := map[string]map[string]float64{}
	note := func(where, figures string) {
		for line := range strings.Lines(figures) {
			work, text, _ := strings.Cut(strings.TrimSpace(line), "\t")
			seconds, err := strconv.ParseFloat(text, 64)
			if err != nil {
				t.Errorf("%s: %q", where, line)
				continue
			}
			if best[work] == nil {
				best[work], order = map[string]float64{}, append(order, work)
			}
			if old, ok := best[work][where]; !ok || seconds < old {
				best[work][where] = seconds
			}
		}
	}
	u := harness.Users()[0]
	process := []string{"--trust", "trusted", "--memory", "1g"}
	inBox := func(where, code string, flags ...string) {
		args := append([]string{"run", "--cpu", "2", "--timeout", "600s", "--copy", script}, flags...)
		r := harness.Run(t, u, append(args, "--", "sh", "-ec", code)...)
		if r.Code != 0 {
			t.Errorf("%s: exit code %d\n%s", where, r.Code, r.Stderr)
		}
		note(where, r.Stdout)
	}
	for range 3 {
		dir := scratch(t, harness.Ordinary)
		cmd := exec.Command(python, script)
		cmd.Dir = dir
		cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + dir, "LANG=C.UTF-8"}
		if os.Geteuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: harness.OrdinaryID, Gid: harness.OrdinaryID}}
		}
		b, err := cmd.Output()
		if err != nil {
			t.Error(err)
		}
		note("outside", string(b))
		inBox("image host", "python3 speed.py", "--image", "host")
		inBox("image base", "python3 speed.py", "--image", "base")
		inBox("writable mount", "cd /data; python3 /workspace/speed.py", "--mount", scratch(t, u)+":/data:rw")
		inBox("process", "python3 speed.py", process...)
		inBox("process, writable mount", "cd /data; python3 /workspace/speed.py", append([]string{"--mount", scratch(t, u) + ":/data:rw"}, process...)...)
	}
	for _, work := range order {
		b := best[work]
		t.Logf("| %s | %.2f s | %.2f s | %.2f s | %.2f s | %.2f s | %.2f s |", work, b["outside"], b["image host"], b["image base"], b["writable mount"],
			b["process"], b["process, writable mount"])
	}
}
