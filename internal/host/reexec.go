package host

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// DropAllByExec does what [DropAll] does, for a program built with cgo, whose
// threads the Go runtime does not all know: one thread drops its rights and
// executes this program again, and all threads of the new image have what that
// one had left. The files keep their descriptor numbers. It returns only on
// failure.
func DropAllByExec(args []string, files ...*os.File) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot clear ambient capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot set no_new_privs: %w", err)
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&hdr, &none[0]); err != nil {
		return fmt.Errorf("cannot drop capabilities: %w", err)
	}
	for _, f := range files {
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("cannot keep descriptor: %w", err)
		}
	}
	return fmt.Errorf("cannot execute %s again: %w", SelfExe, unix.Exec(SelfExe, args, []string{}))
}

// Memory returns a file in memory with the given content, at offset 0.
func Memory(name string, content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("cannot make file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.WriteAt(content, 0); err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot write file in memory: %w", err)
	}
	return f, nil
}

// ErrNoExec is for hosts with the sysctl vm.memfd_noexec at 2.
var ErrNoExec = errors.New("cannot make an executable file in memory")

// Sealed returns an executable file in memory that nobody can change any more,
// this process included (memfd_create(2), F_ADD_SEALS): what runs from it
// cannot be overwritten through /proc (CVE-2019-5736). Where the host lets no
// file in memory be executed, the error is [ErrNoExec].
func Sealed(name string, content *io.SectionReader) (*os.File, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3 all could be executed
		fd, err = unix.MemfdCreate(name, flags)
	}
	if errors.Is(err, unix.EACCES) {
		return nil, fmt.Errorf("%w: %w", ErrNoExec, err)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot make file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := fill(f, content); err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot write file in memory: %w", err)
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if err := f.Chmod(0o555); err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot make file in memory executable: %w", err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot seal file in memory: %w", err)
	}
	if got, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0); err != nil || got&seals != seals {
		f.Close()
		return nil, fmt.Errorf("cannot seal file in memory: seals are %#x (%v)", got, err)
	}
	return f, nil
}

// fill writes all of content to f.
func fill(f *os.File, content *io.SectionReader) error {
	buf := make([]byte, 128<<10)
	for off := int64(0); off < content.Size(); {
		n, err := content.ReadAt(buf[:min(int64(len(buf)), content.Size()-off)], off)
		if n == 0 && err != nil {
			return err
		}
		if _, err := f.WriteAt(buf[:n], off); err != nil {
			return err
		}
		off += int64(n)
	}
	return nil
}
