package main

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/client"
	"github.com/sunaba-dev/sunaba/internal/config"
	"github.com/sunaba-dev/sunaba/internal/stream"
)

func createFlags(fs *flag.FlagSet, b *boxCall) {
	b.sandbox.define(fs)
	fs.StringVar(&b.ttl, "ttl", "", "")
	fs.StringVar(&b.unused, "unused", "", "")
	fs.StringVar(&b.onIdle, "on-unused", "", "")
	fs.BoolVar(&b.strict, "strict", false, "")
	fs.StringVar(&b.key, "key", "", "")
	fs.StringVar(&b.snap.ref, "snapshot", "", "")
	fs.StringVar(&b.template, "template", "", "")
	fs.Func("meta", "", b.pair)
}

// pair takes NAME=VALUE.
func (b *boxCall) pair(v string) error {
	if name, _, ok := strings.Cut(v, "="); !ok || name == "" {
		return fmt.Errorf("%q is not NAME=VALUE", v)
	}
	b.pairs = append(b.pairs, v)
	return nil
}

func boxCreate(ctx context.Context, b *boxCall) (int, error) {
	r := box.CreateRequest{Strict: b.strict, Key: b.key, Snapshot: b.snap.ref, Template: b.template, OnIdle: box.IdleAction(b.onIdle), Metadata: map[string]string{}}
	for _, p := range b.pairs {
		name, value, _ := strings.Cut(p, "=")
		r.Metadata[name] = value
	}
	var err error
	for _, t := range []struct {
		flag, text string
		to         *time.Duration
	}{{"ttl", b.ttl, &r.TTL}, {"unused", b.unused, &r.Idle}} {
		if t.text != "" {
			if *t.to, err = config.ParseDuration(t.text); err != nil {
				return 0, flagValue(t.flag, invalid(err))
			}
		}
	}
	if r.Sandbox, err = b.sandbox.sandbox(); err != nil {
		return 0, invalid(err)
	}
	i, err := b.c.Create(ctx, box.Caller{}, r)
	if err != nil {
		return 0, err
	}
	if len(i.Weak) > 0 && b.format != "json" {
		say("not firm on this host: " + strings.Join(subjects(i.Weak), ", ") + " (see weak in `sunaba box inspect`)")
	}
	return 0, b.show(client.DocumentOfBox(i), func() { fmt.Println(i.ID) })
}

func listFlags(fs *flag.FlagSet, b *boxCall) {
	fs.BoolVar(&b.all, "a", false, "")
	fs.Func("meta", "", b.pair)
}

// everyPage is the whole of a list that comes in pages, in the form of a document.
func everyPage[I, J any](page func(cursor string) ([]I, string, error), form func(I) J) ([]J, error) {
	all := []J{}
	for cursor := ""; ; {
		items, next, err := page(cursor)
		if err != nil {
			return nil, err
		}
		for _, i := range items {
			all = append(all, form(i))
		}
		if cursor = next; next == "" {
			return all, nil
		}
	}
}

func boxList(ctx context.Context, b *boxCall) (int, error) {
	r := box.ListRequest{Destroyed: b.all, Metadata: map[string]string{}}
	for _, p := range b.pairs {
		name, value, _ := strings.Cut(p, "=")
		r.Metadata[name] = value
	}
	all, err := everyPage(func(cursor string) ([]box.Info, string, error) {
		r.Cursor = cursor
		return b.c.List(ctx, box.Caller{}, r)
	}, client.DocumentOfBox)
	if err != nil {
		return 0, err
	}
	return table(b, "boxes", all, "BOX\tPHASE\tTIER\tAGE\tENDS IN\tPRINCIPAL", func(i client.BoxDocument) string {
		ends := "-"
		if i.Ends != nil && i.Destroyed == nil {
			ends = about(time.Until(*i.Ends))
		}
		phase := string(i.Phase)
		if i.Reason != "" {
			phase += " (" + string(i.Reason) + ")"
		}
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s", i.ID, shownName(phase), shownName(string(i.Tier)), about(time.Since(i.Created)), ends, shownName(i.Principal))
	})
}

