package tiertest

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/platform/systrap/sysmsg"

	"github.com/sunaba-dev/sunaba/box"
)

// slowStubName is a file in a place: the stubs of its boxes of tier gvisor are
// slow between the two stores that give a context back, as on a host that has no
// time for them. If it says "twice", the second store is also made where it is not
// taken out.
const slowStubName = "slow-stub"

// slowStub is called in what may become the kernel of a guest.
func slowStub(args []string) {
	for _, a := range args {
		state, _, ok := strings.Cut(strings.TrimPrefix(a, "--root="), "/boxes/")
		if !ok || !strings.HasPrefix(a, "--root=") || runtime.GOARCH != "amd64" {
			continue
		}
		if how, err := os.ReadFile(filepath.Join(state, slowStubName)); err == nil {
			sysmsg.SighandlerBlob = slowed(sysmsg.SighandlerBlob, string(how) == "twice")
		}
	}
}

// slowed returns a stub that waits some milliseconds after every 64th store of a
// context's state.
func slowed(stub []byte, twice bool) []byte {
	state := []byte{0x89, 0x8e, 0x68, 0x0f, 0, 0}                        // mov %ecx, 0xf68(%rsi)
	free := []byte{0xc7, 0x86, 0x70, 0x0f, 0, 0, 0xfe, 0xfe, 0xfe, 0xfe} // movl $0xfefefefe, 0xf70(%rsi)
	b := bytes.Clone(stub)
	at := bytes.Index(b, append(bytes.Clone(state), free...))
	if at < 0 {
		panic("the stub is not the one that is known")
	}
	for len(b)%16 != 0 {
		b = append(b, 0xcc)
	}
	start := len(b)
	b = append(b, state...)
	b = append(b, 0x0f, 0x31, 0xa8, 0x3f, 0x75, 0x0b) // rdtsc; test $0x3f, %al; jne over the next three
	b = append(b, 0xb9)                               // mov $400000, %ecx
	b = binary.LittleEndian.AppendUint32(b, 400_000)
	b = append(b, 0xf3, 0x90, 0xff, 0xc9, 0x75, 0xfa) // pause; dec %ecx; jne back
	if twice {
		b = append(b, free...)
	}
	b = jump(b, at+len(state))
	copy(b[at:], append(jump(b[:at:at], start)[at:], 0x90))
	return b
}

// jump appends a jmp to an offset of the code.
func jump(b []byte, to int) []byte {
	return binary.LittleEndian.AppendUint32(append(b, 0xe9), uint32(int32(to-(len(b)+5))))
}

// threads is a program with threads that compute and threads that call, more than
// there are processors.
const threads = `
import threading, hashlib, os, sys, time
end = time.time() + float(sys.argv[1])
def computes():
    while time.time() < end: hashlib.pbkdf2_hmac("sha256", b"x", b"y", 30000)
def calls():
    while time.time() < end: os.stat("/")
all = [threading.Thread(target=f) for f in [computes]*4 + [calls]*4]
[t.start() for t in all]
[t.join() for t in all]
`

// A host without time for a thread at the wrong moment is no reason to end a
// program.
func TestASlowHostEndsNoProgramOfAGuest(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the slow stub is written for amd64 only")
	}
	run := func(how, seconds string) box.End {
		p := newPlace(t, box.TierGvisor)
		if err := os.WriteFile(filepath.Join(p.state, slowStubName), []byte(how), 0o644); err != nil {
			t.Fatal(err)
		}
		s := spec()
		s.Limits.Memory = 512 << 20
		b := p.create(t, s)
		defer p.destroy(t, b)
		g := use(t, b)
		end, _ := ended(t, g, start(t, g, "python3", "-c", threads, seconds).PID)
		return end
	}
	// The control. When the two meet is luck, and the less time there is the less of it.
	var end box.End
	for range 10 {
		if end = run("twice", "50"); end.Cause == box.Signaled && end.Signal == 9 {
			break
		}
		t.Logf("not ended within 50 s: %+v", end)
	}
	if end.Cause != box.Signaled || end.Signal != 9 {
		t.Fatalf("a program that should have been ended: %+v", end)
	}
	if end := run("once", "8"); end.Cause != box.Exited || end.ExitCode != 0 {
		t.Errorf("a program on a slow host: %+v", end)
	}
}
