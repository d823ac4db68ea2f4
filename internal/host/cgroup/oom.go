package cgroup

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// WatchOOM returns a channel that gets a value soon after the kernel ran out of
// memory for the group, and is closed when ctx ends. Several events may come as
// one. It is a hint about when to look: the account is [Stats.OOMKills], which
// may not have changed (version 1 also reports an event when the group is
// removed, or when killing is turned off).
//
// The watch holds one or two descriptors until ctx ends.
func (g *Group) WatchOOM(ctx context.Context) (<-chan struct{}, error) {
	d, ok := g.dir("memory")
	if !ok {
		return nil, g.missing("memory")
	}
	var f *os.File
	var err error
	if d.version == 2 {
		f, err = watchFile(d.path + "/memory.events")
	} else {
		f, err = g.watchV1(d)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot watch memory of control group %s: %w", g.name, err)
	}
	events := make(chan struct{}, 1)
	stop := context.AfterFunc(ctx, func() { f.Close() })
	go func() {
		defer close(events)
		defer f.Close()
		defer stop()
		buf := make([]byte, 4096)
		for {
			// Both kinds of descriptor are in the runtime's poller, so
			// closing the file ends the read.
			if _, err := f.Read(buf); err != nil {
				return
			}
			select {
			case events <- struct{}{}:
			default:
			}
		}
	}()
	return events, nil
}

// watchFile reports changes of a version 2 event file by inotify(7).
func watchFile(path string) (*os.File, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_MODIFY); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "inotify"), nil
}

// watchV1 registers an eventfd(2) for memory.oom_control.
func (g *Group) watchV1(d dir) (*os.File, error) {
	control, err := os.Open(d.path + "/memory.oom_control")
	if err != nil {
		return nil, err
	}
	defer control.Close() // the registration outlives it
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	if err := g.m.fs.Write(d.path+"/cgroup.event_control", fmt.Sprintf("%d %d", fd, control.Fd())); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "eventfd"), nil
}
