package crash

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/internal/fault"
	"github.com/sunaba-dev/sunaba/test/harness"
	"github.com/sunaba-dev/sunaba/test/upstream"
)

// world is a daemon and what its callers know.
type world struct {
	t   *testing.T
	d   *harness.Server
	dir string // of faults

	mu      sync.Mutex
	boxes   []*known
	pending []*wanted // asked for, and no answer came
	gone    map[string]bool
	serial  int
	kills   map[moment]int
	kept    map[string]bool // snapshots: whether they are, or are no more
	warm    int             // boxes that were handed out warm
	past    map[string]row  // boxes of earlier tests
	volumes map[string]*volume

	farm       *upstream.Farm // nil where boxes have no network
	nets       []*network     // by serial number, less one
	arrivals   int            // of what boxes may reach
	gateways   int            // that were killed
	connect    bool           // after a start boxes use their networks
	patience   int            // how often a box asks for what it may reach
	interfaces []string
}

// wanted is a request for a box.
type wanted struct {
	key   string
	tier  string
	reuse bool // it asks for a warm one, and so for more to be kept
	net   *network
}

// known is a box of which a caller was told.
type known struct {
	id, tier string
	busy     sync.Mutex
	doubt    bool   // it was to be destroyed, and no answer came
	phase    string // as told last; empty if no answer came
	lines    int    // of its log, at least
	maybe    int    // and at most so many more
	programs map[int]program
	screen   int    // pid of a program in a terminal
	typed    int    // lines
	at       int    // bytes that it took
	line     string // on the way
	net      *network
	tries    bool // everything that its network may do
}

// program is one in the background, and what it must come to.
type program struct {
	out  string
	code int
}

func newWorld(t *testing.T, u harness.User) *world {
	t.Helper()
	harness.NothingLeft(t)
	w := &world{t: t, dir: filepath.Join(harness.State(t, u), fault.Folder), gone: map[string]bool{}, kept: map[string]bool{}, volumes: map[string]*volume{}, kills: map[moment]int{}}
	if err := os.Mkdir(w.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	harness.Give(t, u, w.dir)
	t.Cleanup(func() { os.RemoveAll(w.dir) })
	w.patience, w.connect = 60, true
	args := []string{"--warm", "4"}
	if upstream.Here() {
		w.farm = upstream.Of(t)
		w.farm.Take(t) // what earlier tests left
		w.interfaces = interfaces(t)
		args = append(args, "--resolver", upstream.Resolver)
	}
	w.d = harness.StartServer(t, u, args...)
	w.past = w.rows(true)
	return w
}

// arm has the next daemon, or its gateway, killed at its n-th passage of a moment.
func (w *world) arm(m moment, n int) {
	w.t.Helper()
	w.disarm()
	if err := os.WriteFile(filepath.Join(w.dir, fault.Kill), fmt.Appendln(nil, m.point, n, m.victim), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) disarm() {
	for _, f := range []string{fault.Kill, fault.Passed} {
		os.Remove(filepath.Join(w.dir, f))
	}
}

// passed is how often a moment was passed since the last change of plan.
func (w *world) passed(point string) int {
	b, _ := os.ReadFile(filepath.Join(w.dir, fault.Passed))
	n := 0
	for line := range strings.Lines(string(b)) {
		if strings.TrimSpace(line) == point {
			n++
		}
	}
	return n
}

// patience is how long what must come is waited for: on a host that is loaded all takes
// ten times as long.
const patience = 3 * time.Minute

// again makes a call, which may be made twice, until it does not say that the daemon
// cannot do it yet: a busy host.
func again(do func() (int, error)) (status int, err error) {
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		if status, err = do(); err == nil || !harness.ComeAgain(status, err) || time.Now().After(end) {
			return status, err
		}
	}
}

// call is a request whose answer may not come.
func (w *world) call(method, path string, in, out any) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return w.d.Call(ctx, method, path, in, out)
}

// sandbox asks for a box that can be forked, where the tier can.
func sandbox(tier string) map[string]any {
	image := map[string]string{"gvisor": "base", "process": "host"}[tier]
	return map[string]any{"runtime": tier, "trust": "trusted", "image": image, "resource_limits": map[string]any{"memory": "128m", "disk": "64m", "max_processes": 64}}
}

// ask makes the request for a box, which may be made again.
func (w *world) ask(r *wanted) (id string, err error) {
	_, err = again(func() (status int, err error) {
		id, status, err = w.askOnce(r)
		return status, err
	})
	return id, err
}

