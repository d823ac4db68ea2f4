package main

import (
	"context"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/sunaba-dev/sunaba/box"
)

// table shows documents, under a key, or as a table: its head, and a line of each.
func table[D any](b *boxCall, key string, all []D, head string, line func(D) string) (int, error) {
	return 0, b.show(map[string]any{key: all}, func() {
		w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, head)
		for _, d := range all {
			fmt.Fprintln(w, line(d))
		}
		w.Flush()
	})
}

// inspected shows all that is known of the call's argument. It is for programs, and
// too much for a table.
func inspected[I, D any](ctx context.Context, b *boxCall, get func(context.Context, box.Caller, string) (I, error), document func(I) D) (int, error) {
	i, err := get(ctx, box.Caller{}, b.args[0])
	if err != nil {
		return 0, err
	}
	b.format = "json"
	return 0, b.show(document(i), nil)
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
