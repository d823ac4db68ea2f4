package field

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A box was deleted long before its time, and nothing said why; another's time
// was set back by reconnecting.
func TestABoxLivesAsLongAsSaidAndItsEndHasAReason(t *testing.T) {
	eachTier(t, func(c *client) {
		long := c.make(map[string]any{"ttl_sec": 600})
		ends := c.inspect(long).Ends
		short := c.make(map[string]any{"ttl_sec": 1})
		c.exec(long, "true", nil)
		c.Must("POST", long+"/prolong", map[string]any{"ttl_sec": 60}, nil)
		if got := c.inspect(long).Ends; !got.Equal(ends) {
			c.t.Errorf("its end was %v and is %v", ends, got)
		}
		within(c.t, "its time is over", func() bool { return c.inspect(short).Phase == "destroyed" })
		if i := c.inspect(short); i.Reason != "ttl" {
			c.t.Errorf("%+v", i)
		}
		_, err := c.Call(c.t.Context(), "POST", short+"/exec", map[string]any{"shell": "true"}, nil)
		if err == nil || !strings.Contains(err.Error(), "its time was over") {
			c.t.Errorf("a call to it: %v", err)
		}
	})
}

// A box was stopped while a program worked in it.
func TestAProgramThatRunsIsUseOfItsBox(t *testing.T) {
	eachTier(t, func(c *client) {
		const most = 5 // more than passes between two calls on a host that is loaded
		busy := c.make(map[string]any{"idle_sec": most})
		c.start(busy, "until [ -e stop ]; do sleep 0.2; done", map[string]any{"timeout_sec": 0})
		idle := c.make(map[string]any{"idle_sec": most})
		within(c.t, "the unused one ends", func() bool { return c.inspect(idle).Phase == "destroyed" })
		if i := c.inspect(idle); i.Reason != "idle" {
			c.t.Errorf("%+v", i)
		}
		if i := c.inspect(busy); i.Phase != "running" {
			c.t.Errorf("the one in use: %+v", i)
		}
		c.exec(busy, "touch stop", nil)
		within(c.t, "the other one ends", func() bool { return c.inspect(busy).Phase == "destroyed" })
	})
}

// One frozen machine blocked the list of all.
func TestAFrozenBoxHoldsNobodyElseAndCanBeDestroyed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("finding the processes of a box takes its control group, which an ordinary user has none of here")
	}
	eachTier(t, func(c *client) {
		frozen, well := c.make(nil), c.make(nil)
		for _, pid := range members(c.t, strings.TrimPrefix(frozen, "/v1/boxes/")) {
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				c.t.Fatal(err)
			}
		}
		// Whoever waits for the frozen one has his answer after a call to it has: the
		// others have theirs before, at least once, however slow the host is.
		held := true
		for n := 0; n < 5 && held; n++ {
			hung := make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				_, err := c.Call(ctx, "POST", frozen+"/exec", map[string]any{"shell": "true"}, nil)
				hung <- err
			}()
			begun := time.Now()
			c.Must("GET", "/v1/boxes", nil, nil)
			c.exec(well, "true", nil)
			took := time.Since(begun)
			held = len(hung) > 0
			if err := <-hung; err == nil || !strings.Contains(err.Error(), "503") {
				c.t.Errorf("a call to the frozen one: %v", err)
			}
			c.t.Logf("others waited %v, a call to the frozen one %v", took, time.Since(begun))
		}
		if held {
			c.t.Error("others waited as long as a call to the frozen one")
		}
		c.Must("GET", frozen, nil, nil)
		c.Must("DELETE", frozen, nil, nil)
		if i := c.inspect(frozen); i.Phase != "destroyed" || i.Reason != "asked" {
			c.t.Errorf("%+v", i)
		}
	})
}

// members are the processes in a box's control group.
func members(t *testing.T, id string) (pids []int) {
	t.Helper()
	for _, f := range []string{"/sys/fs/cgroup/pids/sunaba/" + id, "/sys/fs/cgroup/sunaba/" + id} {
		b, err := os.ReadFile(f + "/cgroup.procs")
		if err != nil {
			continue
		}
		for s := range strings.FieldsSeq(string(b)) {
			pid, err := strconv.Atoi(s)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	if len(pids) == 0 {
		t.Fatalf("no processes of box %s found", id)
	}
	return pids
}

// A box that dies while a program works in it: an error, and a box that says so.
func TestABoxThatDiesIsAnErrorAndSaysSo(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("finding the processes of a box takes its control group, which an ordinary user has none of here")
	}
	eachTier(t, func(c *client) {
		b := c.make(nil)
		done := make(chan error, 1)
		var e ended
		go func() {
			_, err := c.Call(context.Background(), "POST", b+"/exec", map[string]any{"shell": "sleep 60"}, &e)
			done <- err
		}()
		within(c.t, "it runs", func() bool { return c.exec(b, "pgrep -x sleep || true", nil).Stdout != "" })
		for _, pid := range members(c.t, strings.TrimPrefix(b, "/v1/boxes/")) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err := <-done; err == nil && e.Cause != "lost" {
			c.t.Errorf("it was told as %+v", e)
		}
		within(c.t, "the box is known to have ended", func() bool { return c.inspect(b).Phase == "destroyed" })
		if i := c.inspect(b); i.Reason != "lost" {
			c.t.Errorf("%+v", i)
		}
	})
}

// Bulk uploads failed with 400 and no reason.
func TestManyFilesGoInAndOutInOneStep(t *testing.T) {
	eachTier(t, func(c *client) {
		b := c.make(nil)
		var in bytes.Buffer
		w := tar.NewWriter(&in)
		for i := range 1500 {
			body := fmt.Sprintf("file %d", i)
			if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("d%d/f%d.txt", i%20, i), Mode: 0o644, Size: int64(len(body))}); err != nil {
				c.t.Fatal(err)
			}
			if _, err := io.WriteString(w, body); err != nil {
				c.t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			c.t.Fatal(err)
		}
		if got := c.raw("PUT", b+"/files/archive?path=/workspace/in", in.Bytes()); got.status != 200 {
			c.t.Fatalf("%+v", got)
		}
		if e := c.exec(b, "find in -type f | wc -l; cat in/d7/f1487.txt", nil); e.Stdout != "1500\nfile 1487" {
			c.t.Errorf("%+v", e)
		}
		out := c.raw("GET", b+"/files/archive?path=/workspace/in", nil)
		n := 0
		for r := tar.NewReader(bytes.NewReader(out.body)); ; {
			h, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				c.t.Fatal(err)
			}
			if h.Typeflag == tar.TypeReg {
				n++
			}
		}
		if n != 1500 {
			c.t.Errorf("%d files came back", n)
		}
		// What is wrong with one is said, with its name.
		in.Reset()
		w = tar.NewWriter(&in)
		if err := w.WriteHeader(&tar.Header{Name: "../../etc/passwd", Mode: 0o644}); err != nil {
			c.t.Fatal(err)
		}
		w.Close()
		if got := c.raw("PUT", b+"/files/archive?path=/workspace/in", in.Bytes()); got.status != 422 || !strings.Contains(string(got.body), "../../etc/passwd") {
			c.t.Errorf("%d %s", got.status, got.body)
		}
	})
}

