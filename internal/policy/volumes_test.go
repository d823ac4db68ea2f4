package policy

import (
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
)

func TestNamesOfVolumes(t *testing.T) {
	for _, name := range []string{"a", "0", "a.b", "my-data_1", strings.Repeat("a", 64), "a..b"} {
		if err := CheckVolumeName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", ".", "..", "../x", "/x", "a/b", "-a", ".a", "A", "ä", "a\x00", "a\n", "a b", strings.Repeat("a", 65), "a%2fb"} {
		if err := CheckVolumeName(name); box.KindOf(err) != box.Invalid || err == nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestVolumesMayNotGetInTheWay(t *testing.T) {
	spec := box.Spec{Workdir: "/workspace", Mounts: []box.Mount{{Source: "/srv/x", Target: "/in", ReadOnly: true}}}
	v := func(pairs ...string) (all []box.Volume) {
		for i := 0; i < len(pairs); i += 2 {
			all = append(all, box.Volume{Name: pairs[i], Target: pairs[i+1]})
		}
		return all
	}
	for _, ok := range [][]box.Volume{v(), v("a", "/data"), v("a", "/workspace/data", "b", "/workspace/more"), v("a", "/tmp/x", "b", "/inside")} {
		spec.Volumes = ok
		if err := CheckVolumes(spec); err != nil {
			t.Errorf("%+v: %v", ok, err)
		}
	}
	var many []string
	for i := range maxVolumes + 1 {
		name := "v" + strings.Repeat("x", i)
		many = append(many, name, "/"+name)
	}
	for why, bad := range map[string][]box.Volume{
		"its name is wrong":     v("../x", "/data"),
		"twice":                 v("a", "/data", "a", "/more"),
		"overlaps volume a":     v("a", "/data", "b", "/data/sub"),
		"it overlaps volume a":  v("a", "/data/sub", "b", "/data"),
		"overlaps the mount":    v("a", "/in"),
		"it overlaps the mount": v("a", "/in/sub"),
		"not absolute":          v("a", "data"),
		"not clean":             v("a", "/data/../x"),
		"root of the box":       v("a", "/"),
		"the box itself":        v("a", "/proc/x"),
		"belongs to the box":    v("a", "/.sunaba"),
		"would hide":            v("a", "/workspace"),
		"control characters":    v("a", "/da\x00ta"),
		"at most":               v(many...),
	} {
		spec.Volumes = bad
		if err := CheckVolumes(spec); box.KindOf(err) != box.Invalid || err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v", why, err)
		}
	}
}
