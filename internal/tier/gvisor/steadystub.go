package gvisor

import (
	"bytes"
	"runtime"

	"gvisor.dev/gvisor/pkg/sentry/platform/systrap/sysmsg"
)

// The stub is gVisor's machine code in the host processes that run a guest's
// programs. When a thread of it gives a program's context back to the guest's
// kernel, it says first that it did, and then writes into the context that no
// thread has it. On a host with little time for the thread, another one may have
// taken the context between the two stores; that one is then taken for gone while
// it runs, and when other contexts wait as well, the guest's kernel ends the whole
// process for it, with SIGKILL: any program with threads, the agent among them,
// and with that the box.
//
// Nothing needs the second store. A context that nobody has is not interrupted but
// marked, which is done in every case; and the thread that had it last, which may
// be interrupted then for nothing, goes on.

// lateStore is the second store, of 0xfefefefe, and what does nothing in its place.
type lateStore struct{ store, nop []byte }

func lateStores(arch string) lateStore {
	if arch == "arm64" {
		return lateStore{ // mov w3, #0xfefefefe; stlr w3, [x2]
			store: []byte{0xe3, 0xdb, 0x07, 0x32, 0x43, 0xfc, 0x9f, 0x88},
			nop:   []byte{0xe3, 0xdb, 0x07, 0x32, 0x1f, 0x20, 0x03, 0xd5},
		}
	}
	return lateStore{ // movl $0xfefefefe, 0xf70(%rsi)
		store: []byte{0xc7, 0x86, 0x70, 0x0f, 0, 0, 0xfe, 0xfe, 0xfe, 0xfe},
		nop:   []byte{0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0},
	}
}

// withoutLateStore returns a copy of a stub without that store, or false if it is
// not there exactly once.
func withoutLateStore(stub []byte, arch string) ([]byte, bool) {
	l := lateStores(arch)
	if bytes.Count(stub, l.store) != 1 {
		return nil, false
	}
	return bytes.Replace(stub, l.store, l.nop, 1), true
}

// steadyStub changes the stub of the guest that this process is about to be the
// kernel of. A stub of another gVisor stays as it is: a test fails then.
func steadyStub() {
	if stub, ok := withoutLateStore(sysmsg.SighandlerBlob, runtime.GOARCH); ok {
		sysmsg.SighandlerBlob = stub
	}
}
