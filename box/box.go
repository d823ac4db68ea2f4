// Package box is the vocabulary of Sunaba: what a box is, what may be asked of
// it, and how its end is told.
//
// Data flows one way. A caller's wish becomes a [Spec] by a decision that does
// no I/O; a [Tier] turns a Spec into a [Box] or into an error, all or nothing;
// a Box runs a [Command] and answers with a [Result] whose [Cause] comes from
// the account of whoever enforced it. Nothing in this package touches the
// system, and it imports the standard library only, so every room may speak it.
package box

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"io"
	"strings"
)

// ID names one box. It is unique across all tiers and tenants, safe as a file
// name, and carries no meaning: "bx" followed by 20 characters of [a-z2-7].
type ID string

var idEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewID returns a fresh ID with 100 bits from the system's random source.
func NewID() ID {
	var b [13]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return ID("bx" + idEncoding.EncodeToString(b[:])[:20])
}

// Valid reports whether the ID has the form that [NewID] gives.
func (id ID) Valid() bool {
	s, ok := strings.CutPrefix(string(id), "bx")
	return ok && len(s) == 20 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// Tier is one way to build walls. Implementations are safe for concurrent use.
type Tier interface {
	// Name is one of the names in [TierNames].
	Name() TierName
	// Probe really tries each step on this host and says what it can enforce.
	Probe(context.Context) Caps
	// Create builds a box or leaves nothing behind.
	Create(context.Context, Spec) (Box, error)
	// Recover takes up a box from what [Box.State] returned in an earlier
	// process. An error of kind Unavailable means that the box is there and
	// untouched, and that it can be tried again; any other, that nothing of it
	// is left.
	Recover(context.Context, ID, []byte) (Box, error)
	// Sweep destroys every box of this tier on the host for which keep is
	// false, whoever made it, and returns their IDs.
	Sweep(ctx context.Context, keep func(ID) bool) ([]ID, error)
}

// Box is a set of walls with a program inside. Methods may be called
// concurrently; Destroy may be called at any time and ends all others.
type Box interface {
	ID() ID
	// State is enough for Tier.Recover and never holds a secret.
	State() []byte
	// Weak lists, in words, what this box asked for and this host cannot
	// enforce. It is complete when Create returns.
	Weak() []string
	// Run runs one command to its end. The error is non-nil only if Sunaba
	// failed; what became of the program is in Result.Cause.
	//
	// When ctx ends, the command is ended: with the grace and the cause of
	// the *[Stop] in context.Cause(ctx), else at once as [Canceled].
	Run(ctx context.Context, cmd Command, streams Streams) (Result, error)
	// Destroy ends everything in the box and removes it from the host. It is
	// idempotent and does not depend on any cooperation from inside.
	Destroy(context.Context) error
}

// Collector is implemented by boxes that can hand out files after a Run.
type Collector interface {
	// Collect writes a tar stream of what was written below root (an
	// absolute path in the box) since the box was created. Names in the
	// stream are relative to root. The stream is made from hostile data: the
	// reader bounds sizes and counts and accepts regular files only.
	Collect(ctx context.Context, root string, w io.Writer) error
}

// Streams connects a command to its caller. A nil Stdin reads as empty, a nil
// writer discards. With a terminal (Command.TTY) Stderr is not used.
// A slow writer slows the program down; it never makes Sunaba buffer more than
// a fixed amount.
type Streams struct {
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	// Resize delivers new terminal sizes; it may be nil.
	Resize <-chan WindowSize
	// OnLimit, if set, is called once for each kind of limit at the moment
	// the enforcing side reports that the program ran into it.
	OnLimit func(LimitHit)
}

// WindowSize is a terminal's size in character cells.
type WindowSize struct{ Rows, Cols uint16 }
