package main

import (
	"context"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/config"
	"github.com/sunaba-dev/sunaba/internal/egress/rules"
	"github.com/sunaba-dev/sunaba/internal/settings"
)

// askedPolicy is a policy that `sunaba policy` is asked about.
type askedPolicy struct {
	*rules.Policy
	warnings settings.Errors
	none     string // why there is no network, if there is none: then the policy allows nothing
}

// whose reads the policy that explain and test are about.
func (c *policyCall) whose() (askedPolicy, error) {
	switch {
	case c.box != "":
		return c.ofBox()
	case c.config != "":
		cfg, err := loadConfig(c.config)
		if err != nil {
			return askedPolicy{}, err
		}
		return configPolicy(c.config, cfg)
	}
	file := c.policy
	if file == "" {
		file = "policy.yaml"
	}
	p, err := readPolicy(file)
	return askedPolicy{Policy: p}, err
}

// ofBox asks the daemon which rules are in force for a box.
func (c *policyCall) ofBox() (askedPolicy, error) {
	id := box.ID(c.box)
	if !id.Valid() {
		return askedPolicy{}, box.Errorf(box.Invalid, "policy", "cannot find box %q: that is no box's name", c.box).WithHint("`sunaba box ls` lists them")
	}
	daemon, err := c.server.client()
	if err != nil {
		return askedPolicy{}, err
	}
	i, err := daemon.Network(context.Background(), box.Caller{}, id)
	if err != nil {
		return askedPolicy{}, err
	}
	if i.Mode == box.NetNone {
		return noNetwork("network.mode is none for box " + string(id) + ": it has no network")
	}
	p, err := rules.Parse(i.Rules)
	return askedPolicy{Policy: p}, err
}

// noNetwork is a policy that allows nothing, as no network does.
func noNetwork(why string) (askedPolicy, error) {
	p, err := rules.FromAllowlist(nil)
	return askedPolicy{Policy: p, none: why}, err
}

// readAnyPolicy reads a policy file, or what a configuration says of the network.
func readAnyPolicy(file string) (askedPolicy, error) {
	text, err := readPolicyText(file)
	if err != nil {
		return askedPolicy{}, err
	}
	if config.Is(text) {
		cfg, warnings, err := config.Lint(file, text)
		if err != nil {
			return askedPolicy{}, err
		}
		p, err := configPolicy(file, placed(cfg, file))
		p.warnings = append(p.warnings, warnings...)
		return p, err
	}
	warnings, err := rules.Lint(file, text)
	if err != nil {
		return askedPolicy{}, err
	}
	p, err := rules.Load(file, text)
	return askedPolicy{Policy: p, warnings: warnings}, err
}

// configPolicy is the policy of a configuration that a file has, as a box gets it.
func configPolicy(file string, cfg config.Config) (askedPolicy, error) {
	if cfg.Net.Mode == box.NetNone {
		return noNetwork("network.mode is none in " + file + ": the box has no network")
	}
	if err := cfg.CheckNetwork(); err != nil {
		return askedPolicy{}, err
	}
	p, err := networkPolicy(cfg)
	if err != nil || cfg.PolicyFile == "" {
		return askedPolicy{Policy: p}, err
	}
	text, err := readPolicyText(cfg.PolicyFile)
	if err != nil {
		return askedPolicy{}, err
	}
	warnings, err := rules.Lint(cfg.PolicyFile, text)
	return askedPolicy{Policy: p, warnings: warnings}, err
}

// networkPolicy is the policy of a configuration in mode allowlist. Folders are
// further places, beside the mounts, where files of a box come to lie. Who needs
// the policy twice keeps the value: the file may change.
func networkPolicy(cfg config.Config, folders ...string) (*rules.Policy, error) {
	if p, err := cfg.Policy(); p != nil || err != nil {
		return p, err
	}
	return readBoxPolicy(cfg.PolicyFile, writable(cfg, folders...))
}

// writable are the folders of this host that a box may write to.
func writable(cfg config.Config, folders ...string) []string {
	for _, m := range cfg.Mounts {
		if !m.ReadOnly {
			folders = append(folders, m.Source)
		}
	}
	return folders
}
