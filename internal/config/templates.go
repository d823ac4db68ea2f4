package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/settings"
)

// Template is an entry of a templates file.
type Template struct {
	Name    string
	Sandbox json.RawMessage // the keys below sandbox, as JSON; judged by whoever uses them
	Size    int             // copies kept warm
	WarmUp  []WarmUp
}

// WarmUp is code that is run in a template's box before it is copied.
type WarmUp struct {
	Language string `yaml:"language"`
	Code     string `yaml:"code"`
}

const (
	opTemplates  = "read templates"
	maxTemplates = 32
	maxWarmUp    = 32
)

// LoadTemplates reads a templates file; name is for messages. Errors are Invalid.
func LoadTemplates(name string, r io.Reader) ([]Template, error) {
	data, err := io.ReadAll(io.LimitReader(r, settings.MaxFile+1))
	wrong := func(format string, args ...any) error {
		return box.Errorf(box.Invalid, opTemplates, "cannot read templates of "+name+": "+format, args...)
	}
	if err != nil {
		return nil, wrong("%w", err)
	}
	if len(data) > settings.MaxFile {
		return nil, wrong("it has more than %d bytes", settings.MaxFile)
	}
	var file struct {
		Templates []struct {
			Name    string         `yaml:"name"`
			Size    int            `yaml:"size"`
			Sandbox map[string]any `yaml:"sandbox"`
			WarmUp  []WarmUp       `yaml:"warm_up"`
		} `yaml:"templates"`
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, wrong("%w", err)
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, wrong("there is more than one document in it")
	}
	if len(file.Templates) > maxTemplates {
		return nil, wrong("%d templates, at most %d", len(file.Templates), maxTemplates)
	}
	var out []Template
	for i, t := range file.Templates {
		switch {
		case !regexp.MustCompile(`^[a-z0-9._-]{1,64}$`).MatchString(t.Name):
			return nil, wrong("entry %d has the name %q: allowed are 1 to 64 of a to z, 0 to 9, dot, underscore and hyphen", i+1, t.Name)
		case slices.ContainsFunc(out, func(o Template) bool { return o.Name == t.Name }):
			return nil, wrong("two are named %s", t.Name)
		case t.Size < 0 || t.Size > maxPool:
			return nil, wrong("%s has size %d: allowed are 0 to %d", t.Name, t.Size, maxPool)
		case len(t.WarmUp) > maxWarmUp:
			return nil, wrong("%s has %d snippets, at most %d", t.Name, len(t.WarmUp), maxWarmUp)
		}
		for _, w := range t.WarmUp {
			if w.Code == "" || !slices.Contains([]string{"python", "javascript", "bash"}, w.Language) {
				return nil, wrong("a snippet of %s has language %q and %d bytes of code: allowed are python, javascript and bash, and code", t.Name, w.Language, len(w.Code))
			}
		}
		sandbox := json.RawMessage("{}")
		if len(t.Sandbox) > 0 {
			if sandbox, err = json.Marshal(t.Sandbox); err != nil {
				return nil, wrong("sandbox of %s: %w", t.Name, err)
			}
		}
		out = append(out, Template{t.Name, sandbox, t.Size, t.WarmUp})
	}
	return out, nil
}
