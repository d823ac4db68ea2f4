package gvisor

import (
	"errors"
	"fmt"
	"syscall"

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
		return nil
	}()
	if err != nil {
		return probe.Needed(trial.Missing(name, err, probe.AdviceState(err)))
	}
	return probe.Needed(trial.Works(name, "a file without a name was made and written to"))
}
