package host

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/box"
)

// OpenPTY makes a pseudo-terminal of the given size. The replica is opened
// through the master's descriptor (TIOCGPTPEER, ioctl_tty(2)), so that no name
// under /dev/pts is trusted. Neither end becomes anyone's controlling terminal.
func OpenPTY(size box.WindowSize) (master, replica *os.File, err error) {
	mfd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot open /dev/ptmx: %w", err)
	}
	fail := func(what string, err error) (*os.File, *os.File, error) {
		unix.Close(mfd)
		return nil, nil, fmt.Errorf("cannot %s pseudo-terminal: %w", what, err)
	}
	if err := unix.IoctlSetPointerInt(mfd, unix.TIOCSPTLCK, 0); err != nil {
		return fail("unlock", err)
	}
	rfd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(mfd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return fail("open the other side of", errno)
	}
	master, replica = os.NewFile(uintptr(mfd), "ptmx"), os.NewFile(rfd, "pts")
	if err := ResizePTY(master, size); err != nil {
		master.Close()
		replica.Close()
		return nil, nil, err
	}
	return master, replica, nil
}

// ResizePTY sets the size that the terminal's programs see.
func ResizePTY(master *os.File, size box.WindowSize) error {
	rc, err := master.SyscallConn()
	if err != nil {
		return fmt.Errorf("cannot resize terminal: %w", err)
	}
	var serr error
	err = rc.Control(func(fd uintptr) {
		serr = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
	})
	if err == nil {
		err = serr
	}
	if err != nil {
		return fmt.Errorf("cannot resize terminal: %w", err)
	}
	return nil
}
