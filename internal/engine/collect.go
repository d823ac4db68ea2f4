package engine

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/files"
)

// outputName is the file whose content comes back parsed.
const outputName = "output.json"

// collect reads what the program left in its working folder. That a box is too
// far gone to be read, or its files too many, is said in the report; it does not
// undo the run.
func (r *run) collect(ctx context.Context, b box.Box, spec box.Spec, res box.Result) {
	c, ok := b.(box.Collector)
	unread := func(why string) { r.rep.ArtifactsError, r.rep.OutputError = why, why }
	switch {
	case !ok:
		unread(fmt.Sprintf("cannot read files: tier %s does not hand them out", r.rep.Tier))
		return
	case res.Cause == box.Canceled:
		unread("cannot read files: the run was canceled")
		return
	case res.Cause == box.OutOfMemory || res.Cause == box.Lost:
		unread(fmt.Sprintf("cannot read files: the box did not survive (%s)", res.Cause))
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
	for _, a := range got.Artifacts {
		if !utf8.ValidString(a.Path) {
			a.PathBase64 = base64.StdEncoding.EncodeToString([]byte(a.Path))
		}
		r.rep.Artifacts = append(r.rep.Artifacts, a)
	}
	r.rep.OutputError = got.OutputError
	if err != nil {
		r.rep.ArtifactsError = err.Error()
	}
	if got.Output == nil {
		if err != nil {
			r.rep.OutputError = err.Error() // it may be among what was not read
			return
		}
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
