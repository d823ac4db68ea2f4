package contexts_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
	"github.com/sunaba-dev/sunaba/internal/agent/agentpb/agentpbconnect"
	"github.com/sunaba-dev/sunaba/internal/agent/contexts"
)

// path is where a box finds its programs too; a developer's own Python is not there.
const path = "/usr/bin:/bin"

// service serves contexts as the agent does: HTTP/2 without TLS.
type service struct {
	t      *testing.T
	s      *contexts.Service
	client agentpbconnect.ContextsClient
	dir    string
}

func serve(t *testing.T) *service {
	t.Helper()
	dir := t.TempDir()
	s := contexts.New(contexts.Config{Dir: dir, Env: []string{"PATH=" + path, "HOME=" + dir, "LANG=C.UTF-8", "IPYTHONDIR=" + dir + "/.ipython", "MPLCONFIGDIR=" + dir}})
	mux := http.NewServeMux()
	mux.Handle(s.Handler())
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	web := httptest.NewUnstartedServer(mux)
	web.Config.Protocols = &p
	web.Start()
	transport := &http.Transport{Protocols: &p}
	t.Cleanup(func() {
		s.Close()
		transport.CloseIdleConnections()
		web.CloseClientConnections()
		web.Close()
	})
	return &service{t: t, s: s, client: agentpbconnect.NewContextsClient(&http.Client{Transport: transport}, web.URL), dir: dir}
}

// notebook is an open context and the number of cells that it was given.
type notebook struct {
	*service
	id    string
	about *pb.Context
	cells int
	count uint32
}

func (s *service) open(language string, env ...string) *notebook {
	s.t.Helper()
	r, err := s.client.Open(s.t.Context(), connect.NewRequest(&pb.OpenRequest{Language: language, Env: env}))
	if err != nil {
		s.t.Fatal(err)
	}
	c := r.Msg.Context
	if c.State != pb.Context_STATE_IDLE || c.Language != language || c.Count != 0 || c.Detail != "" || c.Dir != s.dir {
		s.t.Fatalf("a new context says %v", c)
	}
	return &notebook{service: s, id: c.Id, about: c}
}

// needs skips unless a program is there.
func needs(t *testing.T, program string) {
	t.Helper()
	for dir := range strings.SplitSeq(path, ":") {
		if _, err := os.Stat(filepath.Join(dir, program)); err == nil {
			return
		}
	}
	t.Skipf("THE CONTEXTS OF %s ARE NOT TESTED: it is not installed in %s; .ci/setup installs it", program, path)
}

// needsModules skips unless Python has modules.
func needsModules(t *testing.T, names ...string) {
	t.Helper()
	needs(t, "python3")
	cmd := exec.Command("/usr/bin/python3", "-c", "import "+strings.Join(names, ", "))
	cmd.Env = []string{"PATH=" + path, "HOME=" + t.TempDir()}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("RICH RESULTS OF PYTHON ARE NOT TESTED: apt-get install python3-ipython python3-matplotlib python3-pandas: %s", out)
	}
}

// withoutIPython is an environment in which Python has none.
func withoutIPython(t *testing.T) string {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "IPython.py"), []byte("raise ImportError('none here')"), 0o644); err != nil {
		t.Fatal(err)
	}
	return "PYTHONPATH=" + dir
}

// told is a cell's story, put together.
type told struct {
	stdout, stderr string
	results        []*pb.Result
	failures       []*pb.Failure
	end            *pb.CellEnd
	events         []*pb.RunResponse
}

// run runs a cell to its end.
func (n *notebook) run(code string, change ...func(*pb.RunRequest)) *told {
	n.t.Helper()
	n.cells++
	req := &pb.RunRequest{Context: n.id, Cell: fmt.Sprintf("cell-%d", n.cells), Code: code}
	for _, f := range change {
		f(req)
	}
	ctx, cancel := context.WithTimeout(n.t.Context(), longest)
	defer cancel()
	got, err := n.follow(ctx, req)
	if err != nil {
		n.t.Fatalf("cannot run %q: %v; so far %v", code, err, got)
	}
	return got
}

