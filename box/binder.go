package box

import "context"

// Binder is implemented by boxes that last which can be made for nobody, and become
// somebody's later.
type Binder interface {
	// Bind makes the box that of the Spec's Tenant and Principal, with its
	// Limits.MilliCPU, once, before anything was started in it. All else of the
	// Spec must be as the box was made, its ID too. State and Weak are then the
	// bound box's. A box that fails to be bound is to be destroyed.
	Bind(context.Context, Spec) error
}
