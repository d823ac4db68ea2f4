package harness

import (
	"slices"
	"strings"
	"testing"
)

// trusting marks a user whose code is all trusted.
const trusting User = " trusting"

// Trusting is the same user, who says of all code that it is trusted: whatever
// `sunaba run` that Command prepares is behind the process tier.
func (u User) Trusting() User { return u.account() + trusting }

// IsTrusting reports whether u came from Trusting.
func (u User) IsTrusting() bool { return u != u.account() }

func (u User) account() User { return User(strings.TrimSuffix(string(u), string(trusting))) }

// Flags are those that u gives to every run, before a test's own, which win.
// What an ordinary user's process box writes is in memory: its disk must fit.
func (u User) Flags() []string {
	if !u.IsTrusting() {
		return nil
	}
	return []string{"--trust", "trusted", "--disk", "100m"}
}

func (u User) flagged(args []string) []string {
	if len(args) == 0 || args[0] != "run" {
		return args
	}
	return slices.Insert(slices.Clone(args), 1, u.Flags()...)
}

// EachUserAndTier runs fn as a subtest for every user, behind either tier.
func EachUserAndTier(t *testing.T, fn func(t *testing.T, u User)) {
	t.Helper()
	for _, u := range Users() {
		t.Run(string(u), func(t *testing.T) { fn(t, u) })
		t.Run(string(u)+"/process", func(t *testing.T) { fn(t, u.Trusting()) })
	}
}
