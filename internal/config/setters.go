package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/internal/policy"
	"github.com/sunaba-dev/sunaba/internal/settings"
)

const limits = "resource_limits."

func choice[T ~string](name, flag string, all []T, help string, field func(*Config) *T) Key {
	d := Default()
	names := make([]string, len(all))
	for i, a := range all {
		names[i] = string(a)
	}
	allowed := strings.Join(names, ", ")
	return Key{Name: name, Flag: flag, Type: "choice", Default: string(*field(&d)), Allowed: allowed, Help: help,
		set: func(c *Config, v value) error {
			if err := v.want(text); err != nil {
				return fmt.Errorf("%w: %s", err, allowed)
			}
			if !slices.Contains(names, v.text) {
				if n := Nearest(v.text, names); n != "" {
					return fmt.Errorf("did you mean %s? allowed: %s", n, allowed)
				}
				return fmt.Errorf("allowed: %s", allowed)
			}
			*field(c) = T(v.text)
			return nil
		}}
}

func cpuKey() Key {
	r := rangeOf("cpu")
	allowed := formatMilli(r.Min) + " to " + formatMilli(r.Max)
	return Key{Name: limits + "cpu", Flag: "cpu", Type: "cores", Default: `"1.0"`, Allowed: allowed, Help: "processor time a second",
		set: func(c *Config, v value) error {
			if err := v.want(float, integer, text); err != nil {
				return fmt.Errorf("%w; range: %s", err, allowed)
			}
			n, err := settings.CPU(v.text)
			return store(&c.Limits.MilliCPU, n, r, allowed, err)
		}}
}

func sizeKey(name, flag, help string, field func(*Config) *int64) Key {
	r, d := rangeOf(name), Default()
	allowed := formatSize(r.Min) + " to " + formatSize(r.Max)
	return Key{Name: limits + name, Flag: flag, Type: "size", Default: `"` + formatSize(*field(&d)) + `"`, Allowed: allowed, Help: help,
		set: func(c *Config, v value) error {
			if err := v.want(integer, text, float); err != nil {
				return fmt.Errorf("%w; range: %s", err, allowed)
			}
			n, err := settings.Size(v.text)
			return store(field(c), n, r, allowed, err)
		}}
}

func timeKey(name, flag, help string, field func(*Config) *time.Duration) Key {
	r, d := rangeOf(name), Default()
	if name == "timeout_sec" {
		r.ZeroOff = false // a box without end is for those who hold its handle
	}
	allowed := formatSeconds(r.Min) + " to " + formatSeconds(r.Max)
	if r.ZeroOff {
		allowed = "0 (off), or " + allowed
	}
	return Key{Name: limits + name, Flag: flag, Type: "seconds", Default: formatSeconds(int64(*field(&d))), Allowed: allowed, Help: help,
		set: func(c *Config, v value) error {
			if err := v.want(float, integer, text); err != nil {
				return fmt.Errorf("%w; range: %s", err, allowed)
			}
			n, err := settings.Duration(v.text)
			return store(field(c), n, r, allowed, err)
		}}
}

func countKey(name, flag, help string, field func(*Config) *int64) Key {
	r, d := rangeOf(name), Default()
	allowed := fmt.Sprintf("%d to %d", r.Min, r.Max)
	return Key{Name: limits + name, Flag: flag, Type: "count", Default: fmt.Sprint(*field(&d)), Allowed: allowed, Help: help,
		set: func(c *Config, v value) error {
			n, err := parseCount(v)
			return store(field(c), n, r, allowed, err)
		}}
}

func parseCount(v value) (int64, error) {
	if err := v.want(integer, float); err != nil { // a float is told below what is wrong with it
		return 0, err
	}
	return settings.Decimal(v.text, 0)
}

// store puts a number that was read without error into its field if it is in
// range.
func store[T ~int64](field *T, n T, r policy.Range, allowed string, err error) error {
	switch {
	case err != nil && strings.Contains(err.Error(), "allowed:"):
		return fmt.Errorf("%w; range: %s", err, allowed)
	case err != nil:
		return fmt.Errorf("%w; allowed: %s", err, allowed)
	case r.Holds(int64(n)):
		*field = n
		return nil
	case n == 0:
		return fmt.Errorf("zero makes no sense here; allowed: %s", allowed)
	case int64(n) < r.Min:
		return fmt.Errorf("too small; allowed: %s", allowed)
	}
	return fmt.Errorf("too large; allowed: %s", allowed)
}
