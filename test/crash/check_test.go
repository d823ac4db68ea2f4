package crash

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sunaba-dev/sunaba/test/harness"
)

type row struct {
	ID     string            `json:"id"`
	Phase  string            `json:"phase"`
	Reason string            `json:"reason"`
	Detail string            `json:"detail"`
	Labels map[string]string `json:"metadata"`
}

// rows are the boxes that the daemon tells of.
func (w *world) rows(destroyed bool) map[string]row {
	w.t.Helper()
	all := map[string]row{}
	for cursor := ""; ; {
		var page struct {
			Boxes []row  `json:"boxes"`
			Next  string `json:"next"`
		}
		w.d.Must("GET", fmt.Sprintf("/v1/boxes?limit=1000&destroyed=%v&cursor=%s", destroyed, cursor), nil, &page)
		for _, r := range page.Boxes {
			if _, twice := all[r.ID]; twice {
				w.t.Errorf("box %s is told of twice", r.ID)
			}
			all[r.ID] = r
		}
		if cursor = page.Next; cursor == "" {
			return all
		}
	}
}

// check holds a fresh daemon against what callers were told.
func (w *world) check() {
	w.t.Helper()
	rows := w.rows(true)
	for id := range w.past {
		delete(rows, id)
	}
	for id, r := range rows {
		// The daemon died, not its boxes: none was lost.
		if r.Phase == "destroyed" && r.Reason != "asked" && r.Reason != "failed" {
			w.t.Errorf("box %s was destroyed: %s %s", id, r.Reason, r.Detail)
		}
		if w.gone[id] && r.Phase != "destroyed" {
			w.t.Errorf("box %s was told as destroyed, and is %s", id, r.Phase)
		}
	}
	for _, k := range slices.Clone(w.boxes) {
		r, there := rows[k.id]
		switch {
		case k.doubt && there && r.Phase == "destroyed" && r.Reason == "asked":
			w.forget(k)
		case !there || r.Phase != "running" && r.Phase != "paused" || k.phase != "" && r.Phase != k.phase:
			w.t.Errorf("box %s was told as %q, and is %+v", k.id, k.phase, r)
		}
	}
	w.strayForks(rows)
	w.snapshots()
	w.allVolumes()
	// Whoever got no answer asks again, and gets one box for one request. Who asked
	// for a warm one looks into the list first: as soon as it asks again, there are
	// boxes on the host that no row knows.
	warm := map[*wanted]string{}
	for _, r := range w.pending {
		if r.reuse {
			warm[r] = running(rows, r.key)
			if id := warm[r]; id != "" {
				w.welcome(id, r)
			}
			continue
		}
		id, err := w.ask(r)
		if err != nil {
			w.t.Errorf("asked again: %v", err)
			continue
		}
		w.welcome(id, r)
	}
	w.pending = nil
	for _, k := range slices.Clone(w.boxes) {
		if k.doubt { // in time it is as its owner wanted it
			if err := w.destroy(k); err != nil {
				w.t.Errorf("destroyed again: %v", err)
			}
		}
	}
	w.reality()
	w.all(w.inside)
	for r, id := range warm {
		switch again, err := w.ask(r); {
		case err != nil:
			w.t.Errorf("asked again: %v", err)
		case id == "":
			w.inside(w.welcome(again, r))
		case again != id:
			w.t.Errorf("one request has two boxes, %s and %s", id, again)
		}
	}
	w.links()
	for _, wrong := range w.arrived() {
		w.t.Error(wrong)
	}
}

// all does something with each box, at once.
func (w *world) all(do func(*known)) {
	var each sync.WaitGroup
	for _, k := range slices.Clone(w.boxes) {
		each.Go(func() { do(k) })
	}
	each.Wait()
}

// running is the box that a request has, if it has one.
func running(rows map[string]row, request string) string {
	for id, r := range rows {
		if r.Labels["request"] == request && r.Phase == "running" {
			return id
		}
	}
	return ""
}

