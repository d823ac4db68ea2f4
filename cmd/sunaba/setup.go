package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/embedded"
	"github.com/sunaba-dev/sunaba/internal/engine"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/cgroup"
	"github.com/sunaba-dev/sunaba/internal/image"
	"github.com/sunaba-dev/sunaba/internal/tier/frame"
	"github.com/sunaba-dev/sunaba/internal/tier/gvisor"
	"github.com/sunaba-dev/sunaba/internal/tier/process"
)

// stateDir is where images, stores and run folders live: on a disk, not in
// memory, because a box's disk limit is a limit on disk.
func stateDir(flag string) (string, error) {
	dir := flag
	switch {
	case dir != "":
	case os.Getenv("SUNABA_STATE") != "":
		dir = os.Getenv("SUNABA_STATE")
	case host.IsRoot():
		dir = "/var/lib/sunaba"
	case os.Getenv("XDG_STATE_HOME") != "":
		dir = filepath.Join(os.Getenv("XDG_STATE_HOME"), "sunaba")
	default:
		home, err := os.UserHomeDir()
		if err == nil {
			if st, serr := os.Stat(home); serr == nil && st.IsDir() && home != "/" {
				dir = filepath.Join(home, ".local/state/sunaba")
				break
			}
		}
		dir = filepath.Join(os.TempDir(), "sunaba-"+strconv.Itoa(os.Getuid()))
	}
	dir, err := filepath.Abs(dir)
	if err == nil && strings.ContainsAny(dir, `*?[\`) {
		err = fmt.Errorf("%s has one of the characters * ? [ \\ in it, which gVisor takes for a pattern", dir)
	}
	if err == nil {
		err = host.OwnDir(dir)
	}
	if err == nil && host.IsRoot() {
		err = passable(dir)
	}
	if err != nil {
		kind := box.Unusable
		if flag != "" {
			kind = box.Invalid
		}
		return "", box.Errorf(kind, "run", "cannot use state folder: %w", err).
			WithHint("name a folder of your own with --state or SUNABA_STATE")
	}
	return dir, nil
}

// passable checks that root's boxes, each of which is a host user of its own,
// get to what belongs to them below dir.
func passable(dir string) error {
	for d := dir; ; d = filepath.Dir(d) {
		st, err := os.Stat(d)
		if err != nil {
			return err
		}
		if st.Mode()&0o001 == 0 {
			return fmt.Errorf("%s may be entered by its owner only (mode %o); boxes of root run as other users", d, st.Mode().Perm())
		}
		if d == "/" {
			return nil
		}
	}
}

// common is what all tiers of this process are made of.
type common struct {
	images frame.Images // its Store is opened by tiers
	debug  string       // folder for gVisor's log; empty for none
}

// tiers lists the tiers of this build, by hand: there is no registration.
func tiers(state string, c common) ([]box.Tier, error) {
	images, err := image.OpenStore(filepath.Join(state, "images"))
	if err != nil {
		return nil, err
	}
	c.images.Store = images
	groups, err := cgroup.Detect(cgroup.Root, cgroup.MountInfo, cgroup.SelfCgroup)
	if err != nil {
		return nil, err
	}
	agent := embedded.Agent(runtime.GOARCH)
	if agent == nil {
		// A plain `go build` has no separate agent: this program can be it.
		if agent, err = os.ReadFile(host.SelfExe); err != nil {
			return nil, fmt.Errorf("cannot read own program: %w", err)
		}
	}
	p, err := process.New(process.Config{State: state, Images: c.images, Groups: groups, Agent: agent, Janitor: true})
	if err != nil {
		return nil, err
	}
	g, err := gvisor.New(gvisor.Config{State: state, Images: c.images, Groups: groups, Agent: agent, Debug: c.debug, Janitor: true})
	if err != nil {
		return nil, err
	}
	return []box.Tier{p, g}, nil
}

func newEngine(state string, c common) (*engine.Engine, error) {
	ts, err := tiers(state, c)
	if err != nil {
		return nil, err
	}
	for _, t := range ts {
		// What killed runs left behind. A failure here is doctor's to tell; it
		// must not keep a new box from running.
		_, _ = t.Sweep(context.Background(), func(box.ID) bool { return false })
	}
	return &engine.Engine{Tiers: ts}, nil
}
