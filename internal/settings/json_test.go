package settings_test

import (
	"testing"

	"github.com/sunaba-dev/sunaba/internal/settings"
)

func TestPlainYAMLBecomesJSONOfStrings(t *testing.T) {
	for in, want := range map[string]string{
		"a: 1\nb: [x, 0x10, {c: ~}]\n": `{"a":"1","b":["x","0x10",{"c":"~"}]}`,
		"'a b': \"<é\\n>\"\n":          `{"a b":"\u003cé\n\u003e"}`,
		"[]":                           `[]`,
		"{}":                           `{}`,
		"x":                            `"x"`,
	} {
		r := &settings.Reader{File: "f", Op: "read"}
		n := r.Document([]byte(in))
		if n == nil {
			t.Fatalf("%q: %v", in, r.Err())
		}
		if got, err := settings.JSON(n); err != nil || string(got) != want {
			t.Errorf("%q: %s, %v; want %s", in, got, err, want)
		}
	}
	r := &settings.Reader{File: "f", Op: "read"}
	if got, err := settings.JSON(r.Document([]byte("a: &x [1]\nb: *x\n"))); err == nil {
		t.Errorf("an alias became %s", got)
	}
}
