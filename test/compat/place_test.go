package compat

import (
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/test/harness"
)

// The tiers that are held to the same programs.
const (
	gvisor  = "gvisor"
	process = "process"
)

// place is where a program runs: behind which walls, started by whom, on which
// root file system.
type place struct {
	tier  string
	user  harness.User
	image string
}

func (p place) String() string { return p.tier + "/" + string(p.user) + "/" + p.image }

// has says whether every word of a row in docs/compat.md is true of p: a tier,
// a user or an image. No words are true everywhere.
func (p place) has(words []string) bool {
	for _, w := range words {
		if w != p.tier && w != string(p.user) && w != p.image {
			return false
		}
	}
	return true
}

// words takes a cell of a table apart: "process, root", or "all".
func words(cell string) []string {
	var ws []string
	for _, w := range strings.Split(cell, ",") {
		if w = strings.TrimSpace(w); w != "" && w != "all" {
			ws = append(ws, w)
		}
	}
	return ws
}

// run is the start of a command line for p; a flag that is given later wins.
// The deadline that a run has by default is one of a quiet host; none of these is
// about it. What an ordinary user's box of the process tier writes is in memory, so
// the disk of 1 GiB that is the default has to fit there.
func (p place) run(more ...string) []string {
	args := []string{"run", "--image", p.image, "--timeout", "800s"}
	if p.tier == process {
		args = append(args, "--trust", "trusted")
		if p.user == harness.Ordinary {
			args = append(args, "--memory", "1g")
		}
	}
	return append(args, more...)
}

// places are where everything runs that is quick: each user with the image
// host, the first one with the image base too. The tag compat adds the rest.
func places() []place {
	var ps []place
	for _, tier := range []string{gvisor, process} {
		for i, u := range harness.Users() {
			ps = append(ps, place{tier, u, "host"})
			if long || i == 0 {
				ps = append(ps, place{tier, u, "base"})
			}
		}
	}
	return ps
}

func eachPlace(t *testing.T, fn func(t *testing.T, p place)) {
	t.Helper()
	for _, p := range places() {
		t.Run(p.String(), func(t *testing.T) { fn(t, p) })
	}
}

// eachHost runs fn for both tiers and every user, with the image host.
func eachHost(t *testing.T, fn func(t *testing.T, p place)) {
	t.Helper()
	eachPlace(t, func(t *testing.T, p place) {
		if p.image == "host" {
			fn(t, p)
		}
	})
}
