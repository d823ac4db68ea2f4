package cgroup

import (
	"reflect"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
)

func TestMountsAreReadFromMountinfo(t *testing.T) {
	const text = `22 27 0:21 / /proc rw,relatime - proc proc rw
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 master:2 - cgroup cgroup rw,cpu,cpuacct
33 31 0:30 /docker/a\040b /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
34 31 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory,hidden
35 31 0:32 / /elsewhere rw - cgroup cgroup rw,pids
36 31 0:38 / /sys/fs/cgroup/unified rw,nsdelegate - cgroup2 cgroup2 rw
torn line
`
	want := []mount{
		{1, "/", "/sys/fs/cgroup/cpu,cpuacct", []string{"rw", "cpu", "cpuacct"}},
		{1, "/", "/sys/fs/cgroup/memory", []string{"rw", "memory", "hidden"}},
		{2, "/", "/sys/fs/cgroup/unified", []string{"rw"}},
	}
	if got := parseMounts(text, Root); !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
	if got := parseMounts("33 31 0:30 /docker/a\\040b /x\\134y rw - cgroup2 c rw\n", "/"); len(got) != 1 || got[0].root != "/docker/a b" || got[0].point != `/x\y` {
		t.Errorf("escapes: %+v", got)
	}
}

func TestWithinNeedsAWholeComponent(t *testing.T) {
	for _, c := range []struct {
		dir, p, rel string
		ok          bool
	}{
		{"/a", "/a/b", "b", true}, {"/a", "/a", "", true}, {"/", "/a/b", "a/b", true},
		{"/a", "/ab", "", false}, {"/a", "/a/../b", "", false}, {"/a", "", "", false},
	} {
		if rel, ok := within(c.dir, c.p); rel != c.rel || ok != c.ok {
			t.Errorf("within(%q, %q) = %q, %v", c.dir, c.p, rel, ok)
		}
	}
}

func TestHostWithoutControlGroupsIsNoErrorButUnusable(t *testing.T) {
	m := detect(kernelFS{}, Root, "", "", 1)
	if names, err := m.List(); len(names) != 0 || err != nil {
		t.Errorf("List: %v, %v", names, err)
	}
	if _, err := m.Create("bx1", Limits{}); err == nil {
		t.Error("a group was made of nothing")
	}
	for _, s := range m.Probe(t.Context()) {
		if s.Advice == "" {
			t.Errorf("%s: no advice", s.Name)
		}
	}
}

func TestTreeThatIsCoveredByAnotherMountIsUnusable(t *testing.T) {
	top := t.TempDir()
	info := "33 31 0:30 / " + top + "/gone rw - cgroup cgroup rw,memory,pids\n"
	m := detect(kernelFS{}, top, info, "", 1)
	if _, err := m.Create("bx1", Limits{Pids: 8}); box.KindOf(err) != box.Unusable {
		t.Errorf("got %v, want an error of kind unusable", err)
	}
}
