// Package probe tries what boxes need of this host, for every tier whose boxes
// are processes of it: each step once, in the order in which a box needs it.
// Nothing is concluded from a version number or from a setting.
//
// A tier makes a [Probe], adds the shared steps and its own, and asks for
// [Probe.Caps]. What is tried in namespaces like a box's is tried by a child,
// see package host/trial. Of each step that is weak, Weak holds the words in
// which a box of the tier reports it.
package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/trial"
	"github.com/sunaba-dev/sunaba/internal/image"
)

// Timeout bounds a whole probe; a host that works needs a second.
const Timeout = 20 * time.Second

// Names of steps that others refer to.
const (
	StepState   = "state folder"
	StepDevices = "devices and folders"
	StepProgram = "own program"
	StepAll     = "all namespaces at once"
	StepBox     = "whole box"
)

// Step is a box.Step and what it means for the tier.
type Step struct {
	box.Step
	// Needed steps are those without which there is no box. A step that is
	// missing and not needed takes one feature away.
	Needed  bool
	Weak    []string // what a box would report, if the step is weak
	Follows bool     // not tried, because of another step
}

// Probe collects steps.
type Probe struct {
	// Child is who a box's first process would be: host user, file and
	// capabilities. Its program must hand [trial.Argv] to [trial.Main].
	Child host.Spawn
	// Passed is what a child gets that is in all of a box's namespaces, after
	// its mount of /usr.
	Passed []*os.File
	Steps  []Step
}

// Add appends steps.
func (p *Probe) Add(s ...Step) { p.Steps = append(p.Steps, s...) }

// Works reports whether the named step was tried and worked.
func (p *Probe) Works(name string) bool {
	return slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Name == name && s.State == box.Works })
}

// FirstMissing names the first needed step that failed, or is empty.
func (p *Probe) FirstMissing() string {
	for _, s := range p.Steps {
		if s.Needed && s.State == box.Missing {
			return s.Name
		}
	}
	return ""
}

// Caps sums up.
func (p *Probe) Caps() box.Caps {
	c := box.Caps{Usable: p.FirstMissing() == "", Steps: []box.Step{}, Weak: []string{}, Missing: []string{}}
	for _, s := range p.Steps {
		c.Steps = append(c.Steps, s.Step)
		for _, w := range s.Weak {
			if !slices.Contains(c.Weak, w) {
				c.Weak = append(c.Weak, w)
			}
		}
		if s.Needed && s.State == box.Missing && !s.Follows {
			c.Missing = append(c.Missing, s.Name+": "+s.Detail)
		}
	}
	return c
}

// Needed is a step without which there is no box.
func Needed(s box.Step) Step { return Step{Step: s, Needed: true} }

// NotTried is a needed step that cannot work because another one does not.
func NotTried(name, because string) Step {
	s := Needed(trial.Missing(name, errors.New("not tried: it needs "+because), ""))
	s.Follows = true
	return s
}

// heard reads the steps that a child said and returns one of each name. A step
// of which nothing was heard is missing.
func heard(said []byte, err error, names []string) []Step {
	var steps []box.Step
	if jerr := json.Unmarshal(said, &steps); err == nil {
		err = jerr
	}
	if err == nil {
		err = errors.New("no answer")
	}
	var out []Step
	for i, name := range names {
		if i < len(steps) && steps[i].Name == name {
			s := Needed(steps[i])
			s.Follows = strings.HasPrefix(s.Detail, "not tried: ")
			out = append(out, s)
			continue
		}
		out = append(out, Needed(trial.Missing(name, fmt.Errorf("cannot try: %w", err), "")))
	}
	return out
}

// Inside runs the named steps in a child that is in all of a box's namespaces.
// Args are its arguments; its last one will say how it gets a mount of /usr, see
// trial.UsrPassed. Without the namespaces nothing is tried.
func (p *Probe) Inside(ctx context.Context, names []string, args ...string) []Step {
	if !p.Works(StepAll) {
		var out []Step
		for _, name := range names {
			out = append(out, NotTried(name, StepAll))
		}
		return out
	}
	s, usr := p.Child, trial.UsrOwn
	s.Files = p.Passed
	if host.IsRoot() {
		// Root's boxes get their host folders as mounts that root has made.
		if tree, err := trial.CloneUsr(); err == nil {
			defer tree.Close()
			s.Files, usr = append([]*os.File{tree}, p.Passed...), trial.UsrPassed
		} else {
			usr = err.Error()
		}
	}
	s.Args = append(slices.Clip(args), usr)
	said, err := s.Try(ctx, host.NamespaceBox)
	return heard(said, err, names)
}

// Spec is a box that can do little.
func Spec() box.Spec {
	return box.Spec{
		ID: box.NewID(), Tenant: "local", Principal: "doctor",
		Image: box.ImageHost, Workdir: image.DefaultWorkdir, Hostname: image.DefaultHostname,
		Limits: box.Limits{
			MilliCPU: 1000, Memory: 64 << 20, Processes: 16, OpenFiles: 64,
			Disk: 16 << 20, Files: 1000, OnLimit: box.LimitRecord,
		},
		Net: box.Net{Mode: box.NetNone},
	}
}
