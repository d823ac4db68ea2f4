package box

import "context"

// Pauser is implemented by boxes that can stand still. Its methods are safe for
// concurrent use, and each is a step to a state: a box that is paused stays so
// when it is paused again, and one that runs when it is resumed.
type Pauser interface {
	// Pausable is nil, or says as Unsupported why this box cannot be paused on
	// this host.
	Pausable() error
	// Pause has what was written in the box brought to its disk, as far as that
	// is done within 5 seconds, and stops everything in it: when Pause returns nil,
	// nothing of the box runs until Resume, and calls of its agent wait or fail.
	// If it fails, the box runs on.
	//
	// What the box has in memory stays there, what is not yet on its disk, too,
	// and it goes on to count. A paused box outlives the process that paused it:
	// Tier.Recover takes it up, still paused. Destroy ends it as it is.
	Pause(context.Context) error
	// Resume lets a paused box go on where it stood. The clocks of the box have
	// gone on: what waited for a time that is over finds that it is.
	Resume(context.Context) error
}
