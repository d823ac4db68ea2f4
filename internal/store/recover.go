package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// Recover moves a database that cannot be read aside, so that the next Open begins
// anew, and returns the new names of what it moved: the database, and the folders
// beside it (of snapshots and volumes) that the next start would clear, since no
// row knows of what is in them. It removes nothing. One that can be read, that a
// later version made, or that another process has is an error, and nothing is
// changed.
func Recover(ctx context.Context, dir string, beside ...string) (moved []string, err error) {
	s, err := Open(ctx, dir)
	if err == nil {
		return nil, errors.Join(box.Errorf(box.Invalid, "recover", "cannot recover: the database in %s can be read; nothing was changed", dir), s.Close())
	}
	if !errors.Is(err, errDamaged) && !errors.Is(err, errGone) && !errors.Is(err, errEmpty) {
		return nil, err
	}
	lock, err := own(dir)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	suffix := ".damaged-" + time.Now().UTC().Format("20060102T150405.000")
	// The mark goes last: until then a start refuses as before.
	for _, name := range append(beside, fileName+"-shm", fileName+"-wal", fileName) {
		from := filepath.Join(dir, name)
		err := os.Rename(from, from+suffix)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return moved, fmt.Errorf("cannot move what is damaged aside: %w", err)
		}
		moved = append(moved, from+suffix)
	}
	if err := syncDir(dir); err != nil {
		return moved, err
	}
	mark := filepath.Join(dir, "daemon")
	if err := os.Remove(filepath.Join(mark, markName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return moved, fmt.Errorf("cannot begin anew: %w", err)
	}
	return moved, syncDir(mark)
}
