package tiertest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// Whenever a front is killed while it makes a box, what there is of it is swept
// away by the next one, or ends by itself.
func TestAFrontThatIsKilledAtAnyMomentLeavesNothing(t *testing.T) {
	eachTier(t, func(t *testing.T, p *place) {
		dir, err := built()
		if err != nil {
			t.Fatal(err)
		}
		p.destroy(t, p.create(t, spec())) // its image is there from now on
		for i := range 12 {
			cmd := exec.Command("/proc/self/exe")
			cmd.Args = []string{argvFront, string(p.Name()), p.state}
			cmd.Dir, cmd.Env = "/", []string{programsEnv + "=" + dir, "PATH=/usr/bin:/bin"}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(15+20*i) * time.Millisecond)
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			homes, err := os.ReadDir(filepath.Join(p.state, "boxes"))
			if err != nil {
				t.Fatal(err)
			}
			gone, err := p.SweepLasting(context.Background(), func(box.ID) bool { return false })
			if err != nil || len(gone) != len(homes) {
				t.Errorf("killed after %d ms: swept %v of %d, %v", 15+20*i, gone, len(homes), err)
			}
			p.empty(t)
			for _, h := range homes {
				p.nobody(t, box.ID(h.Name()))
			}
		}
	})
}

// nobody fails if a process of a box's own host user is there.
func (p *place) nobody(t *testing.T, id box.ID) {
	t.Helper()
	uid, _ := p.HostUser(id)
	if uid == os.Getuid() {
		return // whose other processes are there, too
	}
	if err := comes(func() error {
		var left []string
		all, err := filepath.Glob("/proc/[0-9]*/status")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range all {
			if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), fmt.Sprintf("\nUid:\t%d\t", uid)) && !strings.Contains(string(b), "State:\tZ") {
				left = append(left, f)
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("processes of box %s are left: %v", id, left)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
