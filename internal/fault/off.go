//go:build !faultpoints

package fault

// Here marks a moment.
func Here(string) {}

// Watch has [Here] look at the folder of that state folder.
func Watch(string) {}
