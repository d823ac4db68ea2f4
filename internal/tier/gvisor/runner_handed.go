package gvisor

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"gvisor.dev/gvisor/pkg/sentry/control"

	"github.com/sunaba-dev/sunaba/box"
)

// A file of the host that was handed to the guest is written into a copy as the
// number that it had in the guest's kernel. In the kernel of the copy another file
// has that number, or will have: what the guest does with its own then, be it only
// to close it, is done to that one. Nor can the guest be asked who has it: it may
// lie in the queue of a socket that nobody reads. But whoever has it, and however,
// that kernel has it open. So each one that is handed over is remembered by its
// inode, which is its alone, and while one of them is open there, there is no copy.
type handed struct {
	copying sync.RWMutex // held for reading while files are handed over, for writing while the guest is copied

	mu    sync.Mutex
	files map[inodeID]string // what each one is
}

type inodeID struct{ dev, ino uint64 }

// letGo is how long a guest may take to close what was closed at the other end: who
// sees the end of a stream sees it a moment before its descriptor is gone.
const letGo = 2 * time.Second

// nullDevice is device 1:3: null(4), makedev(3).
const nullDevice = 1<<8 | 3

func inodeOf(st *syscall.Stat_t) inodeID { return inodeID{uint64(st.Dev), st.Ino} }

// execute starts a program in the guest with files of the host's. In a box that lasts
// the host's /dev/null, which is nobody's alone, becomes a file that always ends.
func (r *runner) execute(args *control.ExecArgs, what string, files map[int]*os.File) (int32, error) {
	if r.set.Lasting != nil {
		own := make(map[int]*os.File, len(files))
		var none *os.File
		defer func() {
			if none != nil {
				none.Close()
			}
		}()
		for n, f := range files {
			if own[n] = f; !isNull(f) {
				continue
			}
			if none == nil {
				var err error
				if none, err = nothing(); err != nil {
					return 0, err
				}
			}
			own[n] = none
		}
		r.handed.copying.RLock()
		defer r.handed.copying.RUnlock()
		for _, f := range own {
			if err := r.handed.add(f, what); err != nil {
				return 0, err
			}
		}
		files = own
	}
	args.FilePayload = control.NewFilePayload(files, nil)
	return r.c.Execute(r.conf, args)
}

// nothing is a file to read from that has nothing in it: pipe(7), whose other end is
// closed.
func nothing() (*os.File, error) {
	f, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("cannot make an empty input: %w", err)
	}
	return f, w.Close()
}

// isNull reports whether a file is the null device: null(4).
func isNull(f *os.File) bool {
	var st syscall.Stat_t
	return syscall.Fstat(int(f.Fd()), &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFCHR && st.Rdev == nullDevice
}

func (h *handed) add(f *os.File, what string) error {
	var st syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("cannot look at what the guest is given: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.files == nil {
		h.files = map[inodeID]string{}
	}
	h.files[inodeOf(&st)] = what
	return nil
}

// held is one of the files that were handed over and that a process has open, and
// what it is; the others are forgotten. Callers hold copying: nothing is handed over.
func (h *handed) held(pid int) (string, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	names, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("cannot look at what the guest's kernel has open: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	open := map[inodeID]string{}
	first := ""
	for _, n := range names {
		var st syscall.Stat_t
		err := syscall.Stat(filepath.Join(dir, n.Name()), &st)
		if err == syscall.ENOENT {
			continue // it was closed meanwhile
		}
		if err != nil {
			return "", fmt.Errorf("cannot look at descriptor %s of the guest's kernel: %w", n.Name(), err)
		}
		if what, ok := h.files[inodeOf(&st)]; ok {
			open[inodeOf(&st)], first = what, what
		}
	}
	h.files = open
	return first, nil
}

// nothingHeld waits until no file that was handed over is in the guest, for a while.
func (r *runner) nothingHeld() error {
	for end := time.Now().Add(letGo); ; <-time.After(10 * time.Millisecond) {
		what, err := r.handed.held(r.c.SandboxPid())
		if err != nil || what == "" {
			return err
		}
		if time.Now().After(end) {
			return box.Errorf(box.Conflict, "snapshot box", "cannot copy the guest: it has not closed %s, which leads to the host", what)
		}
	}
}
