package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/client"
)

func snapshotVerbs() []boxVerb {
	return []boxVerb{
		{name: "ls", args: "[--box BOX]", help: "list snapshots, newest first", run: snapshotList, flags: snapshotListFlags},
		{name: "inspect", args: "SNAPSHOT", help: "tell all that is known of a snapshot, and whether its files are there", run: snapshotInspect, least: 1, most: 1},
		{name: "rm", args: "SNAPSHOT...", help: "forget snapshots; boxes that were made from them live on", run: snapshotRemove, least: 1, most: -1},
	}
}

func snapshotUsage(w io.Writer) {
	fmt.Fprint(w, `usage:
  sunaba snapshot COMMAND [flags] [ARG...]     copies of boxes that a daemon keeps

SNAPSHOT is an id or a name. `+"`sunaba box snapshot BOX` makes one, and `sunaba box create --snapshot SNAPSHOT`"+`
makes a box from it.

commands:
`)
	for _, v := range snapshotVerbs() {
		describe(w, strings.TrimSpace(v.name+" "+v.args), v.help)
	}
	fmt.Fprint(w, "\nflags:\n")
	describe(w, "--server URL, -o FORMAT", "as for `sunaba box`")
}

func snapshotListFlags(fs *flag.FlagSet, b *boxCall) { fs.StringVar(&b.snap.ref, "box", "", "") }

func snapshotList(ctx context.Context, b *boxCall) (int, error) {
	r := box.ListSnapshots{Box: box.ID(b.snap.ref)}
	all, err := everyPage(func(cursor string) ([]box.SnapshotInfo, string, error) {
		r.Cursor = cursor
		return b.c.Snapshots(ctx, box.Caller{}, r)
	}, client.DocumentOfSnapshot)
	if err != nil {
		return 0, err
	}
	return table(b, "snapshots", all, "SNAPSHOT\tNAME\tKIND\tTIER\tMIB\tAGE\tBOX", func(i client.SnapshotDocument) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%.1f\t%s\t%s", shownName(i.ID), shownName(cmp.Or(i.Name, "-")), shownName(string(i.Kind)), shownName(string(i.Tier)), float64(i.Bytes)/(1<<20), about(time.Since(i.Created)), shownName(string(i.Box)))
	})
}

func snapshotInspect(ctx context.Context, b *boxCall) (int, error) {
	return inspected(ctx, b, b.c.InspectSnapshot, client.DocumentOfSnapshot)
}

// snapshotRemove forgets what it can, and tells of the first that it could not.
func snapshotRemove(ctx context.Context, b *boxCall) (int, error) {
	return b.removed(func(ref string) error { return b.c.DeleteSnapshot(ctx, box.Caller{}, ref) })
}
