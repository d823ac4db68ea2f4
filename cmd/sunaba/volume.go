package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sunaba-dev/sunaba/box"
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

// volumeJSON is a volume in a document.
type volumeJSON struct {
	Name    string    `json:"name"`
	Bytes   int64     `json:"bytes"`
	Used    int64     `json:"used_bytes"`
	Boxes   []box.ID  `json:"boxes"`
	Created time.Time `json:"created_at"`
}

func volumeOf(i box.VolumeInfo) volumeJSON {
	if i.Boxes == nil {
		i.Boxes = []box.ID{}
	}
	return volumeJSON{i.Name, i.Bytes, i.Used, i.Boxes, i.Created}
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
	return 0, b.show(volumeOf(i), func() { fmt.Println(shownName(i.Name)) })
}

func volumeList(ctx context.Context, b *boxCall) (int, error) {
	all, err := b.c.Volumes(ctx, box.Caller{})
	if err != nil {
		return 0, err
	}
	out := []volumeJSON{}
	for _, i := range all {
		out = append(out, volumeOf(i))
	}
	return 0, b.show(map[string]any{"volumes": out}, func() {
		w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "VOLUME\tMIB\tAGE\tBOXES")
		for _, i := range out {
			boxes := "-"
			if len(i.Boxes) > 0 {
				words := []string{}
				for _, id := range i.Boxes {
					words = append(words, shownName(string(id)))
				}
				boxes = strings.Join(words, ",")
			}
			fmt.Fprintf(w, "%s\t%.1f\t%s\t%s\n", shownName(i.Name), float64(i.Bytes)/(1<<20), about(time.Since(i.Created)), boxes)
		}
		w.Flush()
	})
}

func volumeInspect(ctx context.Context, b *boxCall) (int, error) {
	i, err := b.c.InspectVolume(ctx, box.Caller{}, b.args[0])
	if err != nil {
		return 0, err
	}
	b.format = "json" // as for a box
	return 0, b.show(volumeOf(i), nil)
}

// volumeDelete deletes what it can, and tells of the first that it could not.
func volumeDelete(ctx context.Context, b *boxCall) (int, error) {
	return b.removed(func(name string) error { return b.c.DeleteVolume(ctx, box.Caller{}, name) })
}

// removed removes each of the call's arguments, and shows which.
func (b *boxCall) removed(remove func(string) error) (int, error) {
	return b.each("removed", func(n int) (string, error) { return b.args[n], remove(b.args[n]) })
}

// each does something to the n-th of the call's arguments, for all of them, and shows
// what it was done to, under a key. The first failure is returned, others are said.
func (b *boxCall) each(key string, do func(n int) (string, error)) (int, error) {
	var failed error
	done := []string{}
	for n := range b.args {
		name, err := do(n)
		switch {
		case err == nil:
			done = append(done, name)
		case failed == nil:
			failed = err
		default:
			say(err.Error())
		}
	}
	if failed != nil {
		return 0, failed
	}
	return 0, b.show(map[string]any{key: done}, func() {})
}
