package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sunaba-dev/sunaba/box"
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

// snapshotJSON is a snapshot in a document.
type snapshotJSON struct {
	ID      string           `json:"id"`
	Name    string           `json:"name"`
	Kind    box.SnapshotKind `json:"kind"`
	Tier    box.TierName     `json:"tier"`
	Image   string           `json:"image"`
	Box     box.ID           `json:"box"`
	Bytes   int64            `json:"bytes"`
	Created time.Time        `json:"created_at"`
}

func snapshotOf(i box.SnapshotInfo) snapshotJSON {
	return snapshotJSON{i.ID, i.Name, i.Kind, i.Tier, i.Image, i.Box, i.Bytes, i.Created}
}

func snapshotListFlags(fs *flag.FlagSet, b *boxCall) { fs.StringVar(&b.snap.ref, "box", "", "") }

func snapshotList(ctx context.Context, b *boxCall) (int, error) {
	r := box.ListSnapshots{Box: box.ID(b.snap.ref)}
	all, err := everyPage(func(cursor string) ([]box.SnapshotInfo, string, error) {
		r.Cursor = cursor
		return b.c.Snapshots(ctx, box.Caller{}, r)
	}, snapshotOf)
	if err != nil {
		return 0, err
	}
	return 0, b.show(map[string]any{"snapshots": all}, func() {
		w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "SNAPSHOT\tNAME\tKIND\tTIER\tMIB\tAGE\tBOX")
		for _, i := range all {
			name := i.Name
			if name == "" {
				name = "-"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.1f\t%s\t%s\n", shownName(i.ID), shownName(name), shownName(string(i.Kind)), shownName(string(i.Tier)), float64(i.Bytes)/(1<<20), about(time.Since(i.Created)), shownName(string(i.Box)))
		}
		w.Flush()
	})
}

func snapshotInspect(ctx context.Context, b *boxCall) (int, error) {
	i, err := b.c.InspectSnapshot(ctx, box.Caller{}, b.args[0])
	if err != nil {
		return 0, err
	}
	b.format = "json" // as for a box
	return 0, b.show(snapshotOf(i), nil)
}

// snapshotRemove forgets what it can, and tells of the first that it could not.
func snapshotRemove(ctx context.Context, b *boxCall) (int, error) {
	return b.removed(func(ref string) error { return b.c.DeleteSnapshot(ctx, box.Caller{}, ref) })
}
