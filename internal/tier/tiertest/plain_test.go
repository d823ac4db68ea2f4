package tiertest

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/image"
	"github.com/sunaba-dev/sunaba/internal/tier/frame"
	"github.com/sunaba-dev/sunaba/internal/tier/gvisor"
	"github.com/sunaba-dev/sunaba/internal/tier/process"
)

// In a plain `go build` there are no separate programs for boxes: the program
// that makes them is in them, too.
func TestAPlainBuildIsItsOwnAgent(t *testing.T) {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	info, err := self.Stat()
	if err != nil {
		t.Fatal(err)
	}
	program := io.NewSectionReader(self, 0, info.Size())
	eachTier(t, func(t *testing.T, p *place) {
		images, err := image.OpenStore(filepath.Join(p.state, "images"))
		if err != nil {
			t.Fatal(err)
		}
		before := p.standing
		if p.Name() == box.TierProcess {
			p.standing, err = process.New(process.Config{State: p.state, Images: frame.Images{Store: images}, Groups: p.groups, Agent: program})
		} else {
			p.standing, err = gvisor.New(gvisor.Config{State: p.state, Images: frame.Images{Store: images}, Groups: p.groups, Agent: program})
		}
		if err != nil {
			t.Fatal(err)
		}
		b := p.create(t, spec())
		run(t, use(t, b), "true")
		newer := p.recover(t, b.ID(), b.State())
		b.Detach()
		run(t, use(t, newer), "true")
		p.destroy(t, newer)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		p.standing = before
	})
}
