// Package janitor is what clears up after a front that was killed.
//
// A janitor is a process of its own session beside each box. It reads one byte
// from its standard input: if the front says goodbye there is nothing to do; if
// the front is gone without a word, the janitor removes the box's control group
// and run folder. The box's processes need no janitor: the kernel ends them.
//
// It is part of the small program that also runs inside boxes, because it is
// started for each box and, nearly always, for nothing.
package janitor

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host/cgroup"
	"github.com/sunaba-dev/sunaba/internal/host/hostfs"
)

// Argv is the name under which a program is a janitor.
const Argv = "sunaba-janitor"

// Task is a janitor's only argument, as JSON.
type Task struct {
	State string // folder of the site
	ID    box.ID
}

// RunDir is the folder below state that holds one folder for each box.
func RunDir(state string) string { return state + "/run" }

// Main is the whole life of a janitor; it returns the exit code.
func Main(args []string) int {
	if len(args) != 2 {
		return 2
	}
	var task Task
	if err := json.Unmarshal([]byte(args[1]), &task); err != nil || !task.ID.Valid() {
		return 2
	}
	buf := make([]byte, 1)
	if n, _ := os.Stdin.Read(buf); n == 1 {
		return 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	groups, err := cgroup.Detect(cgroup.Root, cgroup.MountInfo, cgroup.SelfCgroup)
	if err != nil {
		groups = nil
	}
	// The box's first process may still be dying, and writing into its folder
	// until then.
	for Remove(ctx, groups, task.State, task.ID) != nil {
		select {
		case <-ctx.Done():
			return 1
		case <-time.After(50 * time.Millisecond):
		}
	}
	return 0
}

// Remove removes what a box without a live front has left under its name.
// Groups may be nil.
func Remove(ctx context.Context, groups *cgroup.Manager, state string, id box.ID) error {
	var errs []error
	if groups != nil {
		groups.Tidy()
		if g, err := groups.Open(string(id)); err == nil {
			errs = append(errs, g.Kill(ctx), g.Remove(ctx))
		}
	}
	errs = append(errs, RemoveRunDir(ctx, filepath.Join(RunDir(state), string(id))))
	return errors.Join(errs...)
}

// RemoveRunDir removes a box's run folder. One that is gone is no error.
func RemoveRunDir(ctx context.Context, dir string) error {
	if _, err := os.Lstat(dir); os.IsNotExist(err) {
		return nil
	}
	return hostfs.RemoveTree(ctx, dir)
}
