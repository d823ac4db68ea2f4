package box

import (
	"fmt"
	"slices"
	"time"
)

// Phase is where a long-lived box is in its life.
type Phase string

// Phases. A box is Created while its walls are being built: it may exist on the
// host already, or no more, and nobody may use it. Destroyed is the end, and is
// kept with its reason.
const (
	PhaseCreated   Phase = "created"
	PhaseRunning   Phase = "running"
	PhasePaused    Phase = "paused"
	PhaseDestroyed Phase = "destroyed"
)

// next is the table of allowed changes.
func next() map[Phase][]Phase {
	return map[Phase][]Phase{
		PhaseCreated:   {PhaseRunning, PhaseDestroyed},
		PhaseRunning:   {PhasePaused, PhaseDestroyed},
		PhasePaused:    {PhaseRunning, PhaseDestroyed},
		PhaseDestroyed: {},
	}
}

// Phases lists all phases, in the order of a life.
func Phases() []Phase {
	return []Phase{PhaseCreated, PhaseRunning, PhasePaused, PhaseDestroyed}
}

// Become refuses a change that is not in the table, as Invalid: the caller asks
// for what the box's state does not permit.
func (p Phase) Become(q Phase) error {
	allowed, known := next()[p]
	switch {
	case !known:
		return Errorf(Fault, "change phase", "cannot change the phase of a box: %q is none", p)
	case slices.Contains(allowed, q):
		return nil
	case p == PhaseDestroyed:
		return Errorf(NotFound, "change phase", "cannot make a box %s: it was destroyed", q)
	}
	return Errorf(Invalid, "change phase", "cannot make a box %s: it is %s", q, p)
}

// Reason says why a box was destroyed.
type Reason string

// Reasons.
const (
	ReasonAsked   Reason = "asked"   // by its owner
	ReasonTTL     Reason = "ttl"     // its time was over
	ReasonIdle    Reason = "idle"    // nobody used it for too long
	ReasonFailed  Reason = "failed"  // it could not be made
	ReasonLost    Reason = "lost"    // it died, or nobody could take it up after a crash
	ReasonLimit   Reason = "limit"   // of memory, for one
	ReasonStopped Reason = "stopped" // the daemon was told to end with its boxes
)

// Record is what is kept of a long-lived box, also after its end. Times are in
// UTC with milliseconds; a zero time has not come.
type Record struct {
	ID        ID
	Tenant    string
	Principal string
	Phase     Phase
	Reason    Reason // empty until it is destroyed
	Detail    string // more about Reason, for a person

	Tier       TierName
	TierReason string
	Image      string
	Weak       []string
	Spec       []byte // what was decided, as JSON: for whoever takes the box up
	State      []byte // of [Box.State]
	Account    []byte // the last one, as JSON, of a box that is no more
	Metadata   map[string]string

	Created   time.Time
	Ends      time.Time // destroyed at this time, if it is not prolonged; zero = never
	Destroyed time.Time
}

// Valid refuses a record that no box can have.
func (r Record) Valid() error {
	switch {
	case !r.ID.Valid():
		return fmt.Errorf("cannot keep box %q: not an id", r.ID)
	case r.Tenant == "" || r.Principal == "":
		return fmt.Errorf("cannot keep box %s: it belongs to nobody", r.ID)
	case !slices.Contains(Phases(), r.Phase):
		return fmt.Errorf("cannot keep box %s: %q is no phase", r.ID, r.Phase)
	case (r.Phase == PhaseDestroyed) != (r.Reason != ""):
		return fmt.Errorf("cannot keep box %s: phase %s with reason %q", r.ID, r.Phase, r.Reason)
	}
	return nil
}
