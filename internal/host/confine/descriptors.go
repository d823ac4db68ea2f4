package confine

import (
	"fmt"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// closeOthers marks every descriptor above 2 that is not kept to be closed by
// execve, and returns those that the program will have. They are not closed at
// once: the Go runtime waits on some of them.
//
// A descriptor that a program inherits is a hole in every other wall: by one
// that led to a folder of the host, CVE-2024-21626 left the container.
func closeOthers(keep []int) ([]int, error) {
	for _, fd := range keep {
		if fd < 3 {
			return nil, fmt.Errorf("cannot keep descriptor %d: 0, 1 and 2 stay anyway", fd)
		}
	}
	if err := unix.CloseRange(3, ^uint(0)>>32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return nil, fmt.Errorf("cannot close descriptors: %w", err)
	}
	want := append([]int{0, 1, 2}, keep...)
	for _, fd := range want {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return nil, fmt.Errorf("cannot keep descriptor %d: %w", fd, err)
		}
	}
	slices.Sort(want)
	want = slices.Compact(want)
	got, err := inherited()
	if err != nil {
		return nil, err
	}
	if !slices.Equal(got, want) {
		return nil, fmt.Errorf("cannot close descriptors: a program would get %v, not %v", got, want)
	}
	return got, nil
}

// inherited lists the descriptors that execve would keep.
func inherited() ([]int, error) {
	dir, err := unix.Open("/proc/self/fd", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot list descriptors: %w", err)
	}
	defer unix.Close(dir)
	var names []string
	buf := make([]byte, 4096)
	for {
		n, err := unix.Getdents(dir, buf)
		if err != nil {
			return nil, fmt.Errorf("cannot list descriptors: %w", err)
		}
		if n <= 0 {
			break
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
	}
	var out []int
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil {
			return nil, fmt.Errorf("cannot list descriptors: %w", err)
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil {
			continue // closed since
		}
		if flags&unix.FD_CLOEXEC == 0 {
			out = append(out, fd)
		}
	}
	slices.Sort(out)
	return out, nil
}
