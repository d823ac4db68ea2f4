package gvisor

import (
	"context"

	"github.com/sunaba-dev/sunaba/box"
)

// Probe implements box.Tier.
func (t *Tier) Probe(context.Context) box.Caps { return box.Caps{} }
