package host

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// SyncFS has everything that was written to the file system of an open folder
// brought to its disk, and returns when it is; see syncfs(2). The folder may be
// open as a place only (O_PATH).
func SyncFS(dir *os.File) error {
	fd, err := unix.Openat(int(dir.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.Syncfs(fd)
		unix.Close(fd)
	}
	if err != nil {
		return fmt.Errorf("cannot write out the file system of %s: %w", dir.Name(), err)
	}
	return nil
}
