package frame

import (
	"context"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/wire"
	"github.com/sunaba-dev/sunaba/internal/host/nic"
)

// Link implements box.Linked: the first process keeps the host's end of the link,
// so that there is one for a front to come.
func (b *Box) Link(ctx context.Context) (box.Link, error) {
	const op = "link box"
	if b.Spec.Net.Mode != box.NetAllowlist {
		return box.Link{}, box.Errorf(box.Unsupported, op, "cannot link box %s: it has no network", b.Spec.ID)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var kind wire.LinkKind
	ends, err := b.Conn.CallForFiles(ctx, 1, "link", struct{}{}, &kind)
	if err == nil {
		l := box.Link{File: ends[0], Kind: kind.Kind}
		if err = nic.Check(l); err == nil {
			return l, nil
		}
		l.File.Close()
	}
	return box.Link{}, box.Errorf(box.Unavailable, op, "cannot link box %s: %w", b.Spec.ID, err)
}
