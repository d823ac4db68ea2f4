// Package egress attacks the gateway from inside real boxes: both tiers, as root and
// as an ordinary user, against a world in a network namespace of its own that writes
// down what reaches it. Each denial is paired with the same bytes where they are
// allowed and have to arrive, so that a world that nobody reaches fails the test.
//
// The tests run in a fresh network namespace, which takes root. No address outside of
// the two namespaces is spoken to.
package egress

import (
	"os"
	"testing"

	"github.com/sunaba-dev/sunaba/test/harness"
	"github.com/sunaba-dev/sunaba/test/upstream"
)

const (
	resolverAddr = upstream.Resolver
	goodAddr     = upstream.GoodAddr
	goodAddr6    = upstream.GoodAddr6
	evilAddr     = upstream.EvilAddr
	privateAddr  = upstream.PrivateAddr
	privateAddr2 = upstream.PrivateAddr2
	metadataAddr = upstream.MetadataAddr
	here4        = upstream.Here4
)

func TestMain(m *testing.M) {
	os.Exit(upstream.Main(func() int { return harness.Main(m) }))
}

type seen = upstream.Seen

// farm is the world: test/upstream.
type farm struct{ *upstream.Farm }

func (f *farm) take(t testing.TB) []seen {
	t.Helper()
	return f.Take(t)
}

// theWorld is for tests, which need it.
func theWorld(t *testing.T) *farm {
	t.Helper()
	return &farm{upstream.Of(t)}
}
