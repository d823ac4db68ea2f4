package main

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/sunaba-dev/sunaba/internal/config"
)

// Every flag that stands for a key must arrive at whoever makes the box.
func TestEveryFlagReachesTheDaemonAsItsKey(t *testing.T) {
	values := map[string]string{
		"trust": "trusted", "image": "base", "user": "root", "env": "A=1", "cpu": "0.25", "memory": "64m", "timeout": "90s", "idle": "5",
		"grace": "0", "max-processes": "7", "max-open-files": "77", "disk": "2m", "max-files": "777", "max-output": "12345", "on-limit": "kill",
		"network": "allowlist", "allow": "*.example.com:8443", "writable-dir": "/data/x", "no-mount": "/srv/secret", "reuse": "true", "tier": "process", "mount": "/srv:/in", "volume": "data:/data:ro",
	}
	// The file itself is sent, not its name.
	values["network-policy"] = filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(values["network-policy"], []byte("version: 1\nlimits: { rate: 5/s }\nhosts:\n  - { name: api, host: a.test, port: 80, rules: [ { methods: [GET], paths: [\"/a/**\"], rate: 5/m } ] }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	names := []string{"tier", "mount"}
	for _, k := range keyFlags() {
		if k.Flag != "host-prefix" { // the operator's: requests may not have it
			names = append(names, k.Flag)
		}
	}
	for _, name := range slices.Compact(names) {
		v, ok := values[name]
		if !ok {
			t.Errorf("no value for --%s: add one here, and look whether sandboxOf has it", name)
			continue
		}
		var f sandboxFlags
		fs := flag.NewFlagSet("", flag.ContinueOnError)
		fs.SetOutput(io.Discard)
		f.define(fs)
		line := []string{"--" + name + "=" + v}
		if err := fs.Parse(line); err != nil {
			t.Errorf("--%s: %v", name, err)
			continue
		}
		direct := &runFlags{cfg: config.Default()}
		if err := direct.configure("", f.settings); err != nil {
			t.Errorf("--%s: %v", name, err)
			continue
		}
		sent, err := f.sandbox()
		if err != nil {
			t.Errorf("--%s: %v", name, err)
			continue
		}
		if sent == nil {
			t.Errorf("--%s: nothing is sent", name)
		}
		got, err := wishOf(sent, networkBounds{})
		if err != nil {
			t.Errorf("--%s: %s: %v", name, sent, err)
			continue
		}
		want := direct.cfg.Request()
		if direct.net != nil {
			want.Reach = direct.net.JSON()
		}
		if !reflect.DeepEqual(got.Policy, want) || got.User != direct.cfg.User || !slices.Equal(got.Env, direct.cfg.Environ()) {
			t.Errorf("--%s: sent %s, which is\n%+v, want\n%+v", name, sent, got.Policy, want)
		}
	}
}
