// Package gvisor is the tier in which a box's system calls are served by a
// kernel in user space. gVisor is linked into this program; nothing needs to be
// installed.
//
// One box is four kinds of process, each with fewer rights than the one that
// started it, all of them this same program re-executed:
//
//	front    the caller's process: builds the box's group and mounts, counts
//	         output, keeps the clock (create.go, package frame)
//	runner   PID 1 of the box's own namespaces, an unprivileged host user;
//	         drives gVisor's library (runner*.go)
//	sentry   the guest's kernel, in an empty root, no capability, under seccomp
//	         (boot.go, limithooks.go; seccomp_unsafe.go starts it faster)
//	gofer    serves host folders, if the box has any (gofer.go)
//
// Root and ordinary users take the same path; root's box gets a host user of
// its own and a control group, an ordinary user's box runs as that user. If
// the front dies the kernel kills the runner, and if the runner dies the kernel
// kills all the rest. All of gVisor's internal packages stay behind this room.
package gvisor

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host/cgroup"
	"github.com/sunaba-dev/sunaba/internal/tier/frame"
)

// Config is what a Tier is made of.
type Config struct {
	State  string // folder for run folders and stores; the caller's own
	Images frame.Images
	Groups *cgroup.Manager // nil where no group can be made
	// Agent is the static program that collects files in the guest.
	Agent *io.SectionReader
	// Daemon is the agent of boxes that last; nil for Agent under that name.
	Daemon *io.SectionReader
	// Program is Agent, sealed, for janitors; this program if nil.
	Program *os.File
	// Debug is a folder for gVisor's own log; empty means none.
	Debug string
	// Janitor starts a helper beside each box that clears its group and run
	// folder if this process dies without doing so.
	Janitor bool
}

// Tier implements box.Tier.
type Tier struct {
	*frame.Site
	cfg      Config
	system   func() (*os.File, error)   // image of systemDir, made once, for the first box
	daemon   func() (*os.File, error)   // that of boxes that last
	versions func() (versions, error)   // but for the image; found once
	held     [2]atomic.Pointer[os.File] // the same, once they were made
}

// New prepares the tier. It starts no process.
func New(cfg Config) (*Tier, error) {
	t := &Tier{cfg: cfg, Site: &frame.Site{State: cfg.State, Groups: cfg.Groups, Janitor: cfg.Janitor, Program: cfg.Program}}
	if err := t.Prepare(); err != nil {
		return nil, err
	}
	t.system = sync.OnceValues(func() (*os.File, error) {
		f, err := systemImage(t.StoreDir(), cfg.Agent)
		t.held[0].Store(f)
		return f, err
	})
	t.daemon = sync.OnceValues(func() (*os.File, error) {
		f, err := lastingSystem(t.StoreDir(), cfg.Agent, cfg.Daemon)
		t.held[1].Store(f)
		return f, err
	})
	t.versions = sync.OnceValues(t.findVersions)
	return t, nil
}

// Close gives up what the tier holds. Boxes live on.
func (t *Tier) Close() error {
	var errs []error
	for i := range t.held {
		if f := t.held[i].Load(); f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// systemFor is the image of systemDir for a box.
func (t *Tier) systemFor(spec box.Spec) (*os.File, error) {
	if spec.Lasting {
		return t.daemon()
	}
	return t.system()
}

// Name implements box.Tier.
func (t *Tier) Name() box.TierName { return box.TierGvisor }