// about tells a time roughly.
func about(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// shownName shows a name from elsewhere in one line of a table.
func shownName(s string) string {
	return oneLine(strings.ReplaceAll(stream.Clean([]byte(s)), "\t", `\t`))
}

func boxInspect(ctx context.Context, b *boxCall) (int, error) {
	id, err := b.id(0)
	if err != nil {
		return 0, err
	}
	i, err := b.c.Inspect(ctx, box.Caller{}, id)
	if err != nil {
		return 0, err
	}
	b.format = "json" // there is too much for anything else
	return 0, b.show(client.DocumentOfBox(i), nil)
}

func boxProlong(ctx context.Context, b *boxCall) (int, error) {
	id, err := b.id(0)
	if err != nil {
		return 0, err
	}
	ttl, err := config.ParseDuration(b.args[1])
	if err != nil {
		return 0, invalid(err)
	}
	i, err := b.c.Prolong(ctx, box.Caller{}, id, ttl)
	if err != nil {
		return 0, err
	}
	return 0, b.show(client.DocumentOfBox(i), func() { fmt.Println(i.Ends.UTC().Format(time.RFC3339)) })
}

func boxPause(ctx context.Context, b *boxCall) (int, error) { return b.step(ctx, b.c.Pause) }

func boxResume(ctx context.Context, b *boxCall) (int, error) { return b.step(ctx, b.c.Resume) }

func (b *boxCall) step(ctx context.Context, do func(context.Context, box.Caller, box.ID) (box.Info, error)) (int, error) {
	id, err := b.id(0)
	if err != nil {
		return 0, err
	}
	i, err := do(ctx, box.Caller{}, id)
	if err != nil {
		return 0, err
	}
	return 0, b.show(client.DocumentOfBox(i), func() {})
}

// boxRemove destroys what it can, and tells of the first that it could not.
func boxRemove(ctx context.Context, b *boxCall) (int, error) {
	return b.each("destroyed", func(n int) (string, error) {
		id, err := b.id(n)
		if err == nil {
			err = b.c.Destroy(ctx, box.Caller{}, id)
		}
		return string(id), err
	})
}

// processOut is a program as `-o json` tells of it.
type processOut struct {
	PID     int       `json:"pid"`
	Tag     string    `json:"tag"`
	Argv    []string  `json:"argv"`
	User    box.User  `json:"user"`
	Started time.Time `json:"started_at"`
	Cause   box.Cause `json:"cause,omitempty"`
	Code    *int      `json:"exit_code"`
	Signal  *int      `json:"signal"`
}

func boxProcesses(ctx context.Context, b *boxCall) (int, error) {
	_, g, err := b.guest(ctx)
	if err != nil {
		return 0, err
	}
	all, err := g.Processes(ctx)
	if err != nil {
		return 0, err
	}
	out := []processOut{}
	for _, p := range all {
		o := processOut{PID: p.PID, Tag: p.Tag, Argv: p.Argv, User: p.User, Started: p.Started}
		if e := p.End; e != nil {
			o.Cause = e.Cause
			switch e.Cause {
			case box.Exited:
				o.Code = &e.ExitCode
			case box.Signaled:
				o.Signal = &e.Signal
			}
		}
		out = append(out, o)
	}
	return table(b, "processes", out, "PID\tUSER\tAGE\tSTATE\tCOMMAND", func(p processOut) string {
		state := "running"
		switch {
		case p.Code != nil:
			state = "exit " + strconv.Itoa(*p.Code)
		case p.Signal != nil:
			state = "signal " + strconv.Itoa(*p.Signal)
		case p.Cause != "":
			state = string(p.Cause)
		}
		return fmt.Sprintf("%d\t%s\t%s\t%s\t%s", p.PID, shownName(string(p.User)), about(time.Since(p.Started)), shownName(state), shownName(strings.Join(p.Argv, " ")))
	})
}
