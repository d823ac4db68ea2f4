package host

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"
)

// SharedSegments returns the bytes of memory in the System V segments of this
// process's IPC namespace, attached or not: SHM_INFO of shmctl(2), which needs no
// right.
func SharedSegments() (int64, error) {
	const shmInfo = 14 // SHM_INFO, linux/shm.h
	var info struct {  // struct shm_info on 64 bits
		Used                  int32
		_                     int32
		Total, Resident, Swap uint64
		_, _                  uint64
	}
	if _, _, e := syscall.Syscall(syscall.SYS_SHMCTL, 0, shmInfo, uintptr(unsafe.Pointer(&info))); e != 0 {
		return 0, fmt.Errorf("cannot ask for shared segments: %w", e)
	}
	return int64(info.Resident+info.Swap) * int64(os.Getpagesize()), nil
}