func (w *world) askOnce(r *wanted) (id string, status int, err error) {
	s := sandbox(r.tier)
	if r.reuse {
		s["lifecycle"] = map[string]any{"reuse": true, "pool_size": 1}
	}
	if r.net != nil {
		s["network"] = r.net.rules(1)
	}
	body, err := json.Marshal(map[string]any{"sandbox": s, "ttl_sec": 3600, "metadata": map[string]any{"request": r.key}})
	if err != nil {
		return "", 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", w.d.URL+"/v1/boxes", bytes.NewReader(body))
	if err != nil {
		return "", 0, err
	}
	req.Header.Set("X-API-Key", w.d.Key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", r.key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", 0, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", 0, err
	}
	var made struct {
		ID    string `json:"id"`
		Phase string `json:"phase"`
		Start string `json:"start"`
	}
	if err := json.Unmarshal(b, &made); err != nil || resp.StatusCode != http.StatusCreated || made.Phase != "running" {
		return "", resp.StatusCode, fmt.Errorf("create: %d %s", resp.StatusCode, b)
	}
	if made.Start == "warm" {
		w.mu.Lock()
		w.warm++
		w.mu.Unlock()
	}
	return made.ID, resp.StatusCode, nil
}

// create makes a box, or notes that nobody knows whether there is one.
func (w *world) create(tier string) (*known, error) { return w.get(tier, false, false) }

// get is create, perhaps of a box that is warm, or that has a network.
func (w *world) get(tier string, reuse, netted bool) (*known, error) {
	var n *network
	if netted && w.farm != nil {
		n = w.network()
	}
	w.mu.Lock()
	w.serial++
	r := &wanted{key: fmt.Sprint(w.t.Name(), " ", w.serial), tier: tier, reuse: reuse, net: n}
	w.mu.Unlock()
	id, err := w.ask(r)
	if err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.pending = append(w.pending, r)
		return nil, err
	}
	k := w.welcome(id, r)
	return k, w.trying(k)
}

func (w *world) welcome(id string, r *wanted) *known {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range w.boxes {
		if k.id == id {
			w.t.Errorf("box %s was made twice", id)
		}
	}
	if w.gone[id] {
		w.t.Errorf("the name of box %s was given again", id)
	}
	k := &known{id: id, tier: r.tier, net: r.net, phase: "running", programs: map[int]program{}}
	w.boxes = append(w.boxes, k)
	return k
}

// steps are what is done with a box. Each notes what was told.
func (w *world) steps() []func(*known, *rand.Rand) error {
	return []func(*known, *rand.Rand) error{w.foreground, w.background, w.pause, w.resume, w.typeIn, w.oneCall, w.snapshot, w.volume, w.fork, w.change, w.reach}
}

func path(k *known) string { return "/v1/boxes/" + k.id }

type ended struct {
	PID    int    `json:"pid"`
	Code   *int   `json:"exit_code"`
	Cause  string `json:"cause"`
	Stdout string `json:"stdout"`
	End    *ended `json:"end"`
}

// foreground adds a line to the box's log and ends with a code.
func (w *world) foreground(k *known, r *rand.Rand) error {
	code := r.IntN(100)
	k.maybe++
	k.phase = "" // it resumes the box, before it answers
	var e ended
	if _, err := w.call("POST", path(k)+"/exec", map[string]any{"shell": fmt.Sprint("echo line >> log; sync log; exit ", code)}, &e); err != nil {
		return err
	}
	k.lines, k.maybe, k.phase = k.lines+1, k.maybe-1, "running"
	if e.Code == nil || *e.Code != code {
		w.t.Errorf("a program that exits with %d is told as %+v", code, e)
	}
	return nil
}

// background starts a program that ends by itself, at any time.
func (w *world) background(k *known, r *rand.Rand) error {
	p := program{out: fmt.Sprint("out ", r.IntN(1e6)), code: 1 + r.IntN(100)}
	k.phase = ""
	var e ended
	shell := fmt.Sprintf("echo '%s'; sleep 0.%d; exit %d", p.out, r.IntN(6), p.code)
	if _, err := w.call("POST", path(k)+"/processes", map[string]any{"shell": shell, "timeout_sec": 0}, &e); err != nil {
		return err
	}
	k.programs[e.PID], k.phase = p, "running"
	return nil
}

func (w *world) pause(k *known, _ *rand.Rand) error {
	k.phase = ""
	status, err := w.call("POST", path(k)+"/pause", nil, nil)
	if status == http.StatusNotImplemented { // no control group: tier process cannot
		k.phase = "running"
		return nil
	}
	if err == nil {
		k.phase = "paused"
	}
	return err
}

func (w *world) resume(k *known, _ *rand.Rand) error {
	k.phase = ""
	status, err := w.call("POST", path(k)+"/resume", nil, nil)
	if err == nil || status == http.StatusNotImplemented {
		k.phase = "running"
		return nil
	}
	return err
}

// typeIn starts a shell in a terminal, or types into it.
func (w *world) typeIn(k *known, _ *rand.Rand) error {
	k.phase = ""
	if k.screen == 0 {
		var e ended
		if _, err := w.call("POST", path(k)+"/processes", map[string]any{"command": []string{"sh"}, "tty": map[string]any{"rows": 24, "cols": 80}, "timeout_sec": 0}, &e); err != nil {
			return err
		}
		k.screen, k.phase = e.PID, "running"
	}
	if k.line == "" { // else no answer came to it: it is sent again, from where it began
		k.typed++
		k.line = fmt.Sprintf("echo typ''ed-%d\r", k.typed)
	}
	var taken struct {
		Next int `json:"next"`
	}
	_, err := w.call("POST", fmt.Sprint(path(k), "/processes/", k.screen, "/input"), map[string]any{"at": k.at, "data": k.line}, &taken)
	if err == nil {
		if taken.Next != k.at+len(k.line) {
			w.t.Errorf("a terminal took input to %d, from %d %d bytes", taken.Next, k.at, len(k.line))
		}
		k.phase, k.at, k.line = "running", taken.Next, ""
	}
	return err
}

