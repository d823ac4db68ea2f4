package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/policy"
	"github.com/sunaba-dev/sunaba/internal/settings"
)

// Key describes one key of the configuration, for the loader, for command line
// flags and for the documentation.
type Key struct {
	Name    string // below sandbox, as in resource_limits.memory
	Flag    string // command line flag without dashes; empty if there is none
	Type    string // what a value is, in a word or two
	Default string // as it would be written in the file; empty for an empty list
	Allowed string // range or choices, in words
	Help    string // half a sentence

	shape shape
	set   func(*Config, value) error // replaces a scalar; adds one element otherwise
	clear func(*Config)              // empties what is not a scalar
}

// List reports whether the key holds several values: Set then adds one.
func (k Key) List() bool { return k.shape != scalar && k.shape != subtree }

type shape int

const (
	scalar  shape = iota
	list          // of scalars
	mounts        // of {host, container}
	volumes       // of {name, container, read_only}
	subtree       // read elsewhere
	env           // name: value
)

// form says what kind of scalar YAML saw.
type form string

const (
	text     form = "text"
	integer  form = "a whole number"
	float    form = "a number"
	boolean  form = "true or false"
	flagText form = "flag" // from the command line: whatever the key wants
)

type value struct {
	text string
	form form
}

// want refuses a scalar of the wrong type.
func (v value) want(forms ...form) error {
	if v.form == flagText || slices.Contains(forms, v.form) {
		return nil
	}
	if v.form == text && !slices.Contains(forms, text) {
		return fmt.Errorf("it is text; allowed: %s, without quotes", forms[0])
	}
	is, allowed := string(v.form), string(forms[0])
	if v.form == boolean {
		is = "a truth value"
	}
	if forms[0] == text {
		allowed = `text (in "quotes" if it looks like something else)`
	}
	return fmt.Errorf("it is %s; allowed: %s", is, allowed)
}

