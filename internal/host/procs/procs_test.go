package procs

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// self is the test process, seen from outside.
func self(t *testing.T) Process {
	t.Helper()
	proc, err := os.Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proc.Close() })
	for range 2 { // the folder may be listed time and again
		all, err := List(proc)
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("/proc/self/fd/%d/%d", proc.Fd(), os.Getpid())
		found := false
		for _, p := range all {
			found = found || p.dir == want
		}
		if !found {
			t.Fatalf("%s is not among %v", want, all)
		}
	}
	return Process{fmt.Sprintf("/proc/%d", os.Getpid()), os.Getpid()}
}

func TestDescriptorsAreCounted(t *testing.T) {
	p := self(t)
	pipes(t, 1) // the runtime opens files of its own for the first
	before := p.OpenFiles()
	if n := int64(len(p.descriptors())); before < 3 || n < before || n > before+1 { // listing takes one
		t.Errorf("%d open files, %d listed", before, n)
	}
	pipes(t, 10)
	if n := p.OpenFiles(); n != before+20 {
		t.Errorf("20 more than %d open files are %d", before, n)
	}
}

func pipes(t *testing.T, n int) {
	t.Helper()
	for range n {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close(); w.Close() })
	}
}

func TestTasksAreThreads(t *testing.T) {
	p := self(t)
	before := p.Tasks()
	up, done := make(chan int), make(chan int)
	for range 20 {
		go func() {
			runtime.LockOSThread()
			up <- 1
			<-done
		}()
	}
	for range 20 {
		<-up
	}
	if n := p.Tasks(); n < 21 || n < before {
		t.Errorf("at least 21 threads are %d", n)
	}
	close(done)
	if n := (Process{dir: "/proc/0"}).Tasks(); n != 0 {
		t.Errorf("a process that has ended has %d tasks", n)
	}
}

func TestMemoryIsFoundWhereItIs(t *testing.T) {
	all := []Process{self(t)}
	most := func() int64 { // the least limit that is not passed, in MiB
		n := int64(0)
		for MemoryOver(os.Getppid(), all, 0, n<<20) {
			n++
		}
		return n
	}
	before := most()
	m, err := syscall.Mmap(-1, 0, 40<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(m); i += 4096 {
		m[i] = 1
	}
	if n := most() - before; n < 25 || n > 55 {
		t.Errorf("40 MiB of private memory are %d", n)
	}
	if err := syscall.Munmap(m); err != nil {
		t.Fatal(err)
	}
	if !MemoryOver(os.Getppid(), nil, 2, 1) || MemoryOver(os.Getppid(), nil, 1, 1) {
		t.Error("files in memory do not count")
	}
	block := make([]byte, 1<<20) // one: what is thrown away is in memory for a while, too
	before = most()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "memfd")
	defer f.Close()
	for range 40 {
		if _, err := f.Write(block); err != nil {
			t.Fatal(err)
		}
	}
	if n := most() - before; n < 25 || n > 55 { // the runtime takes and gives back memory of its own
		t.Errorf("a file of 40 MiB without a name is %d", n)
	}
}

func TestMemoryIsOverIfItIsSoWhenReadAgain(t *testing.T) {
	for _, c := range []struct {
		said []int64
		over bool
	}{{[]int64{100, 90}, true}, {[]int64{100, 10}, false}, {[]int64{10, 100}, false}, {[]int64{50, 100}, false}} {
		read := 0
		if got := over(func() int64 { read++; return c.said[read-1] }, 50); got != c.over {
			t.Errorf("%v with a limit of 50: over is %v after %d", c.said, got, read)
		}
	}
}
