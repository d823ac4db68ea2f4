package harness

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
)

// boxes remembers the name of every box that was made below the state folders
// of this test process, so that boxes of other test processes, which may run at
// the same time, are not taken for leftovers.
type boxes struct {
	mu  sync.Mutex
	ids []string
}

var made boxes

// watch learns names from now on, by inotify(7): no box is too short-lived.
func (b *boxes) watch(t testing.TB, u User, state string) {
	t.Helper()
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC)
	if err != nil {
		t.Fatalf("cannot watch %s: %v", state, err)
	}
	for _, sub := range []string{"run", "boxes"} { // those of one run, and those that last
		dir := filepath.Join(state, sub)
		if err := os.Mkdir(dir, 0o711); err != nil {
			t.Fatal(err)
		}
		Give(t, u, dir)
		if _, err := syscall.InotifyAddWatch(fd, dir, syscall.IN_CREATE); err != nil {
			t.Fatalf("cannot watch %s: %v", dir, err)
		}
	}
	go func() { // ends with the test process
		buf := make([]byte, 64<<10)
		for {
			n, err := syscall.Read(fd, buf)
			if err != nil || n <= 0 {
				return
			}
			for _, name := range namesOf(buf[:n]) {
				b.mu.Lock()
				b.ids = append(b.ids, name)
				b.mu.Unlock()
			}
		}
	}()
}

// namesOf takes the file names out of inotify's records.
func namesOf(p []byte) []string {
	const head = syscall.SizeofInotifyEvent
	var names []string
	for len(p) >= head {
		size := int(binary.NativeEndian.Uint32(p[head-4:])) // the last field: inotify(7)
		name, _, _ := bytes.Cut(p[head:head+size], []byte{0})
		names = append(names, string(name))
		p = p[head+size:]
	}
	return names
}

func (b *boxes) all() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.ids)
}
