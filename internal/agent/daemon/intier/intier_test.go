// As in the program itself: see cmd/sunaba.
//
//go:debug containermaxprocs=0

// Package intier has the agent's tests inside real walls: what differs between
// the host's kernel and gVisor's, and between one user and two.
package intier

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/guest"
	"github.com/sunaba-dev/sunaba/internal/host/cgroup"
	"github.com/sunaba-dev/sunaba/internal/image"
	"github.com/sunaba-dev/sunaba/internal/tier/frame"
	"github.com/sunaba-dev/sunaba/internal/tier/gvisor"
	"github.com/sunaba-dev/sunaba/internal/tier/process"
	"github.com/sunaba-dev/sunaba/test/harness"
)

func TestMain(m *testing.M) {
	if code, ok := process.Dispatch(os.Args); ok {
		os.Exit(code)
	}
	gvisor.Dispatch(os.Args)
	os.Exit(m.Run())
}

// inTiers runs fn in a box of each tier.
func inTiers(t *testing.T, fn func(t *testing.T, name box.TierName, g *guest.Guest)) {
	state, err := os.MkdirTemp("/var/tmp", "sunaba-intier-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Extracted images have no write bits, not even for their owner.
		_ = filepath.WalkDir(state, func(f string, e os.DirEntry, _ error) error {
			if e != nil && e.IsDir() {
				_ = os.Chmod(f, 0o700)
			}
			return nil
		})
		if err := os.RemoveAll(state); err != nil {
			t.Error(err)
		}
	})
	for _, dir := range []string{"", "/p", "/v"} {
		if err := os.Mkdir(state+dir, 0o700); err != nil && dir != "" {
			t.Fatal(err)
		}
		if err := os.Chmod(state+dir, 0o711); err != nil { // boxes are users of their own
			t.Fatal(err)
		}
	}
	store, err := image.OpenStore(filepath.Join(state, "images"))
	if err != nil {
		t.Fatal(err)
	}
	groups, err := cgroup.Detect(cgroup.Root, cgroup.MountInfo, cgroup.SelfCgroup)
	if err != nil {
		t.Fatal(err)
	}
	images, agent, daemon := frame.Images{Store: store}, program(t, "sunaba-agent"), program(t, "sunaba-agentd")
	p, err := process.New(process.Config{State: state + "/p", Images: images, Groups: groups, Agent: agent, Daemon: daemon})
	if err != nil {
		t.Fatal(err)
	}
	v, err := gvisor.New(gvisor.Config{State: state + "/v", Images: images, Groups: groups, Agent: agent, Daemon: daemon})
	if err != nil {
		t.Fatal(err)
	}
	for _, tier := range []box.Tier{p, v} {
		t.Cleanup(func() { tier.(io.Closer).Close() })
		t.Run(string(tier.Name()), func(t *testing.T) {
			b, err := tier.Create(t.Context(), box.Spec{
				ID: box.NewID(), Image: box.ImageHost, Workdir: "/workspace", Hostname: "sunaba", Net: box.Net{Mode: box.NetNone}, Lasting: true,
				Limits: box.Limits{MilliCPU: 2000, Memory: 192 << 20, Processes: 64, OpenFiles: 256, Disk: 64 << 20, Files: 2000, OnLimit: box.LimitRecord},
			})
			if err != nil {
				t.Fatal(err)
			}
			g := guest.New(b.(box.Lasting).Agent, guest.Options{})
			t.Cleanup(func() {
				g.Close()
				for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
					err := b.Destroy(context.Background())
					if err == nil {
						return
					}
					// On a busy host its processes may take longer to die than one call waits.
					if !errors.Is(err, context.DeadlineExceeded) || time.Now().After(end) {
						t.Error(err)
						return
					}
					t.Logf("asked again: %v", err)
				}
			})
			fn(t, tier.Name(), g)
		})
	}
}

// program builds one of the programs that run in boxes, as make does.
func program(t *testing.T, name string) *io.SectionReader {
	t.Helper()
	out := filepath.Join(t.TempDir(), name)
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", out, "./cmd/"+name)
	cmd.Dir, cmd.Env = harness.ModuleRoot(), append(os.Environ(), "CGO_ENABLED=0")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cannot build %s: %v\n%s", name, err, b)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return io.NewSectionReader(bytes.NewReader(b), 0, int64(len(b)))
}

// patience bounds every wait for something that must come.
const patience = 2 * time.Minute

