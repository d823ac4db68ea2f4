package procs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// unborn is a child of this process that has not become its program yet: it waits
// in execve(2) for a lease on the program's file, which this process holds, and has
// this process's memory until then.
func unborn(t *testing.T) Process {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "program"), os.O_RDWR|os.O_CREATE, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Fatal(err)
	}
	// Who waits for such a child holds a processor of Go's runtime, and whoever wanted to
	// stop all of them would wait, too.
	percent := debug.SetGCPercent(-1)
	first := exec.Command("true") // Go tries what the kernel can with a child of its own
	first.Env = []string{"PATH=" + os.Getenv("PATH")}
	if err := first.Run(); err != nil {
		t.Fatal(err)
	}
	before := map[int]bool{}
	for _, pid := range children(os.Getpid()) {
		before[pid] = true
	}
	cmd := exec.Command(f.Name())
	cmd.Env = []string{}
	started := make(chan error)
	go func() { started <- cmd.Start() }()
	t.Cleanup(func() {
		_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
		if serr := <-started; err != nil || serr == nil { // it is no program
			t.Error(err, serr)
		}
		f.Close()
		debug.SetGCPercent(percent)
	})
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		for _, pid := range children(os.Getpid()) {
			if !before[pid] {
				return Process{fmt.Sprintf("/proc/%d", pid), pid}
			}
		}
		select {
		case err := <-started:
			t.Fatalf("it did not wait for the lease: %v", err)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatal("no child has come")
		}
	}
}

// What is counted twice ends a box that is within its limit: each program that
// starts another is two for a moment, and longer on a busy host.
func TestMemoryThatTwoProcessesWorkInCountsOnce(t *testing.T) {
	m, err := syscall.Mmap(-1, 0, 64<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(m)
	for i := 0; i < len(m); i += 4096 {
		m[i] = 1
	}
	me, child := self(t), unborn(t)
	if borrowed := borrowers(os.Getppid()); borrowed[child.number] != me.number {
		t.Fatalf("%v: not that %d borrows of %d", borrowed, child.number, me.number)
	}
	if !sameMemory(me.number, child.number) || sameMemory(me.number, os.Getppid()) {
		t.Error("who has one memory is not told")
	}
	const nobody = -1 // whose children are none: each counts for itself, the control
	one := shares(nobody, []Process{me}, 0)
	if twice := shares(nobody, []Process{me, child}, 0); one < 64<<20 || twice < one*7/4 {
		t.Errorf("the child has not this process's memory: %d, %d with it", one, twice)
	}
	if both := shares(os.Getppid(), []Process{me, child}, 0); both < one*3/4 || both > one*5/4 {
		t.Errorf("one memory of %d counts for %d", one, both)
	}
	if all := []Process{me, child}; MemoryOver(os.Getppid(), all, 0, one*3/2) || !MemoryOver(nobody, all, 0, one*3/2) || !MemoryOver(os.Getppid(), all, 0, one/2) {
		t.Error("what is over is not what is held")
	}
	// A child of the first process is none of the box's, while it is like this.
	if shares(me.number, []Process{child}, 0) != 0 {
		t.Error("the first process's memory counts")
	}
}

// A process that was forked has what it had of its parent's until either writes; the
// kernel shares it out, and it is counted for itself.
func TestAForkIsNoBorrower(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sleep 60 & sleep 60 & wait")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}()
	for deadline := time.Now().Add(time.Minute); len(children(cmd.Process.Pid)) < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no child has come")
		}
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // a shell may vfork, too
		borrowed := borrowers(cmd.Process.Pid)
		if len(borrowed) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("borrowed: %v", borrowed)
		}
	}
}