// reality holds the host against the rows.
func (w *world) reality() {
	w.t.Helper()
	var live []string
	loops := 0
	users := map[uint32]string{}
	for id := range w.rows(false) {
		live = append(live, id)
		if other, twice := users[harness.HostUser(id)]; twice {
			w.t.Errorf("boxes %s and %s have one host user", id, other)
		}
		users[harness.HostUser(id)] = id
	}
	for _, k := range w.boxes {
		if !slices.Contains(live, k.id) {
			w.t.Errorf("box %s is in no list", k.id)
		}
		if k.tier == "process" && w.d.User == harness.Root {
			loops++
		}
	}
	if len(live) != len(w.boxes) {
		w.t.Errorf("the daemon tells of %d boxes, its callers know %d", len(live), len(w.boxes))
	}
	for _, s := range harness.Stray(w.t, w.d.User, w.d.Pid(), live, loops) {
		w.t.Errorf("left behind: %s", s)
	}
}

// inside uses a box, and looks at what is in it.
func (w *world) inside(k *known) {
	w.t.Helper()
	var e ended
	look := func() (int, error) {
		return w.call("POST", path(k)+"/exec", map[string]any{"shell": "touch log; wc -l < log; exit 7"}, &e)
	}
	if _, err := again(look); err != nil || e.Code == nil || *e.Code != 7 {
		w.t.Errorf("box %s (%s) does not work: %v, %+v", k.id, k.tier, err, e)
		return
	}
	k.phase = "running"
	n, err := strconv.Atoi(strings.TrimSpace(e.Stdout))
	if err != nil || n < k.lines || n > k.lines+k.maybe {
		w.t.Errorf("box %s has %d lines, %d to %d were written", k.id, n, k.lines, k.lines+k.maybe)
	}
	// A program whose call had no answer may write its line later, on a busy host.
	k.lines, k.maybe = n, k.maybe-(n-k.lines)
	for pid, p := range k.programs {
		out, end := w.output(k, pid, "")
		if end == nil || end.Code == nil || *end.Code != p.code || out != p.out+"\n" {
			w.t.Errorf("program %d of %s (%s): %q %+v, not %+v", pid, k.id, k.tier, out, end, p)
		}
		delete(k.programs, pid)
	}
	if k.screen != 0 {
		err := w.typeIn(k, nil)
		line := fmt.Sprint("typed-", k.typed)
		if err != nil {
			w.t.Errorf("the terminal of %s: %v", k.id, err)
		} else if out, _ := w.output(k, k.screen, line); strings.Count(out, line+"\r\n") != 1 {
			w.t.Errorf("the terminal of %s (%s) does not go on: %q", k.id, k.tier, out)
		}
	}
	if k.net != nil && w.connect {
		if err := w.connects(k); err != nil {
			w.t.Error(err)
		}
	}
	var self row
	if status, err := w.call("GET", path(k), nil, &self); err != nil || status != http.StatusOK || self.Phase != "running" {
		w.t.Errorf("box %s after a call: %+v, %v", k.id, self, err)
	}
}

// strayForks destroys copies of which nobody was told: their owner sees them in
// the list.
func (w *world) strayForks(rows map[string]row) {
	for id, r := range rows {
		mine := slices.ContainsFunc(w.boxes, func(k *known) bool { return k.id == id })
		if r.Labels["fork"] == "yes" && r.Phase != "destroyed" && !mine {
			w.d.Must("DELETE", "/v1/boxes/"+id, nil, nil)
			w.gone[id] = true
		}
	}
}

// snapshots holds the list of them against what callers know, and the folder
// against the list.
func (w *world) snapshots() {
	there := map[string]bool{}
	for cursor := ""; ; {
		var page struct {
			Snapshots []row  `json:"snapshots"`
			Next      string `json:"next"`
		}
		w.d.Must("GET", "/v1/snapshots?limit=1000&cursor="+cursor, nil, &page)
		for _, s := range page.Snapshots {
			there[s.ID] = true
			var one row
			w.d.Must("GET", "/v1/snapshots/"+s.ID, nil, &one)
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	for id, kept := range w.kept {
		if there[id] != kept {
			w.t.Errorf("snapshot %s: it is there: %v, its owner knows: %v", id, there[id], kept)
		}
	}
	manifests := 0
	entries, err := os.ReadDir(filepath.Join(harness.State(w.t, w.d.User), "snapshots"))
	if err != nil {
		w.t.Error(err)
	}
	for _, e := range entries {
		switch {
		case strings.HasPrefix(e.Name(), ".new"):
			w.t.Errorf("a snapshot that was not finished is left: %s", e.Name())
		case strings.HasSuffix(e.Name(), ".json"):
			manifests++
		}
	}
	if manifests != len(there) {
		w.t.Errorf("%d snapshots are in the folder, %d are told of", manifests, len(there))
	}
}
