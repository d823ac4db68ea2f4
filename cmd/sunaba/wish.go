package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/config"
	"github.com/sunaba-dev/sunaba/internal/engine"
)

// wishOf reads the keys below `sandbox` as they come over the network: the same
// names, and the same words for what is wrong, as in a file. Line and column
// count from the beginning of that object.
func wishOf(sandbox json.RawMessage, bounds networkBounds) (engine.Wish, error) {
	cfg := config.Default()
	if text := bytes.TrimSpace(sandbox); len(text) > 0 && !bytes.Equal(text, []byte("null")) {
		if !json.Valid(text) || text[0] != '{' {
			return engine.Wish{}, box.Errorf(box.Invalid, "read request", "cannot read sandbox: it is no JSON object")
		}
		// Characters beyond U+FFFF are two escapes in JSON, and none in YAML.
		if bytes.Contains(bytes.ToLower(text), []byte(`\ud`)) {
			var err error
			if text, err = unescaped(text); err != nil {
				return engine.Wish{}, box.Errorf(box.Invalid, "read request", "cannot read sandbox: %w", err)
			}
		}
		var err error
		cfg, err = config.Load("sandbox", bytes.NewReader(append(append([]byte("{\"sandbox\":\n"), text...), '}')))
		if all, ok := errors.AsType[config.Errors](err); ok {
			for _, e := range all {
				e.Line-- // ours
			}
			err = allOf(all)
		}
		if err != nil {
			return engine.Wish{}, err
		}
	}
	if len(cfg.HostPrefixes) > 0 {
		return engine.Wish{}, box.Errorf(box.Denied, "read request", "cannot use filesystem.host_prefixes in a request: what image host shows of this host is its operator's to say").
			WithHint("give them to `sunaba serve` in its --config file")
	}
	if cfg.PolicyFile != "" {
		return engine.Wish{}, box.Errorf(box.Denied, "read request", "cannot use network.policy in a request: it names a file of this host").
			WithHint("send what is allowed as network.allowlist, or what such a file says as network.rules")
	}
	req := cfg.Request()
	if cfg.Net.Mode == box.NetAllowlist {
		p, err := networkPolicy(cfg)
		if err != nil {
			return engine.Wish{}, err
		}
		if err := bounds.check(p); err != nil {
			return engine.Wish{}, err
		}
		req.Reach = p.JSON()
	}
	return engine.Wish{Policy: req, User: cfg.User, Env: cfg.Environ(), Reuse: cfg.Reuse, PoolSize: cfg.PoolSize}, nil
}

// mostWrong bounds how much of what is wrong with a request is told.
const mostWrong = 10

// allOf tells all that is wrong with a request in one error, of the kind of the first,
// each with its place if there are more than one.
func allOf(all config.Errors) error {
	if len(all) < 2 {
		return all
	}
	var out strings.Builder
	for i, e := range all[:min(len(all), mostWrong)] {
		if i > 0 {
			out.WriteByte('\n')
		}
		out.WriteString(e.Error())
	}
	if n := len(all) - mostWrong; n > 0 {
		fmt.Fprintf(&out, "\nand %d more", n)
	}
	return box.Errorf(box.KindOf(all), "read request", "%s", out.String())
}

// unescaped writes JSON anew with every character as itself.
func unescaped(text []byte) ([]byte, error) {
	var v any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return out.Bytes(), err
}
