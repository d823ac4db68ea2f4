package gvisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/trial"
	"github.com/sunaba-dev/sunaba/internal/tier/probe"
)

// probeStore makes the file behind a writable layer, writes to it, and reads
// back that it has no name.
func (t *Tier) probeStore() probe.Step {
	const name = "unlinked store"
	err := func() error {
		f, err := host.OpenUnlinked(t.StoreDir())
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err := f.WriteAt(make([]byte, 4096), 1<<20); err != nil {
			return fmt.Errorf("cannot write to store: %w", err)
		}
		st, err := f.Stat()
		if err != nil {
			return fmt.Errorf("cannot look at store: %w", err)
		}
		if sys, ok := st.Sys().(*syscall.Stat_t); !ok || sys.Nlink != 0 {
			return errors.New("cannot make store: it has a name")
		}
		return t.canMap(f)
	}()
	var be *box.Error
	if errors.As(err, &be) && be.Hint != "" {
		return probe.Needed(trial.Missing(name, err, be.Hint))
	}
	if err != nil {
		return probe.Needed(trial.Missing(name, err, probe.AdviceState(err)))
	}
	return probe.Needed(trial.Works(name, "a file without a name was made and written to"))
}

// canMap maps a store as the sentry maps the programs that a guest has written,
// to execute them. On a file system that is mounted noexec it could not, and
// would end.
func (t *Tier) canMap(store *os.File) error {
	m, err := syscall.Mmap(int(store.Fd()), 0, 1, syscall.PROT_READ|syscall.PROT_EXEC, syscall.MAP_SHARED)
	if errors.Is(err, fs.ErrPermission) {
		return box.Errorf(box.Unusable, "create box", "cannot map the programs of a box: %s is mounted noexec: %w", t.State, err).
			WithHint("name a state folder on a file system that is not mounted noexec: --state DIR or SUNABA_STATE")
	}
	if err != nil {
		return fmt.Errorf("cannot map store: %w", err)
	}
	return syscall.Munmap(m)
}
