package procs_test

import (
	"net"
	"os"
	"testing"

	"github.com/sunaba-dev/sunaba/internal/host/procs"
)

// What is asked is the network of PID 1: here the host's own, or a container's.
func TestWhatWaitsInSocketsIsCompared(t *testing.T) {
	proc, err := os.Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer proc.Close()
	own, err1 := os.Readlink("/proc/self/ns/net")
	first, err2 := os.Readlink("/proc/1/ns/net")
	if err1 != nil || err2 != nil || own != first {
		t.Skipf("the network of PID 1 is not this test's: %q, %q, %v", own, first, err2)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 64 { // in the backlog of one that accepts nobody
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write(make([]byte, 60_000)); err != nil {
			t.Fatal(err)
		}
	}
	if !procs.QueuesOver(proc, 3<<20) {
		t.Error("3.6 MiB that nobody accepted are not seen")
	}
	if procs.QueuesOver(proc, 1<<40) {
		t.Error("a tebibyte waits in sockets")
	}
}
