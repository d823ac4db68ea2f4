package store

import (
	"context"
	"fmt"
	"syscall"

	"github.com/sunaba-dev/sunaba/box"
)

// minRoom is how many bytes the disk of the state folder must have left: the
// database and what is beside it grow by that before a checkpoint.
const minRoom = 4 << 20

// Ready is nil if rows can be read and there is room to write some. It writes
// nothing, so anybody may ask for it.
func (s *Store) Ready(ctx context.Context) error {
	if _, err := s.Keys(ctx); err != nil {
		return err
	}
	var st syscall.Statfs_t
	if err := syscall.Statfs(s.dir, &st); err != nil {
		return fmt.Errorf("cannot look at the disk of the state folder: %w", err)
	}
	if left := int64(st.Bavail) * st.Bsize; left < minRoom {
		return box.Errorf(box.Unavailable, "write database", "cannot take on work: the disk of the state folder has %d bytes left, %d are needed", left, minRoom)
	}
	return nil
}
