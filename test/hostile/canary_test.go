package hostile

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/internal/host/seccomp"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// canaries are what the caller has outside, for an attack to find or not.
type canaries struct {
	Secret   string // a value that may be nowhere in a box
	Port     int    // a listener on the host's loopback address
	Abstract string // an abstract socket, without the leading zero
	Path     string // a socket with a path
	File     string // a file that everybody on the host may read
	PID      int    // a process with the secret in its environment and arguments, the user's own
	dir      string
}

// release lets out what t takes down at its end.
func release(t *testing.T, u harness.User) canaries {
	t.Helper()
	c := canaries{Secret: "canary-" + rand.Text(), dir: harness.Dir(t, u)}
	c.File, c.Path, c.Abstract = filepath.Join(c.dir, "canary"), filepath.Join(c.dir, "socket"), "sunaba-"+rand.Text()
	if err := os.WriteFile(c.File, []byte(c.Secret), 0o644); err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.Port = tcp.Addr().(*net.TCPAddr).Port
	abstract, err := net.Listen("unix", "@"+c.Abstract)
	if err != nil {
		t.Fatal(err)
	}
	path, err := net.Listen("unix", c.Path)
	if err != nil {
		t.Fatal(err)
	}
	harness.Give(t, u, c.Path)
	for _, l := range []net.Listener{tcp, abstract, path} {
		t.Cleanup(func() { l.Close() })
		go func() { // ends with its listener
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				fmt.Fprint(conn, c.Secret)
				conn.Close()
			}
		}()
	}
	useHostFile(t)
	victim := careless(t, u, c, "/bin/sh", "-c", "echo up; read line", c.Secret)
	in, err := victim.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.PID = begin(t, victim)
	t.Cleanup(func() {
		in.Close()
		_ = victim.Wait()
	})
	return c
}

// useHostFile locks a program and a device of the host, and runs the program again and again, for boxes
// that can feel it.
func useHostFile(t *testing.T) {
	t.Helper()
	const program = "/usr/bin/true"
	for _, path := range []string{program, "/dev/full"} {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH); err != nil {
			t.Fatal(err)
		}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() {
		close(stop)
		<-stopped
	})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				cmd := exec.Command(program)
				cmd.Env = []string{}
				_ = cmd.Run()
			}
		}
	}()
}

// begin starts a command and waits for its first line.
func begin(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 3)
	if _, err := out.Read(line); err != nil {
		t.Fatalf("cannot start %q: %v: %s", cmd.Args, err, errs.String())
	}
	return cmd.Process.Pid
}

// work is what stage.py reads.
type work struct {
	Secret   string         `json:"secret"` // of the run: not a canary
	Where    string         `json:"where"`  // box, control, or bare: each process gets mounts of its own, to do with as it likes
	Numbers  map[string]int `json:"numbers"`
	Canaries map[string]any `json:"canaries"`
	Cases    []workCase     `json:"cases"`
}

type workCase struct {
	ID     string `json:"id"`
	Number int    `json:"number"`
	Bundle string `json:"bundle"` // those in a row that share it share a process
	Py     string `json:"py,omitempty"`
	Sh     string `json:"sh,omitempty"`
}

// order writes a job for stage.py into a folder. It does not hold the canary's
// value: who wants to find that has to find it.
func order(t *testing.T, u harness.User, c canaries, cases []Case, where string) (path, secret string) {
	t.Helper()
	w := work{Secret: rand.Text(), Where: where, Numbers: numbers(), Canaries: map[string]any{
		"port": c.Port, "abstract": c.Abstract, "path": c.Path, "file": c.File, "pid": c.PID,
		// In two halves, so that a search does not find this very file.
		"head": c.Secret[:12], "tail": c.Secret[12:],
	}}
	for i, k := range cases {
		w.Cases = append(w.Cases, workCase{k.Name, i, k.bundle(), k.get("py"), k.get("sh")})
	}
	b, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(harness.Dir(t, u), "input.json")
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path, w.Secret
}

// numbers are the system calls of this architecture.
func numbers() map[string]int {
	all := map[string]int{}
	for _, r := range seccomp.Table() {
		nr := r.AMD64
		if runtime.GOARCH == "arm64" {
			nr = r.ARM64
		}
		if nr >= 0 {
			all[r.Name] = nr
		}
	}
	return all
}
