package config

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// published is the example that the documentation promises to accept.
const published = `sandbox:
  runtime: gvisor            # auto | process | gvisor | container | docker | firecracker | microvm | wasm; one not built yet answers "not in this build" and names what is
  trust: untrusted           # hostile | untrusted | internal | trusted
  image: host                # host | base
  resource_limits: {cpu: "1.0", memory: "512m", timeout_sec: 60, max_processes: 32, max_open_files: 256, disk: "1g", max_files: 100000, max_output: "1m"}
  network: {mode: none, allowlist: []}       # none | allowlist; entries like "api.example.com:443"
  filesystem:
    read_only_mounts: [{host: /data/input, container: /input}]
    writable_dir: /workspace
    no_mount: [/var/run/docker.sock, /etc/shadow]
  lifecycle: {reuse: false, pool_size: 5}    # reuse: true means "use the warm pool"; a used box is never handed out again
`

func load(t *testing.T, doc string) Config {
	t.Helper()
	c, err := Load("sunaba.yaml", strings.NewReader(doc))
	if err != nil {
		t.Fatalf("Load:\n%v", err)
	}
	return c
}

func TestPublishedExampleIsTheDefaultsWithARuntimeAndAMount(t *testing.T) {
	want := Default()
	want.Runtime = box.TierGvisor
	want.Mounts = []box.Mount{{Source: "/data/input", Target: "/input", ReadOnly: true}}
	if got := load(t, published); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestNothingSaidMeansDefaults(t *testing.T) {
	for _, doc := range []string{"", "\n", "# only a comment\n", "---\n", "\ufeff", "sandbox:\n", "sandbox: {}\n", "sandbox:\n  filesystem:\n  #  writable_dir: /w\n"} {
		if got := load(t, doc); !reflect.DeepEqual(got, Default()) {
			t.Errorf("%q: got %+v", doc, got)
		}
	}
}

func TestEveryKeyIsReadFromTheFile(t *testing.T) {
	got := load(t, `sandbox:
  runtime: microvm
  trust: hostile
  image: base
  user: root
  env: {LANG: C.UTF-8, PORT: 8080, VERSION: 1.10, EMPTY: ""}
  resource_limits:
    cpu: 1500m
    memory: 67108864
    timeout_sec: 90.5
    idle_sec: "5m"
    grace_sec: 0
    max_processes: 1
    max_open_files: 16
    disk: 2GiB
    max_files: 16
    max_output: 0
    on_limit: kill
  network: {mode: allowlist, allowlist: ["api.example.com:443", "*.example.org"]}
  filesystem:
    read_only_mounts: [{host: /data/a, container: /a}, {container: /b, host: /data/b}]
    read_write_mounts: [{host: /data/c, container: /workspace/c}]
    writable_dir: /home/user/work
    no_mount: [/srv/secret]
    host_prefixes: [/opt/tools, /nix]
  volumes: [{name: data, container: /data}, {read_only: true, container: /ref, name: ref.1}, {name: x, container: /x, read_only: false}]
  lifecycle: {reuse: true, pool_size: 0}
`)
	want := Config{
		Runtime: box.TierMicroVM, Trust: box.Hostile, Image: box.ImageBase, User: box.UserRoot,
		Env: map[string]string{"LANG": "C.UTF-8", "PORT": "8080", "VERSION": "1.10", "EMPTY": ""},
		Limits: box.Limits{MilliCPU: 1500, Memory: 64 << 20, Timeout: 90500 * time.Millisecond, Idle: 5 * time.Minute, Grace: 0,
			Processes: 1, OpenFiles: 16, Disk: 2 << 30, Files: 16, Output: 0, OnLimit: box.LimitKill},
		Net: box.Net{Mode: box.NetAllowlist},
		Mounts: []box.Mount{{Source: "/data/a", Target: "/a", ReadOnly: true}, {Source: "/data/b", Target: "/b", ReadOnly: true},
			{Source: "/data/c", Target: "/workspace/c"}},
		Workdir: "/home/user/work", NoMount: []string{"/srv/secret"}, HostPrefixes: []string{"/opt/tools", "/nix"},
		Volumes:   []box.Volume{{Name: "data", Target: "/data"}, {Name: "ref.1", Target: "/ref", ReadOnly: true}, {Name: "x", Target: "/x"}},
		Allowlist: []string{"api.example.com:443", "*.example.org"},
		Reuse:     true, PoolSize: 0,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if env := strings.Join(got.Environ(), " "); env != "EMPTY= LANG=C.UTF-8 PORT=8080 VERSION=1.10" {
		t.Errorf("Environ = %s", env)
	}
}

// Every key with something that may be set: a key that is added without being
// thought of here fails the test.
func TestSetAndFileAgree(t *testing.T) {
	samples := map[string]struct{ flag, file string }{
		"runtime":                        {"gvisor", "gvisor"},
		"trust":                          {"internal", "internal"},
		"image":                          {"base", "base"},
		"user":                           {"root", "root"},
		"env":                            {"A=b=c", "{A: b=c}"},
		"resource_limits.cpu":            {"0.5", "0.5"},
		"resource_limits.memory":         {"64m", "64m"},
		"resource_limits.timeout_sec":    {"2m", "120"},
		"resource_limits.idle_sec":       {"0", "0"},
		"resource_limits.grace_sec":      {"500ms", "0.5"},
		"resource_limits.max_processes":  {"7", "7"},
		"resource_limits.max_open_files": {"77", "77"},
		"resource_limits.disk":           {"3g", "3221225472"},
		"resource_limits.max_files":      {"777", "777"},
		"resource_limits.max_output":     {"10k", "10240"},
		"resource_limits.on_limit":       {"kill", "kill"},
		"network.mode":                   {"allowlist", "allowlist"},
		"network.allowlist":              {"*.example.com:8443", `["*.example.com:8443"], mode: allowlist}`},
		"network.rules":                  {"version: 1", "{version: 1}, mode: allowlist}"},
		"network.policy":                 {"policy.yaml", "policy.yaml, mode: allowlist}"},
		"filesystem.read_only_mounts":    {"/d/a:b:/in", `[{host: "/d/a:b", container: /in}]`},
		"filesystem.read_write_mounts":   {"/d/a:/in", "[{host: /d/a, container: /in}]"},
		"filesystem.writable_dir":        {"/w", "/w"},
		"filesystem.no_mount":            {"/srv/x", "[/var/run/docker.sock, /etc/shadow, /srv/x]"},
		"filesystem.host_prefixes":       {"/opt", "[/opt]"},
		"volumes":                        {"a:/in:ro", "[{name: a, container: /in, read_only: true}]"},
		"lifecycle.reuse":                {"true", "true"},
		"lifecycle.pool_size":            {"9", "9"},
	}
	for _, k := range Keys() {
		s, ok := samples[k.Name]
		if !ok {
			t.Errorf("%s has no sample", k.Name)
			continue
		}
		flags := Default()
		if err := flags.Set("sandbox."+k.Name, s.flag); err != nil {
			t.Errorf("Set(%s, %s): %v", k.Name, s.flag, err)
			continue
		}
		section, last, nested := strings.Cut(k.Name, ".")
		doc := "sandbox:\n  " + section + ": " + s.file + "\n"
		if nested {
			doc = "sandbox:\n  " + section + ":\n    " + last + ": " + s.file + "\n"
		}
		if mode, ok := strings.CutSuffix(s.file, ", mode: allowlist}"); ok { // without which they have no effect
			doc = "sandbox:\n  network: {" + last + ": " + mode + ", mode: allowlist}\n"
			flags.Net.Mode = box.NetAllowlist
		}
		if file := load(t, doc); !reflect.DeepEqual(flags, file) {
			t.Errorf("%s:\nflag %+v\nfile %+v", k.Name, flags, file)
		}
	}
}

func TestCopiesAreIndependent(t *testing.T) {
	a := Default()
	for _, kv := range [][2]string{{"env", "A=1"}, {"filesystem.no_mount", "/srv/a"}, {"filesystem.read_only_mounts", "/d:/d"}} {
		if err := a.Set(kv[0], kv[1]); err != nil {
			t.Fatal(err)
		}
	}
	b, c := a, a
	for _, kv := range [][2]string{{"env", "A=2"}, {"filesystem.no_mount", "/srv/b"}, {"filesystem.read_only_mounts", "/e:/e"}} {
		if err := b.Set(kv[0], kv[1]); err != nil {
			t.Fatal(err)
		}
	}
	r := a.Request()
	r.Spec.Mounts[0].ReadOnly, r.Spec.NoMount[0] = false, "/changed"
	if !reflect.DeepEqual(a, c) || a.Env["A"] != "1" || !a.Mounts[0].ReadOnly || a.NoMount[0] == "/changed" {
		t.Errorf("a changed with its copy: %+v", a)
	}
}

func TestSetLeavesConfigAloneOnError(t *testing.T) {
	for _, k := range Keys() {
		c := Default()
		if err := c.Set(k.Name, "\x00 nonsense"); err == nil {
			t.Errorf("%s took nonsense", k.Name)
		}
		if !reflect.DeepEqual(c, Default()) {
			t.Errorf("%s changed the configuration: %+v", k.Name, c)
		}
	}
}