func (n *notebook) follow(ctx context.Context, req *pb.RunRequest) (*told, error) {
	n.t.Helper()
	stream, err := n.client.Run(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	got := &told{}
	next := max(req.From, 1)
	for stream.Receive() {
		e := stream.Msg()
		if e.GetBeat() != nil {
			if e.Number != 0 {
				n.t.Errorf("a beat has number %d", e.Number)
			}
			continue
		}
		if e.Number != next || got.end != nil {
			n.t.Errorf("event %d comes where %d is due, after the end: %v", e.Number, next, got.end != nil)
		}
		next++
		got.add(e)
	}
	if err := stream.Err(); err != nil {
		return got, err
	}
	if got.end == nil {
		n.t.Error("the story has no end")
	}
	return got, nil
}

func (g *told) add(e *pb.RunResponse) {
	g.events = append(g.events, e)
	g.stdout += e.GetStdout()
	g.stderr += e.GetStderr()
	if r := e.GetResult(); r != nil {
		g.results = append(g.results, r)
	}
	if f := e.GetFailure(); f != nil {
		g.failures = append(g.failures, f)
	}
	if e.GetEnd() != nil {
		g.end = e.GetEnd()
	}
}

// forms are a result's: what each has to be.
type forms map[string]string

// step is a cell and all that has to be told of it. A text that begins with ~ is
// a part of what is told; in a list all parts are.
type step struct {
	code           string
	request        func(*pb.RunRequest)
	during         func(n *notebook) // something that happens while it runs
	stdout, stderr string
	shown          []forms // results that are not the value
	value          forms   // the main result
	name, says     string  // of the error
	traceback      string
	outcome        pb.CellEnd_Outcome // 0 is ok
	dropped        uint64
	detail         string
	restart        bool // do that before
}

func matches(got, want string) bool {
	if part, ok := strings.CutPrefix(want, "~"); ok {
		for p := range strings.SplitSeq(part, "|~") {
			if !strings.Contains(got, p) {
				return false
			}
		}
		return true
	}
	if want == "PNG" {
		b, err := base64.StdEncoding.DecodeString(got)
		return err == nil && strings.HasPrefix(string(b), "\x89PNG\r\n\x1a\n")
	}
	return got == want
}

func (f forms) check(t *testing.T, got map[string]string) {
	t.Helper()
	if a, b := slices.Sorted(maps.Keys(f)), slices.Sorted(maps.Keys(got)); !slices.Equal(a, b) {
		t.Errorf("the forms are %v, want %v", b, a)
	}
	for name, want := range f {
		if !matches(got[name], want) {
			t.Errorf("form %s is %.300q, want %q", name, got[name], want)
		}
	}
}

// session runs steps one after the other and checks every field of each.
func (n *notebook) session(steps []step) {
	for i, s := range steps {
		n.t.Run(fmt.Sprintf("%02d", i+1), func(t *testing.T) {
			outer := n.t
			n.t = t
			defer func() { n.t = outer }()
			n.step(s)
		})
	}
}

func (n *notebook) step(s step) {
	t := n.t
	if s.restart {
		n.restart()
	}
	if s.outcome == 0 {
		s.outcome = pb.CellEnd_OUTCOME_OK
	}
	change := func(r *pb.RunRequest) {
		if s.request != nil {
			s.request(r)
		}
	}
	var meanwhile sync.WaitGroup
	if s.during != nil {
		meanwhile.Go(func() { s.during(n) })
	}
	before := time.Now()
	got := n.run(s.code, change)
	meanwhile.Wait()
	n.count++
	if !matches(got.stdout, s.stdout) {
		t.Errorf("stdout is %.500q, want %q", got.stdout, s.stdout)
	}
	if !matches(got.stderr, s.stderr) {
		t.Errorf("stderr is %.500q, want %q", got.stderr, s.stderr)
	}
	var shown []*pb.Result
	var value *pb.Result
	for _, r := range got.results {
		if r.Main && value != nil {
			t.Errorf("the cell has two values: %v, %v", value, r)
		}
		if r.Main {
			value = r
		} else {
			shown = append(shown, r)
		}
	}
	if len(shown) != len(s.shown) {
		t.Errorf("%d results are shown, want %d: %.300v", len(shown), len(s.shown), shown)
	}
	for i := range min(len(shown), len(s.shown)) {
		s.shown[i].check(t, shown[i].Forms)
	}
	s.value.check(t, value.GetForms())
	switch {
	case s.name == "" && len(got.failures) > 0:
		t.Errorf("it failed: %v", got.failures)
	case s.name != "" && len(got.failures) != 1:
		t.Errorf("there are %d errors: %v", len(got.failures), got.failures)
	case s.name != "":
		f := got.failures[0]
		if f.Name != s.name || !matches(f.Value, s.says) || !matches(f.Traceback, s.traceback) {
			t.Errorf("the error is %q, %q, %s\nwant %q, %q, %q", f.Name, f.Value, f.Traceback, s.name, s.says, s.traceback)
		}
		if strings.Contains(f.Traceback, "<sunaba>") || strings.Contains(f.Traceback, "\x1b") {
			t.Errorf("the traceback shows the driver, or colours: %q", f.Traceback)
		}
	}
	if s.outcome != got.end.Outcome || s.dropped != got.end.DroppedBytes || got.end.Count != n.count || !matches(got.end.Detail, s.detail) {
		t.Errorf("the end is %v, want %v, dropped %d, count %d, detail %q", got.end, s.outcome, s.dropped, n.count, s.detail)
	}
	if took := time.Since(before); time.Duration(got.end.Millis)*time.Millisecond > took {
		t.Errorf("the cell took %d ms, and all of it %v", got.end.Millis, took)
	}
	now := n.now()
	state := pb.Context_STATE_IDLE
	if s.outcome == pb.CellEnd_OUTCOME_DIED {
		state = pb.Context_STATE_DEAD
	}
	if now.State != state || now.Count != n.count || !matches(now.Detail, s.detail) || now.Kernel != n.about.Kernel || now.Id != n.id {
		t.Errorf("after the cell the context is %v, want state %v, count %d", now, state, n.count)
	}
}

func (n *notebook) restart() {
	n.t.Helper()
	r, err := n.client.Restart(n.t.Context(), connect.NewRequest(&pb.RestartRequest{Context: n.id}))
	if err != nil {
		n.t.Fatal(err)
	}
	n.count = 0
	if c := r.Msg.Context; c.State != pb.Context_STATE_IDLE || c.Count != 0 || c.Detail != "" || c.Id != n.id || c.StartedUnixMillis < n.about.StartedUnixMillis {
		n.t.Fatalf("after the restart the context is %v", c)
	}
}

// now is what the list tells of the context.
func (n *notebook) now() *pb.Context {
	n.t.Helper()
	r, err := n.client.List(n.t.Context(), connect.NewRequest(&pb.ListContextsRequest{}))
	if err != nil {
		n.t.Fatal(err)
	}
	for _, c := range r.Msg.Contexts {
		if c.Id == n.id {
			return c
		}
	}
	n.t.Fatalf("context %s is not in the list", n.id)
	return nil
}

// interruptAt interrupts when a file appears, which the cell makes when it is there.
func interruptAt(name string) func(*notebook) {
	return func(n *notebook) {
		file := filepath.Join(n.dir, name)
		if !until(longest, func() bool { _, err := os.Stat(file); return err == nil }) {
			n.t.Error("the cell did not come to the place where it is interrupted")
		}
		os.Remove(file)
		if _, err := n.client.Interrupt(n.t.Context(), connect.NewRequest(&pb.InterruptRequest{Context: n.id})); err != nil {
			n.t.Error(err)
		}
	}
}

// longest is for how long something is waited for that has to come: much more than
// it takes on a host that has other things to do.
const longest = 3 * time.Minute

// until waits for something to become so.
func until(limit time.Duration, is func() bool) bool {
	end := time.Now().Add(limit)
	for !is() {
		if time.Now().After(end) {
			return false
		}
		time.Sleep(5 * time.Millisecond)
	}
	return true
}

// queued waits until some cells wait.
func (n *notebook) queued(cells int) {
	n.t.Helper()
	if !until(longest, func() bool { return n.s.Queued(n.id) == cells }) {
		n.t.Fatalf("%d cells wait, want %d", n.s.Queued(n.id), cells)
	}
}
