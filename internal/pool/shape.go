package pool

import (
	"strings"

	"github.com/sunaba-dev/sunaba/box"
)

// Shape is what cannot be changed any more once a box is made. Two boxes of one
// shape can stand in for each other. What is not in it is bound at the lease:
// the cpu quota of the host's control group, the rules of its network, environment, identity, entropy, and whatever is each program's own (time, output).
type Shape struct {
	Tier     box.TierName
	Image    box.ImageName
	Template string // what was run in it beforehand, by name and digest; empty = nothing
	Workdir  string
	Memory   int64 // bytes: the guest's kernel is told at its start
	// Processors that the guest's kernel shows, which it is told at its start; 0
	// of a tier whose boxes see the host's.
	Processors int64
	Disk       int64 // bytes
	Files      int64
	Processes  int64
	OpenFiles  int64
	OnLimit    box.OnLimit
	Hidden     string // Spec.NoMount: part of the walls
	Hostname   string // set at the box's start
	Net        box.NetMode
}

// ShapeOf tells the shape of a decided spec on a tier, or why no pooled box can
// be it: such a spec takes the cold path. It knows of no template.
func ShapeOf(t box.TierName, s box.Spec) (Shape, Miss) {
	switch {
	case !s.Lasting:
		return Shape{}, MissOneShot
	case len(s.Mounts) > 0:
		return Shape{}, MissMounts
	case len(s.Volumes) > 0:
		return Shape{}, MissVolumes
	case len(s.Seeds) > 0:
		return Shape{}, MissSeeds
	}
	l := s.Limits
	var shown int64
	if t == box.TierGvisor {
		shown = l.Processors()
	}
	return Shape{
		Tier: t, Image: s.Image, Workdir: s.Workdir, Memory: l.Memory, Processors: shown, Disk: l.Disk, Files: l.Files,
		Processes: l.Processes, OpenFiles: l.OpenFiles, OnLimit: l.OnLimit,
		Hidden: strings.Join(s.NoMount, "\x00"), Hostname: s.Hostname, Net: s.Net.Mode,
	}, ""
}

// Miss says, in words for a person, why a request gets no warm box. It is empty
// when it got one.
type Miss string

// Misses.
const (
	MissOneShot  Miss = "the box does not last"
	MissMounts   Miss = "the box has mounts of its own"
	MissVolumes  Miss = "the box has volumes"
	MissSeeds    Miss = "the box is made with files in it"
	MissShape    Miss = "no boxes of this shape are kept"
	MissEmpty    Miss = "no warm box was ready"
	MissLate     Miss = "no warm box was ready in time"
	MissBad      Miss = "the warm boxes were not as they were made"
	MissBroken   Miss = "warm boxes of this shape failed and are not used for now"
	MissCanceled Miss = "the caller went away"
	MissClosed   Miss = "the pool is closed"
)
