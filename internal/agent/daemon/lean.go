package daemon

import (
	"fmt"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lean makes the process small: it runs on two threads at a time, whatever the
// machine has, collects early, and gives back what it does not use when it has
// been asked nothing for a while.
func lean(h http.Handler, keepCode bool) http.Handler {
	runtime.GOMAXPROCS(2)
	debug.SetGCPercent(50)
	idle := time.AfterFunc(idleTime, func() { giveBack(keepCode) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		idle.Reset(idleTime)
		defer idle.Reset(idleTime)
		h.ServeHTTP(w, r)
	})
}

// idleTime is after which time without a call memory is given back.
const idleTime = time.Second

// giveBack returns free memory, and the pages of our own program file, to the
// kernel. A Go program touches most of its file once, to initialize its
// packages, and keeps a tenth in use; what is needed again comes from the page
// cache. The pages that nobody can write are the file's: MADV_DONTNEED in
// madvise(2) loses nothing of them.
//
// Pages of code are kept where the kernel changes them, which is gVisor's: systrap
// puts a jump in the place of each system call, and a thread that is in one meanwhile
// is told by that jump from one that executes no instruction. If it is gone by then,
// the thread dies of SIGILL, and the process with it.
func giveBack(keepCode bool) {
	debug.FreeOSMemory()
	maps, err := os.ReadFile("/proc/self/maps") // proc_pid_maps(5)
	if err != nil {
		return // it stays larger, and works
	}
	for _, r := range ofFile(string(maps), keepCode) {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(r.from), uintptr(r.to-r.from), unix.MADV_DONTNEED)
	}
}

type memoryRange struct{ from, to uint64 }

// ofFile are the ranges of a process that are a file's and that nobody can write,
// with code or without.
func ofFile(maps string, keepCode bool) (all []memoryRange) {
	for line := range strings.Lines(maps) {
		var r memoryRange
		var offset, inode uint64
		var perms, device string
		n, _ := fmt.Sscanf(line, "%x-%x %s %x %s %d", &r.from, &r.to, &perms, &offset, &device, &inode)
		if n == 6 && inode != 0 && (perms == "r--p" || perms == "r-xp" && !keepCode) {
			all = append(all, r)
		}
	}
	return all
}
