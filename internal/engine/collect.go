package engine

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/files"
)

// outputName is the file whose content comes back parsed.
const outputName = "output.json"

// collect reads what the program left in its working folder. That a box is too
// far gone to be read is said in the report; it does not undo the run.
func (r *run) collect(ctx context.Context, b box.Box, spec box.Spec, res box.Result) {
	c, ok := b.(box.Collector)
	switch {
	case !ok:
		r.rep.OutputError = fmt.Sprintf("cannot read files: tier %s does not hand them out", r.rep.Tier)
		return
	case res.Cause == box.Canceled:
		r.rep.OutputError = "cannot read files: the run was canceled"
		return
	case res.Cause == box.OutOfMemory || res.Cause == box.Lost:
		r.rep.OutputError = fmt.Sprintf("cannot read files: the box did not survive (%s)", res.Cause)
		return
	}
	budget := files.DefaultBudget()
	budget.Bytes, budget.FileBytes = spec.Limits.Disk, spec.Limits.Disk
	budget.Entries = int(min(spec.Limits.Files, 1<<20)) + 16
	fc := files.Collector{
		Budget: budget, Root: spec.Workdir, Output: outputName, OutputMax: files.MaxOutput, Save: r.req.Out,
	}
	if p, ok := b.(interface{ Placed() []files.SeedRecord }); ok {
		fc.Seeds = p.Placed()
	}
	pr, pw := io.Pipe()
	go func() { pw.CloseWithError(c.Collect(ctx, spec.Workdir, pw)) }()
	got, err := fc.Collect(pr)
	pr.CloseWithError(io.ErrClosedPipe)
	r.rep.Artifacts = append(r.rep.Artifacts, got.Artifacts...)
	r.rep.OutputError = got.OutputError
	if err != nil {
		r.rep.OutputError = err.Error()
		return
	}
	if got.Output == nil {
		if isFolder(got.Artifacts) {
			r.rep.OutputError = outputName + " is a folder, not a file"
		}
		return
	}
	if r.rep.Output, err = files.ParseOutput(got.Output); err != nil {
		r.rep.OutputError = err.Error()
	}
}

// isFolder reports whether the output's name is a folder's, which shows by what
// lies in it.
func isFolder(all []box.Artifact) bool {
	return slices.ContainsFunc(all, func(a box.Artifact) bool { return strings.HasPrefix(a.Path, outputName+"/") })
}
