package config

import (
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
)

func TestWhatIsAllowedSaysTheModeByItself(t *testing.T) {
	for line, want := range map[string]box.NetMode{
		`allowlist: ["a.test"]`:               box.NetAllowlist,
		`policy: p.yaml`:                      box.NetAllowlist,
		`rules: {version: 1}`:                 box.NetAllowlist,
		`{mode: allowlist}`:                   box.NetAllowlist,
		`{mode: allowlist, allowlist: []}`:    box.NetAllowlist,
		`{mode: none, allowlist: []}`:         box.NetNone,
		`allowlist: []`:                       box.NetNone,
		`{}`:                                  box.NetNone,
		`{mode: allowlist, allowlist: [a.b]}`: box.NetAllowlist,
	} {
		c, err := Load("f.yaml", strings.NewReader(in("network", line)))
		if err != nil || c.Net.Mode != want {
			t.Errorf("%s: mode %q, %v; want %q", line, c.Net.Mode, err, want)
		}
	}
}
