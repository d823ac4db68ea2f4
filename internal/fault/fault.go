// Package fault is where a test kills the daemon: at moments that have a name.
//
// A crash between two steps is what an order of steps is chosen for, and no
// random kill finds each of them. So a step that leaves something behind, on the
// host or in the database, is followed by [Here] with the name of the moment. In
// ordinary builds that does nothing, and the compiler leaves it out. In builds
// with the tag faultpoints [Watch] reads from a folder below the state folder
// which moment is meant, and the process is killed (SIGKILL) when it gets there:
// no deferred call runs, no buffer is written, as in a crash. Or its gateway is, and
// it goes on.
//
// A name is "room.moment", is used at one place, and is in the table [Points].
// Both are tested. test/crash kills at each.
package fault

// Folder is the name, below the state folder, of the folder that [Watch] reads.
const Folder = "faults"

// File names in the folder. Kill holds a line "NAME N VICTIM": at the N-th passage of
// that moment the process is killed (VICTIM is [Self]), or its gateway ([Gateway]).
// Passed gets a line for each passage of any moment: its name.
const (
	Kill   = "kill"
	Passed = "passed"
)

// Who is killed at a moment.
const (
	Self    = "self"
	Gateway = "gateway"
)

// Points lists the moments.
func Points() []string {
	return []string{
		// What a row says, before and after it is written through.
		"store.before-commit", "store.after-commit",
		// A box is made: its key, its row, the box, its row again.
		"engine.create-claimed", "engine.create-added", "engine.create-built", "engine.create-running",
		// A warm box becomes somebody's: in fact, and in its row.
		"engine.lease-bound", "engine.lease-added",
		// It is destroyed: the host first, then its row.
		"engine.destroy-begun", "engine.destroy-intended", "engine.destroy-cleared", "engine.destroy-told",
		// It is paused and goes on: the row first.
		"engine.pause-written", "engine.pause-done", "engine.resume-written", "engine.resume-done",
		// A start takes up what there was.
		"engine.recover-taken", "engine.recover-lost", "engine.recover-rows", "engine.recover-swept",
		// What has a name on the host, in the order in which it comes.
		"frame.home-made", "frame.begun", "frame.limited", "frame.listening", "frame.spawned", "frame.grouped", "frame.remembered", "frame.set-up",
		// And goes.
		"frame.first-ended", "frame.group-removed", "frame.removed",
		// What is left of a box is removed by a later daemon.
		"frame.drop-begun", "frame.drop-ended", "frame.dropped",
		// A copy of a box is kept, or boxes are made from it.
		"snapshot.part-written", "snapshot.parts-named", "snapshot.named", "engine.snapshot-added", "engine.snapshot-removed", "engine.fork-copied",
		// A volume is made, and goes: its file, its row, the file's name.
		"volume.made", "engine.volume-added", "volume.named", "volume.doomed", "engine.volume-forgotten",
		// What has no name on the host.
		"process.store-made", "gvisor.store-made", "gvisor.link-made",
		// A box's link comes to the gateway, its rules change, and it goes.
		"keeper.gateway-started", "engine.link-taken", "keeper.attached", "engine.network-written", "keeper.rules-kept", "keeper.rules-told", "keeper.detached",
		// And comes to the next gateway.
		"keeper.attached-again",
	}
}
