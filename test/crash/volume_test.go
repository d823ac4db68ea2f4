package crash

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/test/harness"
)

// volume is one that a caller asked for.
type volume struct {
	there, doubt bool // as told last; no answer came
	lines, maybe int  // of its log: at least, and at most so many more
}

const volumeBytes = 1 << 20

// volume makes a volume, and deletes it or has a run write on it.
func (w *world) volume(k *known, r *rand.Rand) error {
	w.mu.Lock()
	w.serial++
	name, v := fmt.Sprint("v", w.serial), &volume{doubt: true}
	w.volumes[name] = v
	w.mu.Unlock()
	answered := func(there bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		v.there, v.doubt = there, false
	}
	status, err := w.call("POST", "/v1/volumes", map[string]any{"name": name, "bytes": volumeBytes}, nil)
	if status == http.StatusNotImplemented {
		answered(false)
		return nil
	}
	if err != nil {
		return err
	}
	answered(true)
	if r.IntN(3) == 0 {
		v.maybe++
		n, err := w.onVolume(k.tier, name, "echo line >> /data/log; sync /data/log")
		if err != nil {
			return err
		}
		if v.lines, v.maybe = v.lines+1, v.maybe-1; n != v.lines {
			w.t.Errorf("a volume has %d lines, not %d", n, v.lines)
		}
		if r.IntN(2) == 0 {
			return nil
		}
	}
	v.doubt = true
	if _, err := w.call("DELETE", "/v1/volumes/"+name, nil, nil); err != nil {
		return err
	}
	answered(false)
	return nil
}

// onVolume runs a line in a box of its own with a volume, and returns how many lines
// are in its log then.
func (w *world) onVolume(tier, name, line string) (int, error) {
	s := sandbox(tier)
	s["volumes"] = []any{map[string]any{"name": name, "container": "/data"}}
	var rep struct {
		Stdout string `json:"stdout"`
	}
	code := line + "; cat /data/log 2>/dev/null | wc -l"
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		status, err := w.call("POST", "/v1/execute", map[string]any{"language": "bash", "code": code, "sandbox": s}, &rep)
		if status == http.StatusConflict && strings.Contains(err.Error(), "no box that is known here") && time.Now().Before(end) {
			continue // the kernel still writes out what a run had that was killed
		}
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimSpace(rep.Stdout))
	}
}

// allVolumes holds the list of them against what callers know, the folder against the
// list, and what is on those that stayed against what was written. Then all go.
func (w *world) allVolumes() {
	w.t.Helper()
	if w.d.User != harness.Root {
		return
	}
	var all struct {
		Volumes []struct{ Name string } `json:"volumes"`
	}
	w.d.Must("GET", "/v1/volumes", nil, &all)
	there := map[string]bool{}
	for _, v := range all.Volumes {
		there[v.Name] = true
		if w.volumes[v.Name] == nil {
			w.t.Errorf("volume %s is nobody's", v.Name)
		}
	}
	entries, err := os.ReadDir(filepath.Join(harness.State(w.t, w.d.User), "volumes"))
	if err != nil {
		w.t.Error(err)
	}
	for _, e := range entries {
		if strings.Contains(e.Name(), ".") {
			w.t.Errorf("a volume that was not finished is left: %s", e.Name())
		}
	}
	if len(entries) != len(there) {
		w.t.Errorf("%d volumes are in the folder, %d are told of", len(entries), len(there))
	}
	for name, v := range w.volumes {
		if !v.doubt && v.there != there[name] {
			w.t.Errorf("volume %s: it is there: %v, its owner knows: %v", name, there[name], v.there)
		}
		if there[name] && v.lines+v.maybe > 0 {
			n, err := w.onVolume("process", name, "true")
			if err != nil || n < v.lines || n > v.lines+v.maybe {
				w.t.Errorf("volume %s has %d lines (%v), %d to %d were written", name, n, err, v.lines, v.lines+v.maybe)
			}
		}
		if there[name] {
			w.d.Must("DELETE", "/v1/volumes/"+name, nil, nil)
		}
	}
	w.volumes = map[string]*volume{}
}
