package policy

import (
	"regexp"

	"github.com/sunaba-dev/sunaba/box"
)

// maxVolumes of one box: each takes a loop device of the host.
const maxVolumes = 16

// CheckVolumeName refuses a name that no volume has. The error is a [*box.Error] of
// kind Invalid whose message is only the reason.
func CheckVolumeName(name string) error {
	if !regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`).MatchString(name) {
		return box.Errorf(box.Invalid, op, "its name is wrong; allowed: 1 to 64 of a to z, 0 to 9, dot, underscore and hyphen, the first a letter or digit")
	}
	return nil
}

// CheckVolumes refuses a spec whose volumes have no name, appear where they may not,
// come twice, or get in the way of each other or of a mount. The error is a
// [*box.Error] and names the volume.
func CheckVolumes(spec box.Spec) error {
	if len(spec.Volumes) > maxVolumes {
		return box.Errorf(box.Invalid, op, "cannot use %d volumes: allowed: at most %d", len(spec.Volumes), maxVolumes)
	}
	for i, v := range spec.Volumes {
		if err := CheckVolumeName(v.Name); err != nil {
			return named(err, "cannot use volume %.80q", v.Name)
		}
		if err := CheckTarget(v.Target, spec.Workdir); err != nil {
			return named(err, "cannot use volume %q at %q", v.Name, v.Target)
		}
		taken := func(target, by string) error {
			if v.Target != target && !below(v.Target, target) && !below(target, v.Target) {
				return nil
			}
			return box.Errorf(box.Invalid, op, "cannot use volume %q at %q: it overlaps %s at %q; allowed: places beside each other", v.Name, v.Target, by, target)
		}
		for _, m := range spec.Mounts {
			if err := taken(m.Target, "the mount"); err != nil {
				return err
			}
		}
		for _, o := range spec.Volumes[:i] {
			if v.Name == o.Name {
				return box.Errorf(box.Invalid, op, "cannot use volume %q twice in one box", v.Name)
			}
			if err := taken(o.Target, "volume "+o.Name); err != nil {
				return err
			}
		}
	}
	return nil
}
