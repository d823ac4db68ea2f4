package process

import (
	"context"
	"fmt"
	"os"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host/procs"
)

// Fingerprint implements box.Fingerprinter. Its processes are seen in the box's
// own /proc, where also those leave a trace that have ended.
func (b lastingBox) Fingerprint(ctx context.Context) (string, error) {
	processes, err := b.trace()
	if err != nil {
		return "", box.Errorf(box.Unavailable, "look at box", "cannot look at box %s: %w", b.Spec.ID, err)
	}
	sp, ok := b.space(accountWait)
	if !ok {
		return "", box.Errorf(box.Unavailable, "look at box", "cannot look at box %s: it does not tell what is written in it", b.Spec.ID)
	}
	return b.Box.Fingerprint(processes, fmt.Sprintf("%d,%d", sp.Bytes-sp.FreeBytes+sp.Shared, sp.Files-sp.FreeFiles))
}

func (b *pbox) trace() (string, error) {
	proc, err := os.Open(fmt.Sprintf("/proc/%d/root/proc", b.Child.Pid()))
	if err != nil {
		return "", err
	}
	defer proc.Close()
	return procs.Trace(proc)
}
