package keeper

import (
	"os"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/egress/ledger"
)

func (k *Keeper) ledgerOf(id box.ID, names []byte) (*os.File, error) {
	if k.cfg.Ledgers == nil {
		return ledger.Memory(names)
	}
	return k.cfg.Ledgers.File(id, names)
}

// clear removes what a box that is no more had used up.
func (k *Keeper) clear(id box.ID) {
	if k.cfg.Ledgers == nil {
		return
	}
	if err := k.cfg.Ledgers.Remove(id); err != nil {
		k.cfg.Log.Error("cannot clear what a box had used of its network", "box", id, "error", err)
	}
}

func (c *kept) close() {
	c.link.File.Close()
	c.ledger.Close()
}

// Names returns the names that a box was told addresses for, for a copy of it; see
// Attach.
func (k *Keeper) Names(id box.ID) ([]byte, error) {
	c, err := k.find(id)
	if err != nil {
		return nil, err
	}
	c.turn.Lock()
	defer c.turn.Unlock()
	names, err := ledger.Names(c.ledger)
	if err != nil {
		return nil, box.Errorf(box.Fault, op, "cannot tell which names box %s knows: %w", id, err)
	}
	return names, nil
}

// Sweep forgets what boxes had used up, of all but those that keep says are there.
func (k *Keeper) Sweep(keep func(box.ID) bool) error {
	if k.cfg.Ledgers == nil {
		return nil
	}
	return k.cfg.Ledgers.Sweep(keep)
}