type answer struct {
	status int
	body   []byte
}

func (c *client) raw(method, path string, body []byte) answer {
	c.t.Helper()
	req, err := http.NewRequest(method, c.URL+path, bytes.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("X-API-Key", c.Key)
	if method == "PUT" {
		req.Header.Set("Content-Type", "application/octet-stream")
		if strings.Contains(path, "archive") {
			req.Header.Set("Content-Type", "application/x-tar")
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer{resp.StatusCode, b}
}

// Code hung although its interpreter was idle, or dead.
func TestAnInterpreterThatDiesIsNoticed(t *testing.T) {
	eachTier(t, func(c *client) {
		b := c.make(nil)
		type report struct {
			Outcome string `json:"outcome"`
			Stdout  string `json:"stdout"`
			Message string `json:"message"`
			Context string `json:"context"`
			Results []struct {
				Forms map[string]string `json:"forms"`
			} `json:"results"`
		}
		var r report
		c.Must("POST", b+"/code", map[string]any{"language": "python", "code": "import os\nx = 41\nx + 1"}, &r)
		if r.Outcome != "ok" || len(r.Results) != 1 || r.Results[0].Forms["text/plain"] != "42" {
			c.t.Fatalf("%+v", r)
		}
		r = report{} // what nobody notices is told as run into its time limit
		c.Must("POST", b+"/code", map[string]any{"language": "python", "code": "print('before', flush=True); os.kill(os.getpid(), 9)"}, &r)
		if r.Outcome != "died" || r.Stdout != "before\n" || r.Message == "" {
			c.t.Errorf("%+v", r)
		}
	})
}

// A daemon that was killed: its boxes and their programs are there afterwards.
func TestBoxesAndTheirProgramsOutliveTheDaemon(t *testing.T) {
	inTurn(t, func(c *client) {
		b := c.make(nil)
		p := c.start(b, "echo one; sleep 2; echo two; exit 9", map[string]any{"timeout_sec": 0})
		c.exec(b, "echo kept > f", nil)
		c.Kill()
		c.Start()
		if e := c.exec(b, "cat f", nil); e.Stdout != "kept\n" {
			c.t.Errorf("%+v", e)
		}
		var out bytes.Buffer
		var end *int
		if err := c.stream(c.t.Context(), "GET", fmt.Sprint(b, "/processes/", p.PID, "/output"), "", nil, func(e event) bool {
			out.Write(e.bytes())
			if e.Name == "end" {
				end = e.Data.ExitCode
			}
			return true
		}); err != nil || out.String() != "one\ntwo\n" || end == nil || *end != 9 {
			c.t.Errorf("%v, %q, %v", err, out.String(), end)
		}
	})
}

// A daemon that is told to end leaves programs alone, those in the foreground, too.
func TestTheEndOfTheDaemonEndsNoProgram(t *testing.T) {
	inTurn(t, func(c *client) {
		b := c.make(nil)
		seen := make(chan string, 100)
		done := make(chan error, 1)
		go func() {
			done <- c.stream(context.Background(), "POST", b+"/exec", "", map[string]any{"shell": "echo begun; until [ -e go ]; do sleep 0.1; done; echo done > f; exit 4", "timeout_sec": 0, "tag": "fg"}, func(e event) bool {
				seen <- e.Name
				return true
			})
		}()
		for name := ""; name != "stdout"; {
			select {
			case name = <-seen:
			case err := <-done:
				c.t.Fatalf("the stream ended before anything was written: %v", err)
			}
		}
		c.Leave()
		if err := <-done; err != nil {
			c.t.Logf("the stream ended with %v", err)
		}
		close(seen)
		for name := range seen {
			if name == "end" {
				c.t.Error("an end was told")
			}
		}
		c.Start()
		c.exec(b, "touch go", nil)
		within(c.t, "the program has gone on to its end", func() bool { return c.exec(b, "cat f 2>/dev/null", nil).Stdout == "done\n" })
	})
}
