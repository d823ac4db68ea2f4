package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/sunaba-dev/sunaba/internal/config"
	"github.com/sunaba-dev/sunaba/internal/store"
)

// recoverCommand is `sunaba recover`: the way out when the database cannot be read.
// It is a command of its own, since what it gives up is not to be lost by a flag
// that stays in a unit file.
func recoverCommand(args []string) int {
	fs := flag.NewFlagSet("recover", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	state := fs.String("state", "", "folder of the daemon (default as for run)")
	err := parseFlags(fs, args, "recover")
	if errors.Is(err, flag.ErrHelp) {
		fmt.Print(`usage:
  sunaba recover [--state DIR]

Moves a database that cannot be read aside, with the folders of snapshots and
volumes, and removes nothing. The next sunaba serve begins anew: it destroys boxes
that are still there, and shows a new key. A database that can be read is left.
`)
		return 0
	}
	if err == nil && fs.NArg() > 0 {
		err = fmt.Errorf("cannot use argument %q: recover takes flags only", fs.Arg(0))
	}
	if err != nil {
		return failed(&runFlags{cfg: config.Default()}, invalid(err))
	}
	dir, err := stateDir(*state)
	var moved []string
	if err == nil {
		moved, err = store.Recover(context.Background(), dir, "snapshots", "volumes")
	}
	for _, m := range moved {
		fmt.Fprintf(os.Stdout, "moved aside: %s\n", m)
	}
	if err != nil {
		return failed(&runFlags{cfg: config.Default()}, err)
	}
	fmt.Fprintln(os.Stdout, "The next `sunaba serve` begins anew: boxes that are still there are destroyed, and it shows a new key (unless it has one in SUNABA_API_KEY).")
	return 0
}
