package blockfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/box"
)

// Damage returns an error if something that was written to a store did not get to
// the host's disk, because that is full or fails: box.Exhausted. Programs hear of
// it only if they ask (fsync(2)): what they wrote is in the page cache first, and
// once the kernel has let it go from there, it is read back as zeros.
//
// A store's file has no room of its own on the host's disk: to reserve it would
// cost milliseconds at each start and the disk of all boxes that do not write. So
// the file system's own count of failed writes is asked (errors_count and
// warning_count of Linux fs/ext4/sysfs.c, 5.10). What is still in the page cache
// is not lost; a page leaves it only after the count has grown.
func Damage(store *os.File) error {
	dir, err := counters(store)
	if err != nil {
		return err
	}
	var failed int64
	for _, name := range []string{"errors_count", "warning_count"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("cannot ask the store for failed writes: %w", err)
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		if err != nil {
			return fmt.Errorf("cannot ask the store for failed writes: %w", err)
		}
		failed += n
	}
	if failed == 0 {
		return nil
	}
	return box.Errorf(box.Exhausted, op, "cannot keep what the box writes: the host's disk is full or fails (%d writes failed)", failed).
		WithHint("free some space on the disk of the state folder, or name another folder with --state; the kernel's log tells which writes failed")
}

// counters is the folder of a store's counts: /sys/fs/ext4/<device>.
func counters(store *os.File) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(store.Fd()), &st); err != nil {
		return "", fmt.Errorf("cannot ask the store for failed writes: %w", err)
	}
	link, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if err != nil {
		return "", fmt.Errorf("cannot ask the store for failed writes: %w", err)
	}
	return "/sys/fs/ext4/" + filepath.Base(link), nil
}

const weakBlind = "disk: this kernel does not count failed writes to the host's disk; if that runs full, what a program wrote may be lost without a word"

// blind says so if nobody will tell of damage.
func blind(store *os.File) []string {
	err := Damage(store)
	var known *box.Error
	if err == nil || errors.As(err, &known) {
		return nil
	}
	return []string{weakBlind}
}
