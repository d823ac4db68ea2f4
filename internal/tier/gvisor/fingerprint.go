package gvisor

import (
	"context"
	"fmt"
	"slices"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// guestProcess is one process of the guest's, as its kernel says.
type guestProcess struct {
	PID, Parent int32
	UID         uint32
	Name        string
}

// Fingerprint implements box.Fingerprinter. The guest's kernel is asked for its
// processes. It gives numbers in order, so one that is there has another number
// than who was there before; one that has ended is not seen.
func (b lastingBox) Fingerprint(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, pauseTime)
	defer cancel()
	var all []guestProcess
	if err := b.Conn.Call(ctx, "processes", struct{}{}, &all); err != nil {
		return "", box.Errorf(box.Unavailable, "look at box", "cannot look at box %s: %w", b.Spec.ID, err)
	}
	return b.Box.Fingerprint(fmt.Sprint(all), fmt.Sprint(host.Allocated(b.Store)))
}

// processes answers with the processes of the guest's.
func (r *runner) processes() (any, error) {
	if r.c == nil || r.set.Lasting == nil {
		return nil, errNotLasting
	}
	all, err := r.c.Processes()
	if err != nil {
		return nil, fmt.Errorf("cannot list processes: %w", err)
	}
	out := make([]guestProcess, 0, len(all))
	for _, p := range all {
		out = append(out, guestProcess{int32(p.PID), int32(p.PPID), uint32(p.UID), p.Cmd})
	}
	slices.SortFunc(out, func(a, b guestProcess) int { return int(a.PID - b.PID) })
	return out, nil
}
