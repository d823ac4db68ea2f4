package main

import (
	"errors"
	"flag"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
)

// Who comes from another sandbox is told the flag's name here, where it has one.
func TestAFlagThatThereIsNotNamesTheOneThatIsMeant(t *testing.T) {
	for name, want := range map[string]string{
		"-v": "it is --mount here", "--net": "it is --network here", "-m": "it is --memory here", "-it": "it is -t here", "--dns": "it is --resolver here",
		"--allowed-domains": "it is --allow here", "--cpus": "did you mean --cpu?", "--nosuchthing": "`sunaba run -h` lists the flags; those for the program come after its name",
	} {
		_, err := parseRun([]string{name, "x"})
		if e, ok := errors.AsType[*box.Error](err); !ok || e.Hint != want {
			t.Errorf("%s: %#v; want the hint %q", name, err, want)
		}
	}
	for _, c := range []struct{ args, want, hint string }{
		{"--nosuchthing", "cannot use flag --nosuchthing: there is none of that name", "`sunaba serve -h` lists the flags"},
		{"-v", "cannot use flag -v: there is none of that name", "`sunaba serve -h` lists the flags"}, // serve mounts nothing
		{"--max-boxes x", "cannot use --max-boxes: it is no whole number", ""},
		{"--ttl x", "cannot use --ttl: cannot read duration", ""},
		{"--listen", "cannot use flag --listen: its value is missing", ""},
	} {
		_, err := parseServe(strings.Fields(c.args))
		hint := ""
		if e, ok := errors.AsType[*box.Error](err); ok {
			hint = e.Hint
		}
		if err == nil || errors.Is(err, flag.ErrHelp) || !strings.HasPrefix(err.Error(), c.want) || hint != c.hint {
			t.Errorf("serve %s: %v, hint %q", c.args, err, hint)
		}
	}
}
