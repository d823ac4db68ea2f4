package terminal

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
)

func openPTY(t *testing.T, size box.WindowSize) (master, replica *os.File) {
	t.Helper()
	if _, err := os.Stat("/dev/ptmx"); err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	master, replica, err := host.OpenPTY(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close(); replica.Close() })
	return master, replica
}

// read returns the next size bytes of r.
func read(t *testing.T, r io.Reader, size int) string {
	t.Helper()
	p := make([]byte, size)
	n, err := io.ReadFull(r, p)
	if err != nil {
		t.Fatalf("read %q: %v", p[:n], err)
	}
	return string(p)
}

func TestIsTerminalKnowsOne(t *testing.T) {
	_, replica := openPTY(t, box.WindowSize{Rows: 24, Cols: 80})
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for f, want := range map[*os.File]bool{replica: true, r: false, w: false, null: false, nil: false} {
		if got := IsTerminal(f); got != want {
			t.Errorf("IsTerminal(%v) = %v", f, got)
		}
	}
	if _, err := MakeRaw(r); err == nil {
		t.Error("made a pipe raw")
	}
	if _, err := Size(r); err == nil {
		t.Error("a pipe has a size")
	}
}

func TestFreshTerminalEchoesAndRawDoesNot(t *testing.T) {
	master, replica := openPTY(t, box.WindowSize{Rows: 24, Cols: 80})
	io.WriteString(master, "cooked\n")
	if got := read(t, replica, 7); got != "cooked\n" {
		t.Errorf("program read %q", got)
	}
	if got := read(t, master, 8); got != "cooked\r\n" {
		t.Errorf("echo %q", got)
	}

	restore, err := MakeRaw(replica)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(master, "\x03\r") // Ctrl-C and Enter are bytes like any other
	if got := read(t, replica, 2); got != "\x03\r" {
		t.Errorf("program read %q", got)
	}
	io.WriteString(replica, "out\n")
	if got := read(t, master, 4); got != "out\n" {
		t.Errorf("output %q: an echo or a changed newline", got)
	}

	var wg sync.WaitGroup
	for range 8 {
		wg.Go(restore)
	}
	wg.Wait()
	io.WriteString(replica, "out\n")
	if got := read(t, master, 5); got != "out\r\n" {
		t.Errorf("output %q after restore", got)
	}
}

func TestRestoreActsOnce(t *testing.T) {
	master, replica := openPTY(t, box.WindowSize{Rows: 24, Cols: 80})
	restore, err := MakeRaw(replica)
	if err != nil {
		t.Fatal(err)
	}
	restore()
	if _, err := MakeRaw(replica); err != nil { // someone else's raw mode
		t.Fatal(err)
	}
	restore()
	io.WriteString(replica, "x\n.")
	if got := read(t, master, 3); got != "x\n." {
		t.Errorf("second restore changed the terminal: %q", got)
	}
}

func TestOutputEndsWithTheLastReplica(t *testing.T) {
	master, replica := openPTY(t, box.WindowSize{Rows: 24, Cols: 80})
	io.WriteString(replica, "last words")
	replica.Close()
	got, err := io.ReadAll(output{master})
	if string(got) != "last words" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestCloseEndsABlockedRead(t *testing.T) {
	master, _ := openPTY(t, box.WindowSize{Rows: 24, Cols: 80})
	// Both calls look at the descriptor, which must not make reads block.
	if err := host.ResizePTY(master, box.WindowSize{Rows: 1, Cols: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := Size(master); err != nil {
		t.Fatal(err)
	}
	read := make(chan error)
	go func() {
		_, err := output{master}.Read(make([]byte, 1))
		read <- err
	}()
	// A deadline on the file works only if reads can be interrupted.
	if err := master.SetReadDeadline(time.Now().Add(time.Hour)); err != nil {
		t.Errorf("cannot set deadline: %v", err)
	}
	master.Close()
	if err := <-read; err != io.EOF {
		t.Errorf("Read = %v", err)
	}
}

func TestTerminalsAreClosedOnExec(t *testing.T) {
	master, replica := openPTY(t, box.WindowSize{Rows: 24, Cols: 80})
	for _, f := range []*os.File{master, replica} {
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, f.Fd(), syscall.F_GETFD, 0)
		if errno != 0 || flags&syscall.FD_CLOEXEC == 0 {
			t.Errorf("%s: flags %x, %v", f.Name(), flags, errno)
		}
	}
}

func TestResizeIsSeenByTheProgram(t *testing.T) {
	master, replica := openPTY(t, box.WindowSize{Rows: 24, Cols: 80})
	for _, want := range []box.WindowSize{{Rows: 24, Cols: 80}, {Rows: 50, Cols: 132}, {Rows: 65535, Cols: 65535}, {}} {
		if err := host.ResizePTY(master, want); err != nil {
			t.Fatal(err)
		}
		if got, err := Size(replica); got != want || err != nil {
			t.Errorf("Size = %v, %v, want %v", got, err, want)
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close() // else it is closed whenever memory is collected, under a test that counts
	if err := host.ResizePTY(r, box.WindowSize{}); !errors.Is(err, syscall.ENOTTY) {
		t.Errorf("resized a pipe: %v", err)
	}
}

func TestWatchSizeSendsTheLatest(t *testing.T) {
	master, replica := openPTY(t, box.WindowSize{Rows: 24, Cols: 80})
	sizes := WatchSize(t.Context(), replica)
	if got := <-sizes; got != (box.WindowSize{Rows: 24, Cols: 80}) {
		t.Errorf("first size %v", got)
	}
	want := box.WindowSize{Rows: 10, Cols: 20}
	for rows := range uint16(10) {
		host.ResizePTY(master, box.WindowSize{Rows: rows + 1, Cols: 20})
	}
	// The kernel signals the terminal's own session; this test is not in it.
	if err := syscall.Kill(os.Getpid(), syscall.SIGWINCH); err != nil {
		t.Fatal(err)
	}
	if got := <-sizes; got != want {
		t.Errorf("size %v, want %v", got, want)
	}
}

func TestPTYsDoNotLeakDescriptors(t *testing.T) {
	count := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skipf("cannot count descriptors: %v", err)
		}
		return len(names)
	}
	master, replica := openPTY(t, box.WindowSize{Rows: 1, Cols: 1}) // the poller's descriptors, too
	before := count()
	for range 10 {
		m, r := openPTY(t, box.WindowSize{Rows: 1, Cols: 1})
		m.Close()
		r.Close()
	}
	if after := count(); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
	master.Close()
	replica.Close()
}

func TestBigOutputArrivesWhole(t *testing.T) {
	master, replica := openPTY(t, box.WindowSize{Rows: 24, Cols: 80})
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<14)
	go func() {
		replica.Write(want)
		replica.Close()
	}()
	got, err := io.ReadAll(output{master})
	if !bytes.Equal(got, want) || err != nil {
		t.Errorf("%d of %d bytes, %v", len(got), len(want), err)
	}
}

// output reads what programs write to a terminal; it ends when the last replica
// is closed, or when the master is.
type output struct{ master *os.File }

func (o output) Read(p []byte) (int, error) {
	n, err := host.ReadToEnd(func() (int, error) { return o.master.Read(p) })
	if errors.Is(err, syscall.EIO) || errors.Is(err, os.ErrClosed) {
		err = io.EOF
	}
	return n, err
}
