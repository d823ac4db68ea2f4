package jail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host/hostfs"
)

// The steps of [Probe], in order.
const (
	stepLoopback = "loopback interface"
	stepWatches  = "bounded watches"
	stepMemory   = "file system in memory"
	stepProc     = "masked /proc"
	stepDev      = "devices and terminals"
	stepRoot     = "own root"
)

// ProbeSteps lists them.
func ProbeSteps() []string {
	return []string{stepLoopback, stepWatches, stepMemory, stepProc, stepDev, stepRoot}
}

// Probe does once what [Build] does, with a tmpfs of the given size, mounted
// over dir, as the new root: the caller is in the namespaces of a box, and for
// no other purpose. Devices are a box's own, nil for the host's. Advice says what
// to do about a mount that was refused.
func Probe(dir string, devices *os.File, bytes, files int64, advice func(error) string) []box.Step {
	b := builder{c: Config{Dir: dir, Devices: devices, ShmBytes: 64 << 10}, root: dir}
	done := map[string]bool{}
	var steps []box.Step
	for _, s := range []struct {
		name, needs, detail string
		do                  func() error
	}{
		{stepLoopback, "", "raised", loopbackUp},
		{stepWatches, "", "8 instances of inotify and 8192 watches a box", boundWatches},
		{stepMemory, "", fmt.Sprintf("a tmpfs of exactly %d KiB and %d files", bytes>>10, files), func() error { return b.tryMemory(bytes, files) }},
		{stepProc, stepMemory, "mounted read-only, entries that tell of the host covered", b.mountProc},
		{stepDev, stepMemory, "a /dev of its own, with terminals of its own and six devices that are what their names say", b.mountDev},
		{stepRoot, stepMemory, "entered, and the host's unmounted", b.pivot},
	} {
		err := errors.New("not tried: it needs " + s.needs)
		if s.needs == "" || done[s.needs] {
			err = s.do()
		}
		if err != nil && s.name == stepWatches {
			steps = append(steps, box.Step{Name: s.name, State: box.Weak, Detail: weakWatches + err.Error(), Advice: advice(err)})
			continue
		}
		if err != nil {
			steps = append(steps, box.Step{Name: s.name, State: box.Missing, Detail: err.Error(), Advice: advice(err)})
			continue
		}
		done[s.name] = true
		steps = append(steps, box.Step{Name: s.name, State: box.Works, Detail: s.detail})
	}
	return steps
}

// tryMemory mounts the kind of file system that an ordinary user's store is, and
// asks the kernel for its size.
func (b *builder) tryMemory(bytes, files int64) error {
	mem, err := newMount("tmpfs", map[string]string{"size": fmt.Sprint(bytes), "nr_inodes": fmt.Sprint(files), "mode": "0755"}, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return err
	}
	defer mem.Close()
	if err := hostfs.MoveMount(mem, b.root); err != nil {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(b.root, &st); err != nil {
		return fmt.Errorf("cannot ask for its size: %w", err)
	}
	if size := int64(st.Blocks) * st.Bsize; size != bytes || int64(st.Files) != files {
		return fmt.Errorf("cannot bound it: it has %d bytes and %d files, not %d and %d", size, st.Files, bytes, files)
	}
	for _, d := range []string{"proc", "dev"} {
		if err := os.Mkdir(filepath.Join(b.root, d), 0o755); err != nil {
			return err
		}
	}
	return b.takeDevices()
}