// run runs a program to its end.
func run(t *testing.T, g *guest.Guest, s box.ProcessSpec) (out string, end *box.End) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s.Env = append(s.Env, "PATH=/usr/bin:/bin")
	p, err := g.Start(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	err = g.Follow(ctx, box.ProcessRef{PID: p.PID}, box.Positions{}, func(e box.ProcessEvent) error {
		out += string(e.Data)
		end = e.End
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out, end
}

func sh(script string) box.ProcessSpec {
	return box.ProcessSpec{Command: box.Command{Argv: []string{"sh", "-c", script}}}
}

func TestTheAgentInEveryTier(t *testing.T) {
	inTiers(t, func(t *testing.T, name box.TierName, g *guest.Guest) {
		none := "0000000000000000"
		caps := "CapPrm:\t" + none + "\nCapEff:\t" + none + "\n"
		out, _ := run(t, g, sh("id -u; grep -E 'Cap(Prm|Eff)' /proc/self/status; ls -m /proc/self/fd; echo hi >/dev/stdout"))
		if want := "1000\n" + caps + "0, 1, 2, 3\nhi\n"; out != want {
			t.Errorf("a program: %q, want %q", out, want)
		}
		root := sh("id -u")
		root.User = box.UserRoot
		if name == box.TierGvisor {
			if out, _ := run(t, g, root); out != "0\n" {
				t.Errorf("root: %q", out)
			}
		} else if _, err := g.Start(t.Context(), root); box.KindOf(err) != box.Unsupported {
			t.Errorf("root: %v", err)
		}
		tty := sh("tty; stty size; echo again >$(tty); kill -9 $$")
		tty.TTY = &box.WindowSize{Rows: 7, Cols: 9}
		if out, end := run(t, g, tty); !strings.HasPrefix(out, "/dev/pts/") || !strings.HasSuffix(out, "7 9\r\nagain\r\n") || end.Cause != box.Signaled {
			t.Errorf("a terminal: %q, %+v", out, end)
		}
		// Nothing in the box ends the agent by chance: not by its number, not with all.
		other, err := g.Start(t.Context(), box.ProcessSpec{Command: box.Command{Argv: []string{"/bin/sleep", "60"}}})
		if err != nil {
			t.Fatal(err)
		}
		if out, _ := run(t, g, sh("kill -9 $PPID 1 2>/dev/null || echo refused; kill -9 -1; echo here")); out != "refused\nhere\n" {
			t.Errorf("one that kills: %q", out)
		}
		err = g.Follow(t.Context(), box.ProcessRef{PID: other.PID}, box.Positions{}, func(e box.ProcessEvent) error {
			if e.End != nil && e.End.Signal != 9 {
				t.Errorf("the other one: %+v", e.End)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		m, err := g.Metrics(t.Context())
		if err != nil || m.MemoryTotal > 1<<30 || m.MemoryUsed == 0 || m.MemoryUsed > 1<<30 || m.DiskTotal == 0 || m.DiskTotal > 1<<30 {
			t.Errorf("%+v, %v", m, err)
		}
		watched := make(chan box.Change, 100)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			_ = g.Watch(ctx, "/workspace", true, func(c box.Change) error { watched <- c; return nil })
		}()
		<-watched // it stands
		if _, err := g.Write(t.Context(), "/workspace/new/file", box.WriteOptions{Parents: true, Attributes: map[string][]byte{"user.a": []byte("b")}}, strings.NewReader("text")); err != nil {
			t.Fatal(err)
		}
		for c := range watched {
			if c.Path == "new/file" && c.What == box.ChangeCreate {
				break
			}
		}
		e, err := g.Stat(t.Context(), "/workspace/new/file", false)
		if err != nil || e.UID != 1000 || e.Size != 4 || string(e.Attributes["user.a"]) != "b" {
			t.Errorf("%+v, %v", e, err)
		}
		if _, err := g.Write(t.Context(), "/workspace/new/file", box.WriteOptions{Exclusive: true}, strings.NewReader("x")); box.KindOf(err) != box.Conflict {
			t.Errorf("exclusive: %v", err)
		}
		if err := g.Move(t.Context(), "/workspace/new", "/workspace/newer", false); err != nil {
			t.Error(err)
		}
		if _, r, err := g.Read(t.Context(), "/proc/self/exe", 0, -1); err == nil {
			r.Close()
			t.Error("a link of /proc to an open file was followed")
		}
		out, _ = run(t, g, sh("cat /workspace/newer/file; (sleep 0.1 &); exit 3"))
		if out != "text" {
			t.Errorf("got %q", out)
		}
	})
}
