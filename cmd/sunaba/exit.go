package main

import "github.com/sunaba-dev/sunaba/box"

// Exit codes of `sunaba run`. Below 240 the code is the program's own: what it
// returned, or 128+N if signal N ended it. From 240 on it is ours. A program
// may return these numbers too; -o json tells the two apart for certain.
const (
	exitUsage       = 240 // wrong flags, configuration or input
	exitDenied      = 241 // policy forbids it
	exitUnusable    = 242 // this host or this build cannot do it
	exitFault       = 243 // Sunaba failed
	exitDeadline    = 244
	exitIdle        = 245
	exitOutOfMemory = 246
	exitOutputLimit = 247
	exitDiskLimit   = 248
	exitProcLimit   = 249
	exitCanceled    = 250
	exitLost        = 251
)

// exitCode turns a report into the code of the process.
func exitCode(rep *box.Report) int {
	if rep.Error != nil {
		switch rep.Error.Kind {
		case box.Invalid, box.NotFound, box.Conflict:
			return exitUsage
		case box.Denied:
			return exitDenied
		case box.Unsupported, box.Unusable, box.Unavailable:
			return exitUnusable
		}
		return exitFault
	}
	switch rep.Cause {
	case box.Exited:
		return *rep.ExitCode
	case box.Signaled:
		return 128 + *rep.Signal
	case box.Deadline:
		return exitDeadline
	case box.Idle:
		return exitIdle
	case box.OutOfMemory:
		return exitOutOfMemory
	case box.OutputLimit:
		return exitOutputLimit
	case box.DiskLimit:
		return exitDiskLimit
	case box.ProcLimit:
		return exitProcLimit
	case box.Canceled:
		return exitCanceled
	}
	return exitLost
}
