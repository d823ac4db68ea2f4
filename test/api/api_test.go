package api

import (
	"context"
	"os"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/guest"
	"github.com/sunaba-dev/sunaba/internal/tier/fake"
	"github.com/sunaba-dev/sunaba/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// onHost opens places that have no walls.
func onHost(t *testing.T) func(*testing.T) Place {
	tier := fake.New(fake.Config{Agent: harness.Daemon(t), State: t.TempDir()})
	return func(t *testing.T) Place {
		b, err := tier.Create(t.Context(), box.Spec{ID: box.NewID(), Lasting: true})
		if err != nil {
			t.Fatal(err)
		}
		g := guest.New(b.(box.Lasting).Agent, guest.Options{})
		t.Cleanup(func() {
			g.Close()
			if err := b.Destroy(context.Background()); err != nil {
				t.Error(err)
			}
		})
		return Place{Box: Over(g), Dir: tier.Dir(b.ID())}
	}
}

func TestTheAgentAlone(t *testing.T) { Run(t, onHost(t)) }

// The control: where there are no walls, what the cases try gives the secret
// away, and writes to the host.
func TestWithoutWallsTheAttacksWork(t *testing.T) {
	p, h := onHost(t)(t), newHost(t)
	if _, err := p.Box.Shell(t.Context(), "ln -s "+h.file+" out.txt; ln -s "+h.dir+" d"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/out.txt", "/d/secret"} {
		if got, err := p.Box.Read(t.Context(), p.Dir+name); err != nil || string(got) != h.secret {
			t.Errorf("%s reads as %q (%v), want the secret", name, got, err)
		}
	}
	if err := p.Box.Write(t.Context(), p.Dir+"/d/new", []byte("x")); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(h.dir + "/new"); string(got) != "x" {
		t.Errorf("the new file on the host says %q (%v)", got, err)
	}
}
