package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/embedded"
	"github.com/sunaba-dev/sunaba/internal/engine"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/cgroup"
	"github.com/sunaba-dev/sunaba/internal/image"
	"github.com/sunaba-dev/sunaba/internal/tier/gvisor"
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

// tiers lists the tiers of this build, by hand: there is no registration.
func tiers(state string, cfg gvisor.Config) ([]box.Tier, error) {
	images, err := image.OpenStore(filepath.Join(state, "images"))
	if err != nil {
		return nil, err
	}
	groups, err := cgroup.Detect("/sys/fs/cgroup", "/proc/self/mountinfo", "/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	cfg.State, cfg.Images.Store, cfg.Groups = state, images, groups
	if cfg.Agent = embedded.Agent(runtime.GOARCH); cfg.Agent == nil {
		// A plain `go build` has no separate agent: this program can be it.
		if cfg.Agent, err = os.ReadFile(host.SelfExe); err != nil {
			return nil, fmt.Errorf("cannot read own program: %w", err)
		}
	}
	g, err := gvisor.New(cfg)
	if err != nil {
		return nil, err
	}
	return []box.Tier{g}, nil
}

func newEngine(state string, cfg gvisor.Config) (*engine.Engine, error) {
	ts, err := tiers(state, cfg)
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
