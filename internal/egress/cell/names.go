package cell

import (
	"net/netip"

	"github.com/sunaba-dev/sunaba/internal/egress/ledger"
	"github.com/sunaba-dev/sunaba/internal/egress/synth"
	"github.com/sunaba-dev/sunaba/internal/hostname"
)

// address returns the addresses that stand for name, and whether it had none. One
// that it had none for is written down before the box is told.
func (c *Cell) address(name hostname.Name, generation uint64) (v4, v6 netip.Addr, fresh bool, err error) {
	c.naming.Lock()
	defer c.naming.Unlock()
	fresh = !c.names.Known(name)
	v4, v6 = c.names.Assign(name, generation)
	if fresh {
		if err = c.budgets.ledger.Note(ledger.Name{Name: name, Place: synth.Place(v4)}); err != nil {
			c.names.Forget(name)
		}
	}
	return v4, v6, fresh, err
}

// remember takes up names that the box was told of by another gateway. That they
// are known allows nothing: a connection is judged when it is made.
func (c *Cell) remember(names []ledger.Name) {
	r := c.rule.Load()
	for _, n := range names {
		c.budgets.name(r.policy, n.Name)
		c.names.Restore(n.Name, n.Place, r.generation)
	}
}
