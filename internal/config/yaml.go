package config

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sunaba-dev/sunaba/internal/settings"
)

func formOf(n *yaml.Node) form {
	switch n.Tag {
	case "!!int":
		return integer
	case "!!float":
		return float
	case "!!bool":
		return boolean
	}
	return text
}

func isSection(name string) bool {
	return slices.ContainsFunc(Keys(), func(k Key) bool { return strings.HasPrefix(k.Name, name+".") })
}

// children lists the keys and sections directly in a section.
func (l *loader) children(section string) []string {
	if section == "" {
		return []string{"sandbox"}
	}
	prefix := section + "."
	if section == "sandbox" {
		prefix = ""
	}
	var out []string
	for _, k := range Keys() {
		if rest, ok := strings.CutPrefix(k.Name, prefix); ok {
			first, _, _ := strings.Cut(rest, ".")
			if !slices.Contains(out, first) {
				out = append(out, first)
			}
		}
	}
	return out
}

func (l *loader) unknown(k *yaml.Node, section, full string) {
	own := l.children(section)
	meant := settings.Nearest(k.Value, own)
	if meant == "" {
		meant = near(full)
		if meant != "" && section == "" {
			meant = "sandbox." + meant
		}
	}
	err := settings.UnknownKey(opLoad, k.Value, section, meant)
	if meant == "" {
		err.Message += "; allowed: " + strings.Join(own, ", ")
	}
	l.Fail(settings.At(k), full, err)
}
