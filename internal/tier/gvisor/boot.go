package gvisor

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/google/subcommands"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/flag"
	"gvisor.dev/gvisor/runsc/specutils"

	"github.com/sunaba-dev/sunaba/internal/host"
)

// Guest descriptor numbers that never reach the guest: takePassedFiles turns
// these donations into flags of the sentry.
const (
	guestStoreFD = 9001 // file behind the writable layer
	guestLimitFD = 9002 // pipe on which the guest kernel reports limits
	guestPartFD  = 9003 // and the next ones: fileParts of a copy
)

// bootNumbers is what the runner tells the sentry, beside what gVisor derives
// from a cgroup of its own making (which we do not use). It is a file in the
// bundle, read before the sentry gives up its view of the host.
type bootNumbers struct {
	Memory uint64 // bytes that the guest sees as its total
	CPUs   int    // processors that the guest sees
	Files  uint64 // inodes of the writable layer
	Bytes  uint64 // size of the writable layer
	Tasks  uint64 // of all programs together; 0 = what each program's own limit says
	Most   uint64 // bytes of guest memory over which a program is ended; 0 = none
}

const capSysPtrace = 19 // linux/capability.h

const bootNumbersFile = "numbers.json"

// bootCommand is gVisor's boot command with three additions: the guest's
// memory and processor count, an inode limit and a file of our own behind the
// writable layer, and reports of limits that the program runs into.
//
// The first pass turns the bundle's numbers into flags; the second applies them.
// Built with cgo, gVisor re-executes itself between the two to drop its rights,
// and carries the flags over; otherwise all is done in one process image.
type bootCommand struct {
	sentrycmd.Boot
	files   uint64
	bytes   uint64
	tasks   uint64
	most    uint64
	limitFD int
}

// SetFlags implements subcommands.Command.
func (b *bootCommand) SetFlags(f *flag.FlagSet) {
	b.Boot.SetFlags(f)
	f.Uint64Var(&b.files, "sunaba-files", 0, "inodes of the writable layer")
	f.Uint64Var(&b.bytes, "sunaba-bytes", 0, "size of the writable layer")
	f.Uint64Var(&b.tasks, "sunaba-tasks", 0, "tasks of all programs")
	f.Uint64Var(&b.most, "sunaba-most", 0, "bytes of memory over which a program is ended")
	f.IntVar(&b.limitFD, "sunaba-limit-fd", -1, "pipe for reports of limits")
}

// Execute implements subcommands.Command.
func (b *bootCommand) Execute(ctx context.Context, f *flag.FlagSet, args ...any) subcommands.ExitStatus {
	var err error
	first := f.Lookup("setup-root").Value.String() == "true"
	if first {
		err = b.firstPass(f)
	}
	if err == nil && (!first || !config.CgoEnabled) {
		err = b.secondPass(f)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return subcommands.ExitFailure
	}
	return b.Boot.Execute(ctx, f, args...)
}

func (b *bootCommand) firstPass(f *flag.FlagSet) error {
	raw, err := os.ReadFile(filepath.Join(f.Lookup("bundle").Value.String(), bootNumbersFile))
	if err != nil {
		return fmt.Errorf("cannot read the box's numbers: %w", err)
	}
	var n bootNumbers
	if err := json.Unmarshal(raw, &n); err != nil {
		return fmt.Errorf("cannot parse the box's numbers: %w", err)
	}
	if !config.CgoEnabled {
		// There is no other user to become: to give up capabilities takes no
		// execution where all threads are the Go runtime's. gVisor would keep
		// one for the platform's sake, which traces its own children only.
		if err := host.Drop(capSysPtrace); err != nil {
			return err
		}
		if err := f.Set("apply-caps", "true"); err != nil {
			return fmt.Errorf("cannot set apply-caps: %w", err)
		}
	}
	mem := strconv.FormatUint(n.Memory, 10)
	for _, kv := range [][2]string{
		{"total-memory", mem},
		{"total-host-memory", mem},
		{"cpu-num", strconv.Itoa(n.CPUs)},
		{"product-name", "sunaba"}, // else the host's DMI name shows in the guest
		{"sunaba-files", strconv.FormatUint(n.Files, 10)},
		{"sunaba-bytes", strconv.FormatUint(n.Bytes, 10)},
		{"sunaba-tasks", strconv.FormatUint(n.Tasks, 10)},
		{"sunaba-most", strconv.FormatUint(n.Most, 10)},
	} {
		if err := f.Set(kv[0], kv[1]); err != nil {
			return fmt.Errorf("cannot set %s: %w", kv[0], err)
		}
	}
	return nil
}

// secondPass puts the writable layer on our file. gVisor passes the layer's
// size on as mount data of its tmpfs, where a comma starts the next option:
// that is how the inode limit gets in, which has no flag of its own.
func (b *bootCommand) secondPass(f *flag.FlagSet) error {
	confs, ok := f.Lookup("gofer-mount-confs").Value.(*specutils.GoferMountConfFlags)
	if !ok || len(*confs) == 0 || b.files == 0 || b.bytes == 0 {
		return fmt.Errorf("cannot limit the writable layer: no root mount configuration")
	}
	root := &(*confs)[0]
	root.Upper = specutils.AnonOverlay
	root.Size = fmt.Sprintf("%d,nr_inodes=%d", b.bytes, b.files)
	if b.limitFD < 0 {
		return fmt.Errorf("cannot report limits: no pipe was passed")
	}
	reportLimits(os.NewFile(uintptr(b.limitFD), "limits"), b.tasks, b.most)
	return nil
}

// takePassedFiles rewrites "--pass-fd=HOST:GUEST" for our numbers, so that
// the files serve the sentry and never appear in the guest.
func takePassedFiles(args []string) []string {
	out := make([]string, 0, len(args))
	parts, at := [len(fileParts)]string{}, 0
	for _, a := range args {
		if v, ok := strings.CutPrefix(a, "--pass-fd="); ok {
			hostFD, guestFD, _ := strings.Cut(v, ":")
			switch guestFD {
			case strconv.Itoa(guestStoreFD):
				a = "--gofer-filestore-fds=" + hostFD
			case strconv.Itoa(guestLimitFD):
				a = "--sunaba-limit-fd=" + hostFD
			}
			if n, err := strconv.Atoi(guestFD); err == nil && n >= guestPartFD && n < guestPartFD+len(parts) {
				parts[n-guestPartFD], at = hostFD, len(out)
				continue
			}
		}
		out = append(out, a)
	}
	if parts[0] != "" {
		out = slices.Insert(out, at, "--fs-restore-fds="+strings.Join(parts[:], ","))
	}
	return out
}
