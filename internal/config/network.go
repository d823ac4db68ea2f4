package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/egress/rules"
	"github.com/sunaba-dev/sunaba/internal/settings"
)

func setNetwork(c *Config, v value) error {
	modes := []string{string(box.NetNone), string(box.NetAllowlist)}
	allowed := strings.Join(modes, ", ")
	if err := v.want(text); err != nil {
		return fmt.Errorf("%w: %s", err, allowed)
	}
	if !slices.Contains(modes, v.text) {
		return fmt.Errorf("allowed: %s; what may be reached is a list of hosts (network.allowlist, --allow HOST)", allowed)
	}
	c.Net.Mode = box.NetMode(v.text)
	return nil
}

// setAllow checks an entry alone, so that its error has a line; how entries go
// together is for [Config.CheckNetwork].
func setAllow(c *Config, v value) error {
	if err := v.want(text); err != nil {
		return err
	}
	if err := rules.CheckEntry(v.text); err != nil {
		return err
	}
	return add(&c.Allowlist, v.text)
}

func setPolicyFile(c *Config, v value) error {
	if err := v.want(text); err != nil {
		return err
	}
	if v.text == "" || strings.ContainsRune(v.text, 0) || len(v.text) > 4096 {
		return errors.New("allowed: the path of a file")
	}
	c.PolicyFile = v.text
	return nil
}

// rules reads a policy as a part of the file, so that its errors have their
// place here.
func (l *loader) rules(k Key, n *yaml.Node) {
	p, warnings := rules.LoadNode(&l.Reader, n)
	if p == nil {
		return
	}
	l.warnings = warnings
	text, err := settings.JSON(n)
	if err != nil {
		l.Failf(settings.At(n), k.Name, "cannot set %s: %v", k.Name, err)
		return
	}
	l.config.Rules = string(text)
}

// setRules takes a policy as text.
func setRules(c *Config, v value) error {
	if v.form != flagText {
		return errors.New("allowed: keys with values")
	}
	sub := &loader{Reader: settings.Reader{File: "network.rules", Op: opSet}}
	if root := sub.Document([]byte(v.text)); root != nil {
		sub.rules(Key{Name: "network.rules"}, root)
	}
	if err := sub.Err(); err != nil {
		return err
	}
	if sub.config.Rules == "" {
		return errors.New("allowed: a policy")
	}
	c.Rules = sub.config.Rules
	return nil
}

// Policy returns the policy of network.allowlist or network.rules; nil if it is
// in a file, whose place is the caller's to judge.
func (c Config) Policy() (*rules.Policy, error) {
	switch {
	case c.PolicyFile != "":
		return nil, nil
	case c.Rules != "":
		return rules.Load("network.rules", []byte(c.Rules))
	}
	return rules.FromAllowlist(c.Allowlist)
}

// CheckNetwork says what network.allowlist, policy and rules may not say
// together; each alone was checked when it was set. The error is a
// [*box.Error].
func (c Config) CheckNetwork() error {
	given := 0
	for _, g := range []bool{len(c.Allowlist) > 0, c.PolicyFile != "", c.Rules != ""} {
		if g {
			given++
		}
	}
	if given > 1 {
		return box.Errorf(box.Invalid, opSet, "cannot use more than one of network.allowlist, network.policy and network.rules: give one of them")
	}
	if _, err := rules.FromAllowlist(c.Allowlist); err != nil {
		return box.Errorf(box.Invalid, opSet, "cannot set network.allowlist: %v", err)
	}
	return nil
}

// checkNetwork is for a file: what is allowed says the mode by itself, and what has
// no effect is an error, too.
func (l *loader) checkNetwork() {
	at := l.network
	if at == (settings.Place{}) || len(l.Errs) > 0 {
		return
	}
	c := &l.config
	allows := len(c.Allowlist) > 0 || c.PolicyFile != "" || c.Rules != ""
	if allows && !l.mode {
		c.Net.Mode = box.NetAllowlist
	}
	if err := c.CheckNetwork(); err != nil {
		l.Failf(at, "network", "%v", err)
	} else if c.Net.Mode == box.NetNone && allows {
		l.Failf(at, "network", "cannot use network.allowlist, policy or rules in mode none: they would have no effect; write mode: allowlist, or take one of both out")
	}
}
