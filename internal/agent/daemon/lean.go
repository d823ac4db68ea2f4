package daemon

import (
	"runtime"
	"runtime/debug"
)

// lean makes the process small: it runs on two threads at a time, whatever the
// machine has, and collects early.
func lean() {
	runtime.GOMAXPROCS(2)
	debug.SetGCPercent(50)
}
