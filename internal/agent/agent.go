// Package agent is the small program inside a box and its side of the protocol.
//
// For now it does two things: before a program starts it can put files into the
// box, and after the program has ended it hands out the files that were left.
// It runs inside the walls, among hostile data and as guest root without any
// power outside, so that a name in a box is only ever resolved by that box's
// own kernel. The host believes nothing it says.
package agent

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// Main runs the agent's command line and returns its exit code.
//
//	agent collect ROOT MAX    write what lies below ROOT as tar to stdout, MAX bytes of it
//	agent place ROOT          unpack the tar on stdin below ROOT
func Main(args []string) int {
	var err error
	switch {
	case len(args) == 4 && args[1] == "collect":
		var max int64
		if max, err = strconv.ParseInt(args[3], 10, 64); err == nil {
			killOthers()
			err = Collect(os.Stdout, args[2], max)
		}
	case len(args) == 3 && args[1] == "place":
		err = Place(os.Stdin, args[2])
	default:
		fmt.Fprintln(os.Stderr, "usage: agent collect ROOT MAX | agent place ROOT")
		return 2
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		return 1
	}
	return 0
}

// killOthers ends every other program of the box, so that nothing writes while
// files are read. kill(-1) reaches all but the caller and init; a fork bomb may
// need it more than once.
func killOthers() {
	for range 50 {
		if err := syscall.Kill(-1, syscall.SIGKILL); errors.Is(err, syscall.ESRCH) {
			return
		}
		if !othersLeft() {
			return
		}
		t := time.NewTimer(2 * time.Millisecond)
		<-t.C
	}
}

func othersLeft() bool {
	dir, err := os.ReadDir("/proc")
	if err != nil {
		return false
	}
	for _, e := range dir {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != 1 && pid != os.Getpid() {
			return true
		}
	}
	return false
}
