package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sunaba-dev/sunaba/box"
)

const (
	maxFile   = 1 << 20 // bytes
	maxErrors = 100     // reported for one file
)

// Load reads a configuration file; name is for messages. What the file does
// not say has its default, and an empty file is [Default].
//
// The error is [Errors] with everything that is wrong in the file, or a
// [*box.Error] if r itself fails. box.KindOf tells Invalid from Denied (a
// mount source that is always refused) and Unsupported (a network).
func Load(name string, r io.Reader) (Config, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return Config{}, box.Errorf(box.Invalid, opLoad, "cannot read %s: %w", name, err)
	}
	l := &loader{file: name, config: Default()}
	l.load(data)
	if len(l.errs) > 0 {
		slices.SortStableFunc(l.errs, func(a, b *Error) int { return a.Line - b.Line })
		return Config{}, l.errs
	}
	return l.config, nil
}

type loader struct {
	file   string
	config Config
	errs   Errors
}

func (l *loader) fail(p place, key string, err *box.Error) {
	if len(l.errs) < maxErrors {
		l.errs = append(l.errs, &Error{File: l.file, Line: p.line, Column: p.column, Key: key, Err: err})
	}
}

func (l *loader) failf(p place, key, format string, args ...any) {
	l.fail(p, key, box.Errorf(box.Invalid, opLoad, format, args...))
}

func (l *loader) load(data []byte) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if !l.checkText(data) {
		return
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return
	case err != nil:
		l.syntax(data, err)
		return
	}
	var more yaml.Node
	switch err := dec.Decode(&more); {
	case errors.Is(err, io.EOF):
	case err != nil:
		l.syntax(data, err)
		return
	default:
		l.failf(at(&more), "", "cannot use a second document; allowed: one document in a file")
	}
	if len(doc.Content) == 1 {
		l.section(doc.Content[0], "", "")
	}
}

func at(n *yaml.Node) place { return place{max(n.Line, 1), max(n.Column, 1)} }

// section reads a mapping. The root has one key, sandbox, and the names of all
// others are counted from there.
func (l *loader) section(n *yaml.Node, name, prefix string) {
	if !l.plainNode(n, name) || isNull(n) {
		return // an empty section says nothing
	}
	if n.Kind != yaml.MappingNode {
		what := name
		if what == "" {
			what = "the file"
		}
		l.failf(at(n), name, "cannot read %s: it is %s; allowed: keys with values (%s)", what, describe(n), strings.Join(l.children(name), ", "))
		return
	}
	l.pairs(n, name, func(key string, k, v *yaml.Node) {
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
			l.section(v, full, full+".")
		} else {
			l.unknown(k, name, full)
		}
	})
}

// pairs calls f for each pair of a mapping whose key is a plain word that did
// not come before.
func (l *loader) pairs(n *yaml.Node, name string, f func(key string, k, v *yaml.Node)) {
	seen := make(map[string]int)
	for i := 0; i+1 < len(n.Content) && len(l.errs) < maxErrors; i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		switch {
		case k.Tag == "!!merge":
			l.failf(at(k), name, "cannot use the merge key <<; allowed: each key where it holds")
		case !l.plainNode(k, name):
		case k.Kind != yaml.ScalarNode:
			l.failf(at(k), name, "cannot use %s as a key; allowed: a word", describe(k))
		case seen[k.Value] > 0:
			l.failf(at(k), strings.TrimPrefix(name+"."+k.Value, "."), "cannot use key %s twice; it was first given at line %d", plain(k.Value), seen[k.Value])
		default:
			seen[k.Value] = k.Line
			f(k.Value, k, v)
		}
	}
}

// plainNode refuses what only YAML has: aliases, anchors and tags.
func (l *loader) plainNode(n *yaml.Node, name string) bool {
	what := ""
	switch {
	case n.Kind == yaml.AliasNode:
		what = "the alias " + quote("*"+n.Value)
	case n.Anchor != "":
		what = "the anchor " + quote("&"+n.Anchor)
	case n.Style&yaml.TaggedStyle != 0:
		what = "the tag " + quote(n.Tag)
	default:
		return true
	}
	l.failf(at(n), name, "cannot use %s; allowed: values written where they hold", what)
	return false
}

// key reads the value of one known key.
func (l *loader) key(k Key, n *yaml.Node) {
	if !l.plainNode(n, k.Name) {
		return
	}
	if isNull(n) {
		l.failf(at(n), k.Name, "cannot set %s to nothing; leave the key out for the default; allowed: %s", k.Name, k.Allowed)
		return
	}
	switch k.shape {
	case scalar:
		l.scalar(k.Name, n, k.Allowed, k.set)
	case env:
		l.env(k, n)
	default:
		if n.Kind != yaml.SequenceNode {
			l.failf(at(n), k.Name, "cannot set %s to %s; allowed: a list", k.Name, describe(n))
			return
		}
		if len(n.Content) > maxList {
			l.failf(at(n), k.Name, "cannot set %s to %d elements; allowed: at most %d", k.Name, len(n.Content), maxList)
			return
		}
		k.clear(&l.config)
		for i, e := range n.Content {
			name := fmt.Sprintf("%s[%d]", k.Name, i)
			if k.shape == mounts {
				l.mount(name, e, k)
			} else {
				l.scalar(name, e, k.Allowed, k.set)
			}
		}
	}
}

func (l *loader) scalar(name string, n *yaml.Node, allowed string, set func(*Config, value) error) {
	if !l.plainNode(n, name) {
		return
	}
	if n.Kind != yaml.ScalarNode || isNull(n) {
		l.failf(at(n), name, "cannot set %s to %s; allowed: a single value, %s", name, describe(n), allowed)
		return
	}
	if err := set(&l.config, value{n.Value, formOf(n)}); err != nil {
		l.fail(at(n), name, cannotSet(opLoad, name, given(n), err))
	}
}

func (l *loader) env(k Key, n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		l.failf(at(n), k.Name, "cannot set %s to %s; allowed: %s", k.Name, describe(n), k.Type)
		return
	}
	l.pairs(n, k.Name, func(key string, kn, v *yaml.Node) {
		l.scalar(k.Name+"."+plain(key), v, string(text), func(c *Config, val value) error {
			if err := val.want(text, integer, float); err != nil {
				return err
			}
			return putEnv(c, key, val.text)
		})
	})
}

// mount reads {host: PATH, container: PATH}.
func (l *loader) mount(name string, n *yaml.Node, k Key) {
	if !l.plainNode(n, name) {
		return
	}
	if n.Kind != yaml.MappingNode {
		l.failf(at(n), name, "cannot set %s to %s; allowed: {host: PATH, container: PATH}", name, describe(n))
		return
	}
	m := box.Mount{ReadOnly: strings.HasSuffix(k.Name, "read_only_mounts")}
	before := len(l.errs)
	l.pairs(n, name, func(key string, kn, v *yaml.Node) {
		part := map[string]*string{"host": &m.Source, "container": &m.Target}[key]
		if part == nil {
			l.fail(at(kn), name, unknownKey(opLoad, key, name, Nearest(key, []string{"host", "container"})))
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
	if len(l.errs) > before {
		return
	}
	if m.Source == "" || m.Target == "" {
		l.failf(at(n), name, "cannot set %s: it needs both host and container", name)
		return
	}
	if err := putMount(&l.config, m); err != nil {
		l.fail(at(n), name, cannotSet(opLoad, name, quote(m.Source+":"+m.Target), err))
	}
}
