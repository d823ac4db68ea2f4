package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

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

// stateHelp says where stateDir is without a flag.
const stateHelp = "SUNABA_STATE, or /var/lib/sunaba as root and ~/.local/state/sunaba else"

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
	state    string
	imageDir string       // below the state folder if empty
	images   frame.Images // its Store is opened by prepare
	debug    string       // folder for gVisor's log; empty for none

	groups  *cgroup.Manager
	agent   *io.SectionReader
	program *os.File          // the agent, sealed; nil if this program is the agent
	daemon  *io.SectionReader // the agent of boxes that last; nil if this program is it
}

// prepare does what every tier needs.
func (c *common) prepare() error {
	// Two of the longer steps that need nothing of each other.
	found := make(chan error, 1)
	go func() {
		var err error
		c.groups, err = cgroup.Detect(cgroup.Root, cgroup.MountInfo, cgroup.SelfCgroup)
		found <- err
	}()
	err := c.prepareFiles()
	return errors.Join(err, <-found)
}

func (c *common) prepareFiles() (err error) {
	if c.images.Store, err = image.OpenStore(cmp.Or(c.imageDir, filepath.Join(c.state, "images"))); err != nil {
		return err
	}
	c.daemon = embedded.Daemon()
	if c.agent = embedded.Agent(); c.agent != nil {
		c.program, err = host.Sealed("sunaba-agent", c.agent)
		return err
	}
	// A plain `go build` has no separate agent: this program can be it.
	self, err := os.Open(host.SelfExe)
	if err != nil {
		return fmt.Errorf("cannot read own program: %w", err)
	}
	info, err := self.Stat()
	if err != nil {
		return fmt.Errorf("cannot read own program: %w", err)
	}
	c.agent = io.NewSectionReader(self, 0, info.Size())
	return nil
}

// tiers lists the tiers of this build, by hand: there is no registration.
func tiers(c *common) []*deferred {
	ready := sync.OnceValue(c.prepare)
	list := []*deferred{
		{name: box.TierProcess, make: func() (box.Tier, error) {
			return process.New(process.Config{State: c.state, Images: c.images, Groups: c.groups, Agent: c.agent, Program: c.program, Daemon: c.daemon, Janitor: true})
		}},
		{name: box.TierGvisor, make: func() (box.Tier, error) {
			return gvisor.New(gvisor.Config{State: c.state, Images: c.images, Groups: c.groups, Agent: c.agent, Program: c.program, Daemon: c.daemon, Debug: c.debug, Janitor: true})
		}},
	}
	for _, d := range list {
		d.tier = sync.OnceValues(func() (box.Tier, error) {
			if err := ready(); err != nil {
				return nil, err
			}
			return d.make()
		})
	}
	return list
}

func newEngine(state string, c common) *engine.Engine {
	c.state = state
	e := &engine.Engine{}
	for _, d := range tiers(&c) {
		e.Tiers = append(e.Tiers, d)
	}
	return e
}
