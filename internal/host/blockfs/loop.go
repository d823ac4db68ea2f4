package blockfs

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/box"
)

// attach binds a file to a free loop device and returns the device, open. The
// device lets go of the file when the last who has it open, or mounted, is
// gone (LO_FLAGS_AUTOCLEAR), so that nothing needs to be undone. See loop(4).
func attach(f *os.File, flags uint32) (*os.File, error) {
	ctl, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, unusable("cannot open loop devices: %w", err).
			WithHint("load the loop module (modprobe loop); in a container, pass the host's /dev")
	}
	defer ctl.Close()
	config := unix.LoopConfig{Fd: uint32(f.Fd()), Size: blockSize}
	config.Info.Flags = flags | unix.LO_FLAGS_AUTOCLEAR
	copy(config.Info.File_name[:], "sunaba")
	// A free device is anybody's until it is bound. Every round in which we
	// lose, somebody else wins.
	for round := range 10_000 {
		n, err := unix.IoctlRetInt(int(ctl.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("cannot find a free loop device: %w", err)
		}
		mode := os.O_RDWR
		if flags&unix.LO_FLAGS_READ_ONLY != 0 {
			mode = os.O_RDONLY
		}
		dev, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), mode, 0)
		if round < 20 && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENXIO)) {
			continue // somebody removed the device meanwhile
		}
		if err != nil {
			return nil, unusable("cannot open loop device: %w", err).
				WithHint("loop devices are made in the host's /dev (devtmpfs); in a container, pass it")
		}
		err = unix.IoctlLoopConfigure(int(dev.Fd()), &config)
		if err == nil {
			return dev, nil
		}
		dev.Close()
		if !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return nil, fmt.Errorf("cannot bind loop device %d: %w", n, err)
		}
	}
	return nil, box.Errorf(box.Exhausted, op, "cannot bind a loop device: others are always faster")
}
