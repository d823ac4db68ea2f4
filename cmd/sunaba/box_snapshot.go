package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/client"
	"github.com/sunaba-dev/sunaba/internal/config"
)

// snapshotCall is what commands about copies take.
type snapshotCall struct {
	ref    string // create
	name   string
	memory bool
	count  int // fork
}

func snapshotFlags(fs *flag.FlagSet, b *boxCall) {
	fs.StringVar(&b.snap.name, "name", "", "")
	fs.BoolVar(&b.snap.memory, "memory", false, "")
}

func boxSnapshot(ctx context.Context, b *boxCall) (int, error) {
	id, err := b.id(0)
	if err != nil {
		return 0, err
	}
	r := box.SnapshotRequest{Name: b.snap.name, Kind: box.SnapshotFiles}
	if b.snap.memory {
		r.Kind = box.SnapshotMemory
	}
	i, err := b.c.Snapshot(ctx, box.Caller{}, id, r)
	if err != nil {
		return 0, err
	}
	return 0, b.show(client.DocumentOfSnapshot(i), func() { fmt.Println(i.ID) })
}

func forkFlags(fs *flag.FlagSet, b *boxCall) {
	fs.IntVar(&b.snap.count, "n", 1, "")
	fs.StringVar(&b.ttl, "ttl", "", "")
}

// forkJSON is one copy in a document.
type forkJSON struct {
	Box   *client.BoxDocument `json:"box,omitempty"`
	Error *box.ErrorJSON      `json:"error,omitempty"`
}

// boxFork prints the copies that there are, and tells of the first that is not.
func boxFork(ctx context.Context, b *boxCall) (int, error) {
	id, err := b.id(0)
	if err != nil {
		return 0, err
	}
	var ttl time.Duration
	if b.ttl != "" {
		if ttl, err = config.ParseDuration(b.ttl); err != nil {
			return 0, flagValue("ttl", invalid(err))
		}
	}
	all, err := b.c.Fork(ctx, box.Caller{}, id, box.ForkRequest{Count: b.snap.count, TTL: ttl})
	if err != nil {
		return 0, err
	}
	var failed error
	out := []forkJSON{}
	for _, f := range all {
		if f.Err != nil {
			e := asError(f.Err)
			out = append(out, forkJSON{Error: &box.ErrorJSON{Kind: e.Kind, Message: e.Message, Hint: e.Hint}})
			if failed == nil {
				failed = f.Err
			}
			continue
		}
		i := client.DocumentOfBox(f.Info)
		out = append(out, forkJSON{Box: &i})
	}
	err = b.show(map[string]any{"forks": out}, func() {
		for _, f := range all {
			if f.Err == nil {
				fmt.Println(f.Info.ID)
			}
		}
	})
	if failed != nil && b.format == "json" { // it is in the document
		return exitCode(&box.Report{Error: &box.ErrorJSON{Kind: asError(failed).Kind}}), err
	}
	if failed != nil {
		return 0, failed
	}
	return 0, err
}
