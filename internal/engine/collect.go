package engine

import (
	"context"

	"github.com/sunaba-dev/sunaba/box"
)

func (r *run) collect(ctx context.Context, b box.Box, spec box.Spec, res box.Result) {}
