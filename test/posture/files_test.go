package posture

import (
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/internal/posture"
)

// count is how many descriptors of a kind a process has.
type count struct{ min, max int }

func exactly(n int) count { return count{n, n} }

// sentryFiles is what the guest's kernel may hold of the host. With host folders
// it has a channel to the gofer more: three sockets and two event counters.
func sentryFiles(gofer bool, spaces int) map[string]count {
	events, sockets := 3, 3
	if gofer {
		events, sockets = 5, 6
	}
	return map[string]count{
		"/dev/null r":                     exactly(2), // stdin, and gVisor's spare
		"/dev/null w":                     exactly(4), // stdout, stderr, and their spares
		"STATE/images/DIGEST.erofs r":     exactly(1), // the root file system
		"STATE/store/# (deleted) r":       exactly(1), // the image with init and agent
		"STATE/store/# (deleted) rw":      exactly(1), // the writable layer
		"memfd:runsc-memory rw":           exactly(1), // the guest's memory
		"memfd:systrap-memory rw":         exactly(1), // shared with the stubs
		"memfd:memory-usage rw":           exactly(1), // gVisor's account of it
		"pipe r":                          exactly(2), // the guest's stdin; one end of a pipe of its own
		"pipe w":                          exactly(5), // the guest's stdout and stderr; its other end; reports of limits, and again for a panic's words
		"unix socket rw":                  exactly(sockets),
		"anon_inode:[pidfd] of nobody rw": {0, 1}, // of the helper that unmounted /proc and has ended
		"anon_inode:[eventfd] rw":         exactly(events),
		"anon_inode:[eventpoll] rw":       exactly(2),
		"anon_inode:seccomp notify rw":    {1, spaces}, // one for each address space of the guest
		"file of the host below /usr r":   {0, 64},     // what the guest has open, handed over by the gofer
	}
}

func goferFiles() map[string]count {
	return map[string]count{
		"/dev/null r":                           exactly(1),
		"/dev/null w":                           exactly(2),
		"/ of a proc mount r":                   exactly(1), // its own /proc/self/fd, of a mount that is gone
		"STATE/run/ID/bundle/config.json r":     exactly(1), // what it was started with
		"/root/usr r":                           exactly(1), // the folder that it serves
		"file of the host below /usr r":         {0, 256},
		"file of the host below /usr path":      {0, 256},
		"memfd:flipcall_packet_windows rw":      exactly(1), // shared with the sentry
		"unix socket rw":                        exactly(4),
		"pipe r":                                exactly(2),
		"pipe w":                                exactly(2),
		"anon_inode:[eventfd] rw":               exactly(4),
		"anon_inode:[eventpoll] rw":             exactly(1),
		"anon_inode:[io_uring] rw":              {0, 1}, // disabled; it keeps files alive; where the host allows it
		"anon_inode:[pidfd] rw":                 exactly(0),
		"socket rw":                             exactly(0), // of any other family
		"STATE/images/DIGEST.erofs r":           exactly(0),
		"STATE/store/# (deleted) rw":            exactly(0),
		"/sys/fs/cgroup/cpu/cpu.cfs_quota_us r": exactly(0),
	}
}

func runnerFiles(gofer bool) map[string]count {
	watched := count{0, 1} // gVisor forgets the handles of those that it started some time
	if gofer {
		watched = count{1, 3} // gVisor waits for both, the runner for the gofer
	}
	return map[string]count{
		"/dev/null r":                   exactly(1),
		"/dev/null w":                   exactly(2),
		"STATE/run/ID/ending w":         exactly(2), // its last words, and those of a panic
		"unix socket rw":                exactly(2), // the link to the front, gVisor's control socket
		"pipe r":                        exactly(2), // reports of limits; one end of a pipe of its own
		"pipe w":                        exactly(1), // its other end
		"anon_inode:[eventfd] rw":       {1, 2},
		"anon_inode:[eventpoll] rw":     exactly(1),
		"anon_inode:[pidfd] rw":         watched,
		"cpu limit of the Go runtime r": {0, 2},
	}
}

// checkFiles compares all open descriptors; one that is not expected fails.
func (l *live) checkFiles(t *testing.T) {
	t.Helper()
	spaces := len(l.stubs)
	sentry := sentryFiles(l.gofer != nil, spaces)
	l.compare(t, l.sentry, sentry)
	for _, p := range l.stubs {
		l.compare(t, p, sentry) // a stub is a fork of the sentry, under a filter that lets it use none of them
	}
	if l.gofer != nil {
		l.compare(t, l.gofer, goferFiles())
	}
	l.compare(t, l.runner, runnerFiles(l.gofer != nil))
}

func (l *live) compare(t *testing.T, p *posture.Process, want map[string]count) {
	t.Helper()
	got := map[string]int{}
	for _, f := range p.Files {
		name := l.normal(f.String())
		switch {
		case strings.HasPrefix(name, "/root/usr/"):
			name = "file of the host below /usr " + f.Access
		case strings.HasPrefix(name, "/sys/fs/cgroup/") && strings.HasPrefix(name[strings.LastIndexByte(name, '/'):], "/cpu."):
			name = "cpu limit of the Go runtime " + f.Access
		}
		got[name]++
	}
	for name, n := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: %d unexpected descriptors: %s", label(p), n, name)
		}
	}
	for name, c := range want {
		if n := got[name]; n < c.min || n > c.max {
			t.Errorf("%s: %d descriptors of %s, want %d to %d", label(p), n, name, c.min, c.max)
		}
	}
}
