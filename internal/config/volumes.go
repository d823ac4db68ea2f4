package config

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/policy"
	"github.com/sunaba-dev/sunaba/internal/settings"
)

// setVolume reads NAME:BOX or NAME:BOX:ro, as a flag has it.
func setVolume(c *Config, v value) error {
	name, target, ok := strings.Cut(v.text, ":")
	target, mode, more := strings.Cut(target, ":")
	if !ok || more && mode != "ro" && mode != "rw" {
		return fmt.Errorf("allowed: NAME:BOX, NAME:BOX:ro; BOX is an absolute path")
	}
	return putVolume(c, box.Volume{Name: name, Target: target, ReadOnly: mode == "ro"})
}

// putVolume adds a volume. How they go together is for policy.CheckVolumes.
func putVolume(c *Config, v box.Volume) error {
	if err := policy.CheckVolumeName(v.Name); err != nil {
		return err
	}
	if err := policy.CheckTarget(v.Target, ""); err != nil {
		return err
	}
	return add(&c.Volumes, v)
}

// volume reads {name: NAME, container: PATH, read_only: true or false}.
func (l *loader) volume(name string, n *yaml.Node) {
	if !l.PlainNode(n, name) {
		return
	}
	if n.Kind != yaml.MappingNode {
		l.Failf(settings.At(n), name, "cannot set %s to %s; allowed: {name: NAME, container: PATH, read_only: true or false}", name, settings.Describe(n))
		return
	}
	var v box.Volume
	before := len(l.Errs)
	l.Pairs(n, name, func(key string, kn, val *yaml.Node) {
		allowed, set := "", func(value) error { return nil }
		switch key {
		case "name":
			allowed, set = "a name", func(val value) error {
				v.Name = val.text
				if err := val.want(text); err != nil {
					return err
				}
				return policy.CheckVolumeName(val.text)
			}
		case "container":
			allowed, set = "a path", func(val value) error {
				v.Target = val.text
				if err := val.want(text); err != nil {
					return err
				}
				return policy.CheckTarget(val.text, "")
			}
		case "read_only":
			allowed, set = string(boolean), func(val value) error {
				if v.ReadOnly = val.text == "true"; !v.ReadOnly && val.text != "false" {
					return fmt.Errorf("allowed: true, false")
				}
				return val.want(boolean)
			}
		default:
			l.Fail(settings.At(kn), name, settings.UnknownKey(opLoad, key, name, settings.Nearest(key, []string{"name", "container", "read_only"})))
			return
		}
		l.scalar(name+"."+key, val, allowed, func(_ *Config, val value) error { return set(val) })
	})
	if len(l.Errs) > before {
		return
	}
	if v.Name == "" || v.Target == "" {
		l.Failf(settings.At(n), name, "cannot set %s: it needs both name and container", name)
		return
	}
	if err := putVolume(&l.config, v); err != nil {
		l.Fail(settings.At(n), name, cannotSet(opLoad, name, settings.Quote(v.Name+":"+v.Target), err))
	}
}
