package limits

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/blockfs"
	"github.com/sunaba-dev/sunaba/internal/host/hostfs"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// smallDisk is a file system of some bytes on which a state folder lies, seen by
// what start starts and by nobody else.
type smallDisk struct {
	fs    *os.File
	state string
	work  chan func()
}

func newSmallDisk(t *testing.T, bytes int64) *smallDisk {
	t.Helper()
	fs, _, err := blockfs.NewStore("/var/tmp", bytes, 1000, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	at := t.TempDir()
	harness.Give(t, harness.Ordinary, at)
	d := &smallDisk{fs: fs, state: at + "/state", work: make(chan func())}
	t.Cleanup(func() { close(d.work); fs.Close() })
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the mount namespace ends with the thread
		ready <- errors.Join(syscall.Unshare(syscall.CLONE_FS|syscall.CLONE_NEWNS), host.PrivateMounts(), hostfs.MoveMount(fs, at), os.Mkdir(at+"/state", 0o711))
		for fn := range d.work {
			fn()
		}
	}()
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	return d
}

// start is start with a state folder on the small disk.
func (d *smallDisk) start(t *testing.T, p place, args ...string) *live {
	t.Helper()
	l := prepare(t, p, args...)
	l.cmd.Env = append(l.cmd.Env, "SUNABA_STATE="+d.state)
	err := make(chan error)
	d.work <- func() { err <- l.cmd.Start() }
	if err := <-err; err != nil {
		t.Fatal(err)
	}
	return l
}

// fill leaves nothing on the disk.
func (d *smallDisk) fill(t *testing.T) {
	t.Helper()
	f, err := os.Create(filepath.Join(host.FDPath(d.fs.Fd()), "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 1<<20); len(block) >= 4096; {
		if _, err = f.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
	if err := f.Sync(); !errors.Is(err, syscall.ENOSPC) && err != nil {
		t.Fatal(err)
	}
}

// The file behind a store has no room of its own on the host's disk. If that is
// full when the box writes, the box may not go on as if nothing had happened: here
// it has less memory than it writes, so it would read back zeros.
func TestFullDiskOfTheHostIsNoSilentLoss(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user cannot make a disk to fill")
	}
	for _, tier := range []box.TierName{box.TierGvisor, box.TierProcess} {
		t.Run(string(tier), func(t *testing.T) {
			harness.NothingLeft(t)
			p := place{tier, harness.Root}
			d := newSmallDisk(t, 200<<20)
			l := d.start(t, p, "--disk", "100m", "--memory", "32m", "--", "python3", "-c", `
import sys, time
print("up", flush=True)
sys.stdin.readline()
M = 1 << 20
with open("big", "wb", 0) as f:
    for i in range(60):
        f.write(bytes([i]) * M)
time.sleep(300) # it is ended long before
with open("big", "rb", 0) as f:
    lost = sum(f.read(M) != bytes([i]) * M for i in range(60))
print("lost", lost)`)
			l.up(t)
			d.fill(t)
			l.type_(t, "go\n")
			code, said := l.ends(t)
			if strings.Contains(said, "lost") {
				t.Errorf("the program went on: %q, code %d, stderr %s", said, code, l.errs.String())
			}
			// The guest kernel asks for room before it takes a byte. The host's takes
			// the bytes, and the box has no result.
			want, why := 243, "the host's disk is full or fails"
			if tier == box.TierGvisor {
				want, why = 1, "No space left on device"
			}
			if code != want || !strings.Contains(l.errs.String(), why) {
				t.Errorf("code %d, want %d with %q; stderr %s", code, want, why, l.errs.String())
			}
		})
	}
}
