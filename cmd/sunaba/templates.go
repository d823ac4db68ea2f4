package main

import (
	"os"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/config"
	"github.com/sunaba-dev/sunaba/internal/engine"
)

// readTemplates reads the file of --templates; none if it is not given.
func readTemplates(file string) ([]engine.Template, error) {
	if file == "" {
		return nil, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, box.Errorf(box.Invalid, "read templates", "cannot read templates: %w", err)
	}
	defer f.Close()
	all, err := config.LoadTemplates(file, f)
	if err != nil {
		return nil, err
	}
	var out []engine.Template
	for _, t := range all {
		e := engine.Template{Name: t.Name, Sandbox: t.Sandbox, Size: t.Size}
		for _, w := range t.WarmUp {
			e.WarmUp = append(e.WarmUp, engine.WarmUp{Language: w.Language, Code: w.Code})
		}
		out = append(out, e)
	}
	return out, nil
}
