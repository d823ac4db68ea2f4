package config

import (
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
)

func TestTemplatesAreReadWhole(t *testing.T) {
	all, err := LoadTemplates("t.yaml", strings.NewReader(`templates:
  - name: numpy
    size: 3
    sandbox: {runtime: gvisor, resource_limits: {memory: 256m}}
    warm_up:
      - {language: python, code: "import numpy"}
  - name: bare
`))
	if err != nil || len(all) != 2 || all[0].Size != 3 || all[0].WarmUp[0] != (WarmUp{"python", "import numpy"}) || string(all[1].Sandbox) != "{}" {
		t.Fatalf("%+v %v", all, err)
	}
	if got := string(all[0].Sandbox); got != `{"resource_limits":{"memory":"256m"},"runtime":"gvisor"}` {
		t.Error(got)
	}
	if all, err := LoadTemplates("t.yaml", strings.NewReader("")); err != nil || len(all) != 0 {
		t.Error(all, err)
	}
}

func TestATemplateThatIsWrongIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		"templates: [{name: A}]":                                       `"A"`,
		"templates: [{name: a}, {name: a}]":                            "two are named a",
		"templates: [{name: a, size: -1}]":                             "size -1",
		"templates: [{name: a, size: 1001}]":                           "size 1001",
		"templates: [{name: a, sizes: 1}]":                             "sizes",
		"templates: [{name: a, warm_up: [{language: perl, code: x}]}]": "perl",
		"templates: [{name: a, warm_up: [{language: python}]}]":        "0 bytes",
		"templates: 1":                       "line 1",
		"template: []":                       "template",
		"templates: []\n---\ntemplates: []":  "more than one",
		"templates: [{name: a, sandbox: 3}]": "sandbox",
	} {
		_, err := LoadTemplates("t.yaml", strings.NewReader(text))
		if box.KindOf(err) != box.Invalid || !strings.Contains(err.Error(), "t.yaml") {
			t.Errorf("%s: %v", text, err)
		} else if !strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "cannot unmarshal") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
