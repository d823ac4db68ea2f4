package box

import "context"

// Binder is implemented by boxes that last which can be made for nobody, by a
// Spec without Tenant and Principal, and become somebody's later.
type Binder interface {
	// Bind makes the box that of the Spec's Tenant and Principal, with its
	// Limits.MilliCPU, once: a box that is somebody's is Conflict. All else of the
	// Spec must be as the box was made, its ID too, or it is Conflict with the
	// names of what differs; what of MilliCPU cannot be changed after the start is
	// Unsupported. State and Weak are then the bound box's. A box that fails to
	// be bound is to be destroyed.
	//
	// That nothing of anybody's was started in it is the caller's to know: see
	// [Fingerprinter].
	Bind(context.Context, Spec) error
}

// Fingerprinter is implemented by boxes that last of which can be told whether
// somebody used them.
type Fingerprinter interface {
	// Fingerprint is a text for comparison alone, of what is seen of the box
	// from outside, without a word of its agent's: its processes, what is written,
	// the limits of its group, its namespaces and mounts. It stays the same while
	// nobody uses the box. It is another once a program runs in it, or a file
	// with contents was written. What else a tier sees or does not see is in
	// docs/adr/0016-pool.md.
	Fingerprint(context.Context) (string, error)
}
