package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// realV2 makes a group in the tree of version 2 alone, whatever version the
// controllers are of: freezing and killing need none.
func realV2(t *testing.T) *Group {
	t.Helper()
	m, err := Detect(Root, MountInfo, SelfCgroup)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(m.trees, func(t *tree) bool { return t.version == 2 })
	switch {
	case i < 0:
		t.Skip("no tree of version 2 is mounted here")
	case m.trees[i].err != nil:
		t.Skip("this host lets us use no tree of version 2: ", m.trees[i].err)
	}
	g := realGroup(t, &Manager{fs: m.fs, trees: m.trees[i : i+1]}, Limits{})
	if err := g.CanFreeze(); err != nil {
		t.Skip(err) // before Linux 5.2
	}
	return g
}

func TestAFrozenGroupOfTheKernelsVersion2StandsStillAndGoesOn(t *testing.T) {
	g := realV2(t)
	count := filepath.Join(t.TempDir(), "count")
	// Two processes, one of them in a session of its own.
	shell(t, g, `setsid sh -c 'while :; do echo x >>"$1"; sleep 0.005; done' sh "$1.2" & while :; do echo x >>"$1"; sleep 0.005; done`, count)
	size := func() (n int64) {
		for _, name := range []string{count, count + ".2"} {
			st, err := os.Stat(name)
			if err != nil || st.Size() == 0 {
				return 0
			}
			n += st.Size()
		}
		return n
	}
	eventually(t, "a count of both", func() bool { return size() > 0 })
	standsStill(t, g, size)
	if pids, err := g.Procs(); err != nil || len(pids) > 0 {
		t.Errorf("killed: %v, %v", pids, err)
	}
}
