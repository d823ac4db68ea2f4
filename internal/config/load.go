package config

import (
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/settings"
)

// Load reads a configuration file; name is for messages. What the file does
// not say has its default, and an empty file is [Default].
//
// The error is [Errors] with everything that is wrong in the file, or a
// [*box.Error] if r itself fails. box.KindOf tells Invalid from Denied (a
// mount source that is always refused) and Unsupported (a network).
func Load(name string, r io.Reader) (Config, error) {
	data, err := io.ReadAll(io.LimitReader(r, settings.MaxFile+1))
	if err != nil {
		return Config{}, box.Errorf(box.Invalid, opLoad, "cannot read %s: %w", name, err)
	}
	c, _, err := Lint(name, data)
	return c, err
}

// Lint is [Load] of a text, with what in its network.rules is likely not meant.
func Lint(name string, data []byte) (c Config, warnings settings.Errors, err error) {
	l := &loader{Reader: settings.Reader{File: name, Op: opLoad}, config: Default()}
	if root := l.Document(data); root != nil {
		l.section(root, "", "")
		l.checkNetwork()
	}
	if err := l.Err(); err != nil {
		return Config{}, nil, err
	}
	return l.config, l.warnings, nil
}

// Is reports whether a text is a configuration, and no policy: whether it has the key
// of one at its top.
func Is(data []byte) bool {
	var top map[string]yaml.Node
	if len(data) > settings.MaxFile || yaml.Unmarshal(data, &top) != nil {
		return false
	}
	_, ok := top["sandbox"]
	return ok
}

type loader struct {
	settings.Reader
	config   Config
	network  settings.Place  // where the section of that name is; zero if there is none
	warnings settings.Errors // about network.rules
	mode     bool            // network.mode is said
}

// section reads a mapping. The root has one key, sandbox, and the names of all
// others are counted from there.
func (l *loader) section(n *yaml.Node, name, prefix string) {
	if !l.PlainNode(n, name) || settings.IsNull(n) {
		return // an empty section says nothing
	}
	if n.Kind != yaml.MappingNode {
		what := name
		if what == "" {
			what = "the file"
		}
		l.Failf(settings.At(n), name, "cannot read %s: it is %s; allowed: keys with values (%s)", what, settings.Describe(n), strings.Join(l.children(name), ", "))
		return
	}
	l.Pairs(n, name, func(key string, k, v *yaml.Node) {
		full := prefix + key
		if name == "" {
			if key != "sandbox" {
				l.unknown(k, name, key)
				return
			}
			l.section(v, "sandbox", "")
			return
		}
		if known, ok := find(full); ok {
			l.key(known, v)
		} else if isSection(full) {
			if full == "network" {
				l.network = settings.At(v)
			}
			l.section(v, full, full+".")
		} else {
			l.unknown(k, name, full)
		}
	})
}

// key reads the value of one known key.
func (l *loader) key(k Key, n *yaml.Node) {
	l.mode = l.mode || k.Name == "network.mode"
	if !l.PlainNode(n, k.Name) {
		return
	}
	if settings.IsNull(n) {
		l.Failf(settings.At(n), k.Name, "cannot set %s to nothing; leave the key out for the default; allowed: %s", k.Name, k.Allowed)
		return
	}
	switch k.shape {
	case scalar:
		l.scalar(k.Name, n, k.Allowed, k.set)
	case env:
		l.env(k, n)
	case subtree:
		l.rules(k, n)
	default:
		if n.Kind != yaml.SequenceNode {
			l.Failf(settings.At(n), k.Name, "cannot set %s to %s; allowed: a list", k.Name, settings.Describe(n))
			return
		}
		if len(n.Content) > maxList {
			l.Failf(settings.At(n), k.Name, "cannot set %s to %d elements; allowed: at most %d", k.Name, len(n.Content), maxList)
			return
		}
		k.clear(&l.config)
		for i, e := range n.Content {
			name := fmt.Sprintf("%s[%d]", k.Name, i)
			switch k.shape {
			case mounts:
				l.mount(name, e, k)
			case volumes:
				l.volume(name, e)
			default:
				l.scalar(name, e, k.Allowed, k.set)
			}
		}
	}
}

func (l *loader) scalar(name string, n *yaml.Node, allowed string, set func(*Config, value) error) {
	if !l.PlainNode(n, name) {
		return
	}
	if n.Kind != yaml.ScalarNode || settings.IsNull(n) {
		l.Failf(settings.At(n), name, "cannot set %s to %s; allowed: a single value, %s", name, settings.Describe(n), allowed)
		return
	}
	if err := set(&l.config, value{n.Value, formOf(n)}); err != nil {
		l.Fail(settings.At(n), name, cannotSet(opLoad, name, settings.Given(n), err))
	}
}

func (l *loader) env(k Key, n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		l.Failf(settings.At(n), k.Name, "cannot set %s to %s; allowed: %s", k.Name, settings.Describe(n), k.Type)
		return
	}
	l.Pairs(n, k.Name, func(key string, kn, v *yaml.Node) {
		l.scalar(k.Name+"."+settings.Plain(key), v, string(text), func(c *Config, val value) error {
			if err := val.want(text, integer, float); err != nil {
				return err
			}
			return putEnv(c, key, val.text)
		})
	})
}

// mount reads {host: PATH, container: PATH}.
func (l *loader) mount(name string, n *yaml.Node, k Key) {
	if !l.PlainNode(n, name) {
		return
	}
	if n.Kind != yaml.MappingNode {
		l.Failf(settings.At(n), name, "cannot set %s to %s; allowed: {host: PATH, container: PATH}", name, settings.Describe(n))
		return
	}
	m := box.Mount{ReadOnly: strings.HasSuffix(k.Name, "read_only_mounts")}
	before := len(l.Errs)
	l.Pairs(n, name, func(key string, kn, v *yaml.Node) {
		part := map[string]*string{"host": &m.Source, "container": &m.Target}[key]
		if part == nil {
			l.Fail(settings.At(kn), name, settings.UnknownKey(opLoad, key, name, settings.Nearest(key, []string{"host", "container"})))
			return
		}
		l.scalar(name+"."+key, v, "a path", func(_ *Config, val value) error {
			if err := val.want(text); err != nil {
				return err
			}
			*part = val.text
			return checkPart(key, val.text, m.ReadOnly)
		})
	})
	if len(l.Errs) > before {
		return
	}
	if m.Source == "" || m.Target == "" {
		l.Failf(settings.At(n), name, "cannot set %s: it needs both host and container", name)
		return
	}
	if err := putMount(&l.config, m); err != nil {
		l.Fail(settings.At(n), name, cannotSet(opLoad, name, settings.Quote(m.Source+":"+m.Target), err))
	}
}
