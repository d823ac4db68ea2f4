package gvisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"gvisor.dev/gvisor/pkg/control/client"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/wire"
	"github.com/sunaba-dev/sunaba/internal/tier/frame"
)

// fileParts are the files of a copy of what was written in a guest, in that order: what
// is in the others, the names and all about them, which pages there are, and the pages.
var fileParts = [...]string{"contents", "names", "pages.list", "pages"} //house:const names of files

// partsOf are the names of the parts of a copy.
func partsOf(kind box.SnapshotKind) []string {
	switch kind {
	case box.SnapshotFiles:
		return fileParts[:]
	case box.SnapshotMemory:
		return memoryParts[:]
	}
	return nil
}

// memoryParts are the files of a copy of a guest with all that runs, in the order
// in which its kernel takes them: its own state, which pages there are, and the
// pages, of programs and of the writable layer.
var memoryParts = [...]string{"kernel", "pages.list", "pages"} //house:const names of files

// snapshot answers with the files of a copy of the guest, which stands still for
// that, and goes on if it was not paused.
func (r *runner) snapshot() (any, error) {
	r.turn.Lock()
	defer r.turn.Unlock()
	if r.c == nil || r.set.Lasting == nil {
		return nil, errNotLasting
	}
	r.handed.copying.Lock()
	defer r.handed.copying.Unlock()
	if err := r.nothingHeld(); err != nil {
		return nil, err
	}
	files, err := r.unlinked(len(memoryParts))
	if err != nil {
		return nil, err
	}
	opt := control.SaveOpts{
		Metadata: statefile.CompressionLevelNone.ToMetadata(), AppMFExcludeCommittedZeroPages: true, HavePagesFile: true, Resume: true,
		FilePayload: urpc.FilePayload{Files: files},
	}
	if err := r.ask(boot.ContMgrCheckpoint, &opt); err != nil {
		frame.CloseAll(files)
		return nil, fmt.Errorf("cannot copy the guest: %w", err)
	}
	return wire.WithFiles{Body: saved{Lossy: r.isLossy()}, Files: files}, nil
}

// snapshotFiles answers with the files of a copy of what was written in the guest, which
// stands still for that. No file's content passes through the memory of its kernel.
func (r *runner) snapshotFiles() (any, error) {
	r.turn.Lock()
	defer r.turn.Unlock()
	if r.c == nil || r.set.Lasting == nil {
		return nil, errNotLasting
	}
	files, err := r.unlinked(len(fileParts))
	if err != nil {
		return nil, err
	}
	names, err := openNames(files[1])
	if err != nil {
		frame.CloseAll(files)
		return nil, err
	}
	args := boot.FSSaveArgs{FilePayload: urpc.FilePayload{Files: []*os.File{files[0], names.to, files[2], files[3]}}}
	err = r.ask(boot.ContMgrFSSave, &args)
	if nerr := names.close(); nerr != nil {
		frame.CloseAll(files)
		return nil, nerr
	}
	if err != nil {
		frame.CloseAll(files)
		return nil, fmt.Errorf("cannot copy the guest's files: %w", err)
	}
	if r.isLossy() {
		frame.CloseAll(files)
		return nil, box.Errorf(box.Conflict, "snapshot box", "cannot copy the guest's files: one got an attribute (xattr) that is empty or no UTF-8, which the copy would be without")
	}
	return wire.WithFiles{Body: struct{}{}, Files: files}, nil
}

// isLossy reports whether a file of the guest's has, or had, what a copy of files cannot
// keep: of all that was done before it stood still.
func (r *runner) isLossy() bool {
	r.limits.tell()
	return r.lossy.Load()
}

// unlinked makes files without a name, on the disk of the run folder.
func (r *runner) unlinked(n int) (files []*os.File, err error) {
	for range n {
		f, err := os.CreateTemp(r.set.Dir, "copy-")
		if err == nil {
			files = append(files, f)
			err = os.Remove(f.Name())
		}
		if err != nil {
			frame.CloseAll(files)
			return nil, fmt.Errorf("cannot make files for a copy: %w", err)
		}
	}
	return files, nil
}

// restore has the guest's kernel, which was made and not started, go on as the one
// that was copied. It is told by descriptors: this process may open no file of the
// front's by name.
func (r *runner) restore(c *container.Container, parts []*os.File, nic *os.File) error {
	r.c = c
	args := networkOf(nic)
	args.IsRestore = true
	err := r.ask(boot.ContMgrSetNetworkArgs, args)
	if err == nil {
		err = r.ask(boot.ContMgrRestore, &boot.RestoreOpts{HavePagesFile: true, FilePayload: urpc.FilePayload{Files: parts}})
	}
	if err != nil {
		r.c = nil
		return err
	}
	c.Sandbox.Restored = true
	c.Status = container.Running // which is only looked at here
	return nil
}

// filesRestored waits until all that was copied of files is in the guest.
func (r *runner) filesRestored(c *container.Container) error {
	r.c = c
	err := r.ask(boot.ContMgrWaitFSRestore, &boot.WaitFSRestoreArgs{CID: c.ID})
	if err != nil {
		r.c = nil
	}
	return err
}

// ask makes one call of the guest's kernel.
func (r *runner) ask(method string, args any) error { return r.askFor(method, args, nil) }

// askFor is ask for a call that has a result.
func (r *runner) askFor(method string, args, result any) error {
	path := r.c.Sandbox.GetControlSocketPath()
	if path == "" {
		return errors.New("cannot reach the guest's kernel: it has no socket")
	}
	// The path may be longer than an address can be.
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("cannot reach the guest's kernel: %w", err)
	}
	conn, err := client.ConnectTo(filepath.Join(fdPath(dir), filepath.Base(path)))
	dir.Close() // the call may take as long as the box lives
	if err != nil {
		return fmt.Errorf("cannot reach the guest's kernel: %w", err)
	}
	defer conn.Close()
	return brief(conn.Call(method, args, result))
}

// likeCopied sets what a guest that goes on must not be refused for: that its files
// have other numbers here. What its spec says otherwise is compared by the front.
func likeCopied(conf *config.Config) { conf.RestoreSpecValidation = config.RestoreSpecValidationIgnore }
