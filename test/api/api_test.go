package api

import (
	"context"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/guest"
	"github.com/sunaba-dev/sunaba/internal/tier/fake"
	"github.com/sunaba-dev/sunaba/test/harness"
)

func TestTheAgentAlone(t *testing.T) {
	tier := fake.New(fake.Config{Agent: harness.Daemon(t), State: t.TempDir()})
	Run(t, func(t *testing.T) Place {
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
	})
}
