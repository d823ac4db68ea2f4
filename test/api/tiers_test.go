// As in the program itself: see cmd/sunaba.
//
//go:debug containermaxprocs=0

package api

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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
	os.Exit(harness.Main(m))
}

func TestTheProcessTier(t *testing.T) {
	onTier(t, func(s string, agent, daemon *io.SectionReader, groups *cgroup.Manager, images *image.Store) (box.Tier, error) {
		return process.New(process.Config{State: s, Images: frame.Images{Store: images}, Groups: groups, Agent: agent, Daemon: daemon})
	})
}

func TestTheGvisorTier(t *testing.T) {
	onTier(t, func(s string, agent, daemon *io.SectionReader, groups *cgroup.Manager, images *image.Store) (box.Tier, error) {
		return gvisor.New(gvisor.Config{State: s, Images: frame.Images{Store: images}, Groups: groups, Agent: agent, Daemon: daemon})
	})
}

// onTier runs the cases over guests of a real tier, each in a box of its own.
func onTier(t *testing.T, make func(state string, agent, daemon *io.SectionReader, groups *cgroup.Manager, images *image.Store) (box.Tier, error)) {
	state, err := os.MkdirTemp("/var/tmp", "sunaba-api-")
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
	if err := os.Chmod(state, 0o711); err != nil {
		t.Fatal(err)
	}
	images, err := image.OpenStore(filepath.Join(state, "images"))
	if err != nil {
		t.Fatal(err)
	}
	groups, err := cgroup.Detect(cgroup.Root, cgroup.MountInfo, cgroup.SelfCgroup)
	if err != nil {
		t.Fatal(err)
	}
	tier, err := make(state, program(t, "sunaba-agent"), program(t, "sunaba-agentd"), groups, images)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tier.(io.Closer).Close() })
	Run(t, func(t *testing.T) Place {
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
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			if err := b.Destroy(ctx); err != nil {
				t.Error(err)
			}
		})
		return Place{Box: Over(g), Dir: "/workspace", Walls: true}
	})
}

// program builds one of the programs that run in boxes, the way make does.
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
