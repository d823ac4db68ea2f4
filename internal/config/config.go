// Package config reads sunaba.yaml into a plain value.
//
// The file, the command line and JSON use the same names, and the same code
// reads a value whichever way it came, so a wrong value gets the same words
// everywhere. What is not understood is an error, never a default: an unknown
// key, a key given twice, a unit that does not exist. All errors of a file are
// told at once, each with its line and column.
//
// YAML is read as a tree and only its plain part is accepted. Anchors, aliases,
// merge keys, tags and further documents are refused: a reader should see what
// holds without expanding anything, and a small file should stay small.
//
// The package knows names, units and ranges. What may be combined with what,
// and which tier follows, is for package policy.
package config

import (
	"maps"
	"slices"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/policy"
)

// Config is the configuration of one run: the content of the sandbox section.
// Copies are independent of each other: no method changes a slice or a map in
// place, and no caller may.
type Config struct {
	Runtime box.TierName
	Trust   box.Trust
	Image   box.ImageName
	User    box.User
	Env     map[string]string

	Limits box.Limits // resource_limits
	Net    box.Net    // network.mode

	// What a box may reach; see [Config.CheckNetwork].
	Allowlist  []string // network.allowlist, each as rules.ParseEntry takes it
	PolicyFile string   // network.policy: a path, as it was written; empty if there is none
	Rules      string   // network.rules: a policy in its long form, as JSON; empty if there is none

	// filesystem
	Mounts       []box.Mount // the read-only ones first, then as given
	Workdir      string      // writable_dir
	NoMount      []string
	HostPrefixes []string // further host folders that image host shows read-only, at their own path

	Volumes []box.Volume

	// lifecycle
	Reuse    bool // use the warm pool; a used box is never handed out again
	PoolSize int
}

// Default returns the configuration of an empty file.
func Default() Config {
	return Config{
		Runtime: box.TierAuto,
		Trust:   box.Untrusted,
		Image:   box.ImageHost,
		User:    box.UserOrdinary,
		Limits: box.Limits{
			MilliCPU:  1000,
			Memory:    512 << 20,
			Timeout:   60 * time.Second,
			Grace:     2 * time.Second,
			Processes: 32,
			OpenFiles: 256,
			Disk:      1 << 30,
			Files:     100000,
			Output:    1 << 20,
			OnLimit:   box.LimitRecord,
		},
		Net:      box.Net{Mode: box.NetNone},
		Workdir:  "/workspace",
		NoMount:  []string{"/var/run/docker.sock", "/etc/shadow"},
		PoolSize: 5,
	}
}

// Request starts a policy request from the configuration. The caller adds what
// a file cannot know: who asks, the minimums, the box's ID and seeds.
func (c Config) Request() policy.Request {
	return policy.Request{
		Runtime: c.Runtime,
		Trust:   c.Trust,
		Spec: box.Spec{
			Image:   c.Image,
			Workdir: c.Workdir,
			Limits:  c.Limits,
			Mounts:  slices.Clone(c.Mounts),
			Volumes: slices.Clone(c.Volumes),
			NoMount: slices.Clone(c.NoMount),
			Net:     c.Net,
		},
	}
}

// Environ returns the env section as NAME=VALUE, sorted by name.
func (c Config) Environ() []string {
	out := make([]string, 0, len(c.Env))
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		out = append(out, name+"="+c.Env[name])
	}
	return out
}
