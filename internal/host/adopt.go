package host

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Identity names one process for good. Its number alone does not: numbers are
// given again.
type Identity struct {
	Boot  string // of the host: random(4), boot_id
	PID   int
	Start uint64 // clock ticks between boot and its start: proc_pid_stat(5), field 22
}

// Identify names a process, which must be a child that was not waited for, or
// be held otherwise.
func Identify(pid int) (Identity, error) {
	id := Identity{PID: pid}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return id, fmt.Errorf("cannot identify process %d: %w", pid, err)
	}
	id.Boot = strings.TrimSpace(string(boot))
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return id, fmt.Errorf("cannot identify process %d: %w", pid, err)
	}
	// The name, in parentheses, may hold anything.
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(f) < 20 {
		return id, fmt.Errorf("cannot identify process %d: its account is cut off", pid)
	}
	if id.Start, err = strconv.ParseUint(string(f[19]), 10, 64); err != nil {
		return id, fmt.Errorf("cannot identify process %d: %w", pid, err)
	}
	return id, nil
}

// ErrNotThere is for a process that has ended, whoever has its number now.
var ErrNotThere = errors.New("that process has ended")

// Adopt takes charge of a process that an earlier program spawned, which must be
// one of user uid's. It is held by a descriptor from then on (pidfd_open(2)), so
// that nobody else can be meant. A process that has ended is [ErrNotThere].
func Adopt(id Identity, uid int) (*Child, error) {
	if id.PID <= 1 {
		return nil, fmt.Errorf("cannot take up process %d: no box has that number", id.PID)
	}
	fd, err := unix.PidfdOpen(id.PID, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		err = ErrNotThere
	}
	if err != nil {
		return nil, fmt.Errorf("cannot take up process %d: %w", id.PID, err)
	}
	f := os.NewFile(uintptr(fd), "process")
	c := &Child{pid: id.PID, done: make(chan struct{})}
	now, err := Identify(id.PID)
	if err == nil && now != id {
		err = fmt.Errorf("cannot take up process %d: %w", id.PID, ErrNotThere)
	}
	if err == nil {
		err = ownedBy(id.PID, uid)
	}
	// What was read is of the process that is held only if that one still lives.
	if err == nil && unix.PidfdSendSignal(fd, 0, nil, 0) != nil {
		err = fmt.Errorf("cannot take up process %d: %w", id.PID, ErrNotThere)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	rc, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot take up process %d: %w", id.PID, err)
	}
	c.held = f
	c.kill = func() { // through f, whose number may be another file's once it is closed
		_ = rc.Control(func(fd uintptr) { _ = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
	}
	go func() {
		// The descriptor becomes readable when the process has ended.
		err := rc.Read(func(fd uintptr) bool {
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(p, 0)
			return err == nil && n == 1
		})
		if err == nil { // else it was released
			close(c.done)
		}
	}()
	return c, nil
}

// ownedBy refuses a process that is not a user's: proc_pid_status(5), Uid.
func ownedBy(pid, uid int) error {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return fmt.Errorf("cannot take up process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, "Uid:"); ok {
			if f := strings.Fields(v); len(f) == 4 && f[0] == strconv.Itoa(uid) && f[1] == f[0] {
				return nil
			}
		}
	}
	return fmt.Errorf("cannot take up process %d: it is not user %d's", pid, uid)
}