// oneCall runs something in a box of its own.
func (w *world) oneCall(k *known, r *rand.Rand) error {
	n := r.IntN(1e6)
	var rep struct {
		Stdout string `json:"stdout"`
	}
	_, err := w.call("POST", "/v1/execute", map[string]any{"language": "bash", "code": fmt.Sprint("echo ", n), "sandbox": sandbox(k.tier)}, &rep)
	if err == nil && rep.Stdout != fmt.Sprintln(n) {
		w.t.Errorf("one call said %q", rep.Stdout)
	}
	return err
}

// snapshot keeps the files of a box, and removes the copy or lets it be.
func (w *world) snapshot(k *known, r *rand.Rand) error {
	var s struct {
		ID string `json:"id"`
	}
	k.phase = ""
	status, err := w.call("POST", path(k)+"/snapshots", map[string]any{"kind": "files"}, &s)
	if status == http.StatusNotImplemented {
		return nil
	}
	if err != nil {
		return err
	}
	w.keep(s.ID, true)
	if r.IntN(4) == 0 {
		return nil
	}
	w.keep(s.ID, false, "in doubt")
	if _, err := w.call("DELETE", "/v1/snapshots/"+s.ID, nil, nil); err != nil {
		return err
	}
	w.keep(s.ID, false)
	return nil
}

// keep notes whether a snapshot is there, or that nobody knows.
func (w *world) keep(id string, there bool, doubt ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kept[id] = there
	if len(doubt) > 0 {
		delete(w.kept, id)
	}
}

// fork makes a copy of a box that runs, and destroys it.
func (w *world) fork(k *known, _ *rand.Rand) error {
	if k.tier != "gvisor" {
		return nil
	}
	k.phase = ""
	var made struct {
		Forks []struct {
			Box   *row `json:"box"`
			Error *struct {
				Code    int    `json:"code"`
				Message string `json:"message"`
			} `json:"error"`
		} `json:"forks"`
	}
	status, err := w.call("POST", path(k)+"/fork", map[string]any{"count": 1, "metadata": map[string]any{"fork": "yes"}}, &made)
	if status == http.StatusNotImplemented {
		return nil
	}
	if err != nil {
		return err
	}
	if len(made.Forks) != 1 {
		return fmt.Errorf("fork: %+v", made)
	}
	f := made.Forks[0]
	switch {
	case f.Box == nil && f.Error != nil && (f.Error.Code == http.StatusTooManyRequests || f.Error.Code == http.StatusServiceUnavailable):
		return nil // a busy host: it is to be tried again later
	case f.Box == nil:
		return fmt.Errorf("fork: %+v", f.Error)
	}
	return w.destroy(w.welcome(f.Box.ID, &wanted{tier: k.tier}))
}

// destroy ends a box.
func (w *world) destroy(k *known) error {
	k.doubt = true
	if _, err := again(func() (int, error) { return w.call("DELETE", path(k), nil, nil) }); err != nil {
		return err
	}
	w.forget(k)
	return nil
}

func (w *world) forget(k *known) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone[k.id] = true
	if k.net != nil {
		k.net.ended = time.Now()
	}
	for i := range w.boxes {
		if w.boxes[i] == k {
			w.boxes = append(w.boxes[:i], w.boxes[i+1:]...)
			return
		}
	}
}

// output reads a program's output from its beginning to its end, or until enough.
func (w *world) output(k *known, pid int, enough string) (string, *ended) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", fmt.Sprint(w.d.URL, path(k), "/processes/", pid, "/output"), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("X-API-Key", w.d.Key)
	req.Header.Set("Accept", "text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Errorf("output of program %d in %s: %v", pid, k.id, err)
		return "", nil
	}
	defer resp.Body.Close()
	var out bytes.Buffer
	var name string
	for in := bufio.NewReader(resp.Body); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return out.String(), nil
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		if field == "event" {
			name = value
		}
		if field != "data" {
			continue
		}
		var e struct {
			ended
			Data   string `json:"data"`
			Base64 string `json:"data_base64"`
		}
		if err := json.Unmarshal([]byte(value), &e); err != nil {
			w.t.Errorf("event %s: %v", strconv.Quote(value), err)
		}
		if raw, err := base64.StdEncoding.DecodeString(e.Base64); err == nil {
			out.Write(raw)
		}
		out.WriteString(e.Data)
		if name == "end" {
			return out.String(), &e.ended
		}
		if enough != "" && strings.Contains(out.String(), enough+"\r\n") {
			return out.String(), nil
		}
	}
}