// Keys lists every key in the order of the documentation.
func Keys() []Key {
	return []Key{
		choice("runtime", "tier", box.TierNames(), "how the walls are built; auto decides by trust", func(c *Config) *box.TierName { return &c.Runtime }),
		choice("trust", "trust", box.Trusts(), "how much you trust the code", func(c *Config) *box.Trust { return &c.Trust }),
		choice("image", "image", []box.ImageName{box.ImageHost, box.ImageBase}, "root file system", func(c *Config) *box.ImageName { return &c.Image }),
		choice("user", "user", []box.User{box.UserOrdinary, box.UserRoot}, "who the program is in the box; neither has power outside", func(c *Config) *box.User { return &c.User }),
		{Name: "env", Flag: "env", Type: "NAME: value", Allowed: "names of letters, digits and _, not beginning with a digit", Help: "environment of the program; nothing is inherited", shape: env,
			set: setEnv, clear: func(c *Config) { c.Env = nil }},

		cpuKey(),
		sizeKey("memory", "memory", "memory of the box", func(c *Config) *int64 { return &c.Limits.Memory }),
		timeKey("timeout_sec", "timeout", "wall clock of a run", func(c *Config) *time.Duration { return &c.Limits.Timeout }),
		timeKey("idle_sec", "idle", "time without a byte in or out", func(c *Config) *time.Duration { return &c.Limits.Idle }),
		timeKey("grace_sec", "grace", "time between SIGTERM and SIGKILL at a deadline", func(c *Config) *time.Duration { return &c.Limits.Grace }),
		countKey("max_processes", "max-processes", "processes and threads of the program's user", func(c *Config) *int64 { return &c.Limits.Processes }),
		countKey("max_open_files", "max-open-files", "open files of one process", func(c *Config) *int64 { return &c.Limits.OpenFiles }),
		sizeKey("disk", "disk", "all writable places together", func(c *Config) *int64 { return &c.Limits.Disk }),
		countKey("max_files", "max-files", "files and folders in all writable places together", func(c *Config) *int64 { return &c.Limits.Files }),
		sizeKey("max_output", "max-output", "stdout and stderr together", func(c *Config) *int64 { return &c.Limits.Output }),
		choice("resource_limits.on_limit", "on-limit", []box.OnLimit{box.LimitRecord, box.LimitKill}, "what happens at max_processes, max_open_files, disk and max_files: the program sees the error and it is recorded, or the box is ended", func(c *Config) *box.OnLimit { return &c.Limits.OnLimit }),

		{Name: "network.mode", Flag: "network", Type: "choice", Default: "none", Allowed: "none, allowlist", Help: "network of the box: none, or what allowlist, policy or rules allow; goes without saying where one of these is given", set: setNetwork},
		{Name: "network.allowlist", Flag: "allow", Type: "list of host:port", Allowed: "names, or *.NAME; port 443 if none is given", Help: "what may be reached: plain HTTP on port 80, TLS on any other; HOST:PORT/http and HOST:PORT/tcp say so on any port; empty allows nothing", shape: list,
			set: setAllow, clear: func(c *Config) { c.Allowlist = nil }},
		{Name: "network.policy", Flag: "network-policy", Type: "path of a file", Allowed: "instead of allowlist and rules", Help: "policy file that says what may be reached, see egress-policy.md; a relative path begins at the configuration's folder, for the flag at yours", set: setPolicyFile},
		{Name: "network.rules", Type: "keys with values", Allowed: "what a policy file has, instead of allowlist and policy", Help: "a policy in its long form, here and not in a file of its own, see egress-policy.md", shape: subtree,
			set: setRules, clear: func(c *Config) { c.Rules = "" }},

		mountKey("filesystem.read_only_mounts", "mount", "host folders or files shown read-only", true),
		mountKey("filesystem.read_write_mounts", "mount", "host folders or files the program may change", false),
		{Name: "filesystem.writable_dir", Flag: "writable-dir", Type: "path in the box", Default: "/workspace", Allowed: "absolute, clean, not a system folder", Help: "where programs start and may write",
			set: setWorkdir},
		{Name: "filesystem.no_mount", Flag: "no-mount", Type: "list of host paths", Default: "[/var/run/docker.sock, /etc/shadow]", Allowed: "absolute, clean", Help: "never shown, whatever name asks for them, besides the built-in list", shape: list,
			set: setNoMount, clear: func(c *Config) { c.NoMount = nil }},
		{Name: "filesystem.host_prefixes", Flag: "host-prefix", Type: "list of host paths", Allowed: "absolute, clean, not refused", Help: "further folders that image host shows read-only, at their own path", shape: list,
			set: setPrefix, clear: func(c *Config) { c.HostPrefixes = nil }},

		{Name: "volumes", Flag: "volume", Type: "list of {name, container, read_only}", Allowed: "names of volumes that a daemon keeps, at absolute, clean paths in the box", Help: "file systems that outlive boxes; one box may write, or any number read", shape: volumes,
			set: setVolume, clear: func(c *Config) { c.Volumes = nil }},

		{Name: "lifecycle.reuse", Flag: "reuse", Type: "true or false", Default: "false", Allowed: "true, false", Help: "use the warm pool; a used box is never handed out again", set: setReuse},
		{Name: "lifecycle.pool_size", Type: "count", Default: "5", Allowed: fmt.Sprintf("0 to %d", maxPool), Help: "boxes kept warm", set: setPool},
	}
}

// Set gives one key the value that a command line flag carries. The name is as
// in [Key], with or without "sandbox." before it. A key of several values gets
// one more: HOST:BOX for mounts (both absolute), NAME:BOX or NAME:BOX:ro for
// volumes, NAME=VALUE for env. On an
// error, which is a [*box.Error], c is unchanged.
func (c *Config) Set(name, val string) error {
	name = strings.TrimPrefix(name, "sandbox.")
	k, ok := find(name)
	if !ok {
		return settings.UnknownKey(opSet, name, "", near(name))
	}
	if err := k.set(c, value{val, flagText}); err != nil {
		return cannotSet(opSet, k.Name, settings.Quote(val), err)
	}
	return nil
}

func find(name string) (Key, bool) {
	for _, k := range Keys() {
		if k.Name == name {
			return k, true
		}
	}
	return Key{}, false
}

// near finds the key that was likely meant, its section included: the last
// part alone often names it well enough.
func near(name string) string {
	var names []string
	for _, k := range Keys() {
		names = append(names, k.Name)
	}
	if n := Nearest(name, names); n != "" {
		return n
	}
	short := make(map[string]string)
	var shorts []string
	for _, n := range names {
		s := n[strings.LastIndexByte(n, '.')+1:]
		short[s], shorts = n, append(shorts, s)
	}
	return short[Nearest(name[strings.LastIndexByte(name, '.')+1:], shorts)]
}

func rangeOf(name string) policy.Range {
	r, ok := policy.RangeOf(name)
	if !ok {
		panic("no range for " + name) // a test walks all keys
	}
	return r
}
