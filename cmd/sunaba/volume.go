package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/client"
	"github.com/sunaba-dev/sunaba/internal/config"
)

func volumeVerbs() []boxVerb {
	return []boxVerb{
		{name: "create", args: "--size SIZE NAME", help: "make an empty volume; one of that name and size that is there already is left as it is", run: volumeCreate, flags: volumeCreateFlags, least: 1, most: 1},
		{name: "list", help: "list volumes", run: volumeList},
		{name: "inspect", args: "NAME", help: "tell all that is known of a volume", run: volumeInspect, least: 1, most: 1},
		{name: "delete", args: "NAME...", help: "delete volumes and what is in them; not those that a box has", run: volumeDelete, least: 1, most: -1},
	}
}

func volumeUsage(w io.Writer) {
	fmt.Fprint(w, `usage:
  sunaba volume COMMAND [flags] [ARG...]     file systems of a daemon that outlive boxes

`+"`sunaba box create --volume NAME:PATH` gives a box one, and `--volume NAME:PATH:ro`"+` for reading. One box may
write, or any number may read.

commands:
`)
	for _, v := range volumeVerbs() {
		describe(w, strings.TrimSpace(v.name+" "+v.args), v.help)
	}
	fmt.Fprint(w, "\nflags:\n")
	describe(w, "--size SIZE", "what fits, as 512m or 10g; all of it is taken from the daemon's disk at once")
	describe(w, "--server URL, -o FORMAT", "as for `sunaba box`")
}

func volumeCreateFlags(fs *flag.FlagSet, b *boxCall) { fs.StringVar(&b.size, "size", "", "") }

func volumeCreate(ctx context.Context, b *boxCall) (int, error) {
	if b.size == "" {
		return 0, invalid(errors.New("cannot make a volume: --size SIZE is missing"))
	}
	bytes, err := config.ParseSize(b.size)
	if err != nil {
		return 0, err
	}
	i, err := b.c.CreateVolume(ctx, box.Caller{}, b.args[0], bytes)
	if err != nil {
		return 0, err
	}
	return 0, b.show(client.DocumentOfVolume(i), func() { fmt.Println(shownName(i.Name)) })
}

func volumeList(ctx context.Context, b *boxCall) (int, error) {
	all, err := b.c.Volumes(ctx, box.Caller{})
	if err != nil {
		return 0, err
	}
	out := []client.VolumeDocument{}
	for _, i := range all {
		out = append(out, client.DocumentOfVolume(i))
	}
	return table(b, "volumes", out, "VOLUME\tMIB\tAGE\tBOXES", func(i client.VolumeDocument) string {
		words := []string{}
		for _, id := range i.Boxes {
			words = append(words, shownName(string(id)))
		}
		return fmt.Sprintf("%s\t%.1f\t%s\t%s", shownName(i.Name), float64(i.Bytes)/(1<<20), about(time.Since(i.Created)), cmp.Or(strings.Join(words, ","), "-"))
	})
}

func volumeInspect(ctx context.Context, b *boxCall) (int, error) {
	return inspected(ctx, b, b.c.InspectVolume, client.DocumentOfVolume)
}

// volumeDelete deletes what it can, and tells of the first that it could not.
func volumeDelete(ctx context.Context, b *boxCall) (int, error) {
	return b.removed(func(name string) error { return b.c.DeleteVolume(ctx, box.Caller{}, name) })
}
