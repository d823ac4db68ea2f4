package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

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
		return fmt.Errorf("allowed: %s", allowed)
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

// CheckNetwork says what network.allowlist and network.policy may not say
// together; each alone was checked when it was set. The error is a
// [*box.Error].
func (c Config) CheckNetwork() error {
	if len(c.Allowlist) > 0 && c.PolicyFile != "" {
		return box.Errorf(box.Invalid, opSet, "cannot use network.allowlist beside network.policy: give one of them")
	}
	if _, err := rules.FromAllowlist(c.Allowlist); err != nil {
		return box.Errorf(box.Invalid, opSet, "cannot set network.allowlist: %v", err)
	}
	return nil
}

// checkNetwork is for a file, where what has no effect is an error, too.
func (l *loader) checkNetwork() {
	at := l.network
	if at == (settings.Place{}) || len(l.Errs) > 0 {
		return
	}
	c := l.config
	if err := c.CheckNetwork(); err != nil {
		l.Failf(at, "network", "%v", err)
	} else if c.Net.Mode == box.NetNone && (len(c.Allowlist) > 0 || c.PolicyFile != "") {
		l.Failf(at, "network", "cannot use network.allowlist or network.policy in mode none: they would have no effect; write mode: allowlist, or take them out")
	}
}
