// Package daemon is the agent of a lasting box: it runs inside for as long as
// the box lives, starts programs as its children, keeps what they write and how
// they end, and reads and writes the box's files.
//
// It is asked over byte streams that the host opens (package agentpb has the
// services), one HTTP/2 connection each. It is as little trusted as anything
// else in a box: it can only describe its own box, and a name is only ever
// resolved by that box's own kernel.
package daemon

// Argv is the name that the program goes by.
const Argv = "sunaba-agentd"

// Main runs the agent until the box ends and returns its exit code.
func Main(args []string) int { return 2 }
