package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/policy"
	"github.com/sunaba-dev/sunaba/internal/settings"
)

const (
	maxPool   = 1000
	maxEnvLen = 128 << 10 // MAX_ARG_STRLEN, NAME= and the final NUL included: execve(2)
	maxList   = 1024
)

func mountKey(name, flag, help string, readOnly bool) Key {
	return Key{Name: name, Flag: flag, Type: "list of {host, container}", Allowed: "absolute, clean, not refused", Help: help, shape: mounts,
		set: func(c *Config, v value) error {
			// The last ":/" parts them: a host path may have a colon.
			i := strings.LastIndex(v.text, ":/")
			if i < 0 {
				return fmt.Errorf("allowed: HOST:BOX, both absolute")
			}
			m := box.Mount{Source: v.text[:i], Target: v.text[i+1:], ReadOnly: readOnly}
			if strings.Contains(m.Target, ":") { // or a mode such as :rw would become part of the name
				return fmt.Errorf("the place in the box has a colon; allowed: HOST:BOX, both absolute")
			}
			return putMount(c, m)
		},
		clear: func(c *Config) {
			c.Mounts = slices.DeleteFunc(slices.Clone(c.Mounts), func(m box.Mount) bool { return m.ReadOnly == readOnly })
		}}
}

// putMount adds a mount. What can be told of it alone is checked here, so that
// a file's error has a line; how mounts go together is for policy.CheckMounts.
func putMount(c *Config, m box.Mount) error {
	if err := policy.CheckSource(m.Source, m.ReadOnly, nil); err != nil {
		return err
	}
	if err := policy.CheckTarget(m.Target, ""); err != nil {
		return err
	}
	return add(&c.Mounts, m)
}

func setWorkdir(c *Config, v value) error {
	if err := v.want(text); err != nil {
		return err
	}
	if err := policy.CheckWorkdir(v.text); err != nil {
		return err
	}
	c.Workdir = v.text
	return nil
}

func setNoMount(c *Config, v value) error {
	if err := v.want(text); err != nil {
		return err
	}
	if err := policy.CheckPath(v.text); err != nil {
		return err
	}
	return add(&c.NoMount, v.text)
}

func setPrefix(c *Config, v value) error {
	if err := v.want(text); err != nil {
		return err
	}
	if err := policy.CheckSource(v.text, true, nil); err != nil {
		return err
	}
	if err := policy.CheckTarget(v.text, ""); err != nil {
		return err
	}
	return add(&c.HostPrefixes, v.text)
}

// add appends to a copy, so that copies of a Config stay independent.
func add[T comparable](field *[]T, v T) error {
	if slices.Contains(*field, v) {
		return nil
	}
	if len(*field) >= maxList {
		return fmt.Errorf("more than %d elements", maxList)
	}
	*field = append(slices.Clone(*field), v)
	return nil
}

func setReuse(c *Config, v value) error {
	if err := v.want(boolean); err != nil {
		return err
	}
	if v.text != "true" && v.text != "false" {
		return fmt.Errorf("allowed: true, false")
	}
	c.Reuse = v.text == "true"
	return nil
}

func setPool(c *Config, v value) error {
	n, err := parseCount(v)
	size := int64(c.PoolSize)
	err = store(&size, n, policy.Range{Max: maxPool}, fmt.Sprintf("0 to %d", maxPool), err)
	c.PoolSize = int(size)
	return err
}

func setEnv(c *Config, v value) error {
	name, val, ok := strings.Cut(v.text, "=")
	if !ok {
		return fmt.Errorf("allowed: NAME=VALUE")
	}
	return putEnv(c, name, val)
}

func putEnv(c *Config, name, val string) error {
	first, _ := settings.SplitNumber(name)
	switch {
	case name == "", first != "", strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") != "":
		return fmt.Errorf("the name %s is not one; allowed: letters, digits and _, not beginning with a digit", settings.Quote(name))
	case strings.ContainsRune(val, 0):
		return fmt.Errorf("the value has a NUL byte, where the system would cut it")
	case len(name)+len(val)+2 > maxEnvLen:
		return fmt.Errorf("it has %d bytes; allowed: at most %d with the name", len(name)+len(val)+2, maxEnvLen)
	case len(c.Env) >= maxList:
		return fmt.Errorf("more than %d variables", maxList)
	}
	env := maps.Clone(c.Env)
	if env == nil {
		env = make(map[string]string)
	}
	env[name] = val
	c.Env = env
	return nil
}

// checkPart checks one half of a mount.
func checkPart(part, p string, readOnly bool) error {
	if part == "host" {
		return policy.CheckSource(p, readOnly, nil)
	}
	return policy.CheckTarget(p, "")
}
