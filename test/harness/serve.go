package harness

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Server is a `sunaba serve` of a test's.
type Server struct {
	URL  string
	Key  string // an administrator's
	User User
	// Binary is started in place of the tested one from the next start on, if it
	// is not empty.
	Binary string
	// Change, if it is not nil, may change the command of the next starts.
	Change func(*exec.Cmd)

	t    testing.TB
	args []string
	cmd  *exec.Cmd
	log  *tail
	said <-chan string // closed when all that it said is in the log
}

// serverKey is the administrator's key of every daemon of a test's.
const serverKey = "e2b_0123456789abcdef0123456789abcdef01234567"

// StartServer starts one as user u in the user's state folder, of which it is
// the only one at a time. At the end of the test it is ended, with its boxes.
func StartServer(t testing.TB, u User, args ...string) *Server {
	t.Helper()
	d := &Server{Key: serverKey, User: u.account(), t: t, args: args}
	d.Start()
	t.Cleanup(func() {
		if d.cmd != nil {
			d.Stop()
		}
		if t.Failed() {
			t.Logf("the daemon's log:\n%s", d.log)
		}
	})
	return d
}

// serving is what the daemon logs when it can be reached.
var serving = regexp.MustCompile(`msg=serving address=(\S+)`)

// Start starts it again, after Kill or Stop, on another port.
func (d *Server) Start() {
	d.t.Helper()
	if !d.TryStart() {
		d.t.Fatalf("the daemon ended: %v\n%s", d.cmd.Wait(), d.log)
	}
}

// TryStart is Start for a daemon that may end before it can be reached: then it
// returns false, and Kill follows.
func (d *Server) TryStart() bool {
	d.t.Helper()
	d.cmd = d.command()
	r, w, err := os.Pipe()
	if err != nil {
		d.t.Fatal(err)
	}
	d.cmd.Stderr = w
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	w.Close()
	d.log = &tail{}
	up := make(chan string, 1)
	go func(log *tail) {
		defer close(up)
		defer r.Close()
		for in := bufio.NewReader(r); ; { // not a Scanner, which would leave a daemon that says a long line at a full pipe
			line, err := in.ReadBytes('\n')
			if line = bytes.TrimSuffix(line, []byte("\n")); len(line) > 0 {
				log.add(line)
			}
			if m := serving.FindSubmatch(line); m != nil {
				select {
				case up <- "http://" + string(m[1]):
				default:
				}
			}
			if err != nil {
				return
			}
		}
	}(d.log)
	d.said = up
	select {
	case url, ok := <-up:
		d.URL = url
		return ok
	case <-time.After(5 * time.Minute): // it may have many boxes to look after
		d.t.Fatalf("the daemon does not come up\n%s", d.log)
	}
	return false
}

func (d *Server) command() *exec.Cmd {
	cmd := Command(context.Background(), d.t, d.User, append([]string{"serve", "--listen", "127.0.0.1:0"}, d.args...)...)
	cmd.Env = append(cmd.Env, "SUNABA_API_KEY="+d.Key)
	if d.Binary != "" {
		cmd.Path = d.Binary
	}
	if d.Change != nil {
		d.Change(cmd)
	}
	return cmd
}

// Log is the last of what the daemon said.
func (d *Server) Log() string { return d.log.String() }

// Kill ends it as a crash would. Its boxes live on.
func (d *Server) Kill() {
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait()
	d.cmd = nil
}

// Dump ends it with the stacks of all that it was at, which it returns. Its boxes live
// on.
func (d *Server) Dump() string {
	_ = d.cmd.Process.Signal(syscall.SIGQUIT)
	_ = d.cmd.Wait()
	d.cmd = nil
	select { // its last words may be on their way; its gateway's end closes the pipe
	case <-d.said:
	case <-time.After(10 * time.Second):
	}
	d.log.mu.Lock()
	defer d.log.mu.Unlock()
	return string(bytes.Join(d.log.stacks, []byte("\n")))
}

// Stop ends its boxes, and then it in order.
func (d *Server) Stop() {
	d.t.Helper()
	for {
		var page struct {
			Boxes []struct {
				ID string `json:"id"`
			} `json:"boxes"`
		}
		d.Must("GET", "/v1/boxes", nil, &page)
		if len(page.Boxes) == 0 {
			break
		}
		for _, b := range page.Boxes {
			d.Must("DELETE", "/v1/boxes/"+b.ID, nil, nil)
		}
	}
	d.Leave()
}

// Leave ends it in order. Its boxes live on.
func (d *Server) Leave() {
	d.t.Helper()
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	done := make(chan error, 1)
	go func() { done <- d.cmd.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			d.t.Errorf("the daemon ended with %v\n%s", err, d.log)
		}
	case <-time.After(2 * time.Minute):
		d.t.Errorf("the daemon does not end\n%s", d.log)
		d.Kill()
	}
	d.cmd = nil
}

// Pid is the daemon's process id.
func (d *Server) Pid() int { return d.cmd.Process.Pid }

// Call makes a request with the administrator's key and a JSON body, and decodes
// a JSON answer into out, if that is not nil. It returns the status.
func (d *Server) Call(ctx context.Context, method, path string, in, out any) (int, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return 0, err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, d.URL+path, body)
	if err != nil {
		return 0, err
	}
	req.Header.Set("X-API-Key", d.Key)
	req.Header.Set("Accept", "application/json") // rather than a stream of events
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp.StatusCode, err
	}
	if resp.StatusCode >= 400 {
		return resp.StatusCode, fmt.Errorf("%s %s: %d %s", method, path, resp.StatusCode, b)
	}
	if out == nil {
		return resp.StatusCode, nil
	}
	return resp.StatusCode, json.Unmarshal(b, out)
}

// Must is Call for what has to work. On a busy host a box may not be made or destroyed
// in time, and is asked for again, as any client does: three minutes of that are an error.
func (d *Server) Must(method, path string, in, out any) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	for {
		status, err := d.Call(ctx, method, path, in, out)
		if err == nil {
			return
		}
		twice := method == "DELETE" || method == "POST" && path == "/v1/boxes" // does no more than once
		if !twice || !ComeAgain(status, err) || ctx.Err() != nil {
			d.t.Fatal(err)
		}
		d.t.Logf("asked again: %v", err)
		time.Sleep(200 * time.Millisecond)
	}
}

// ComeAgain reports whether an error of Call says that the daemon cannot do it now, and
// is to be asked again. What this host cannot do is another one, of the same status.
func ComeAgain(status int, err error) bool {
	return status == http.StatusServiceUnavailable && strings.Contains(err.Error(), `"unavailable"`)
}

// tail keeps the last lines of a log, and fewer of those about each decision on a
// network, which are many.
type tail struct {
	mu        sync.Mutex
	lines     [][]byte
	decisions [][]byte
	stacks    [][]byte // what does not look like a line of a log
}

func (l *tail) add(line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	to, most := &l.lines, 200
	if bytes.Contains(line, []byte(" msg=network ")) {
		to, most = &l.decisions, 20
	}
	if !bytes.HasPrefix(line, []byte("time=")) {
		to, most = &l.stacks, 4000
	}
	*to = append(*to, bytes.Clone(line))
	*to = (*to)[max(0, len(*to)-most):]
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(bytes.Join(slices.Concat(l.decisions, l.lines, l.stacks[:min(len(l.stacks), 100)]), []byte("\n")))
}

// TryStartFor starts it and does not wait longer than that until it can be
// reached; Kill follows.
func (d *Server) TryStartFor(wait time.Duration) {
	d.t.Helper()
	d.cmd = d.command()
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	time.Sleep(wait)
}
