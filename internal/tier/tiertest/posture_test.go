package tiertest

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/posture"
)

// All numbers and names here are literals: they are the promise.

// parts are the processes of a box by what they are.
func (p *place) parts(t *testing.T, b box.Lasting) map[string][]*posture.Process {
	t.Helper()
	all, err := posture.Tree(firstOf(t, b.State()).PID)
	if err != nil {
		t.Fatal(err)
	}
	m := make(map[string][]*posture.Process)
	for _, q := range all {
		name := filepath.Base(q.Args[0])
		if name == "." { // systrap unmaps the arguments
			name = "stub"
		}
		m[name] = append(m[name], q)
	}
	return m
}

// descriptors counts a process's by kind, without the names of one box.
func (p *place) descriptors(q *posture.Process, id box.ID) map[string]int {
	got := make(map[string]int)
	for _, f := range q.Files {
		s := digest.ReplaceAllString(strings.ReplaceAll(strings.ReplaceAll(f.String(), p.state, "STATE"), string(id), "ID"), "DIGEST")
		if strings.HasPrefix(s, "/root/usr") && s != "/root/usr r" {
			s = "file of the host below /usr " + f.Access
		}
		got[s]++
	}
	return got
}

var digest = regexp.MustCompile(`[0-9a-f]{64}`)

func TestPostureOfABoxThatLasts(t *testing.T) {
	eachTier(t, func(t *testing.T, p *place) {
		b := p.create(t, spec())
		uid, _ := p.HostUser(b.ID())
		g := use(t, b)
		start(t, g, "sleep", "1000") // the agent is up, and one stream is open
		outside, err := posture.Read(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		parts := p.settled(t, b)
		for name, all := range parts {
			for _, q := range all {
				p.checkThreads(t, name, q, uid)
				for ns, id := range q.Namespaces {
					if id == outside.Namespaces[ns] && ns != "time" {
						t.Errorf("%s is in the host's %s namespace", name, ns)
					}
				}
				if p.groups != nil && p.hasGroup(b) && !strings.Contains(strings.Join(q.Groups, " "), string(b.ID())) {
					t.Errorf("%s is not in the box's group: %q", name, q.Groups)
				}
				if q.Environment != "" && name != "sunaba-agentd" && name != "sleep" {
					t.Errorf("%s has the environment %q", name, q.Environment)
				}
			}
		}
		p.checkDescriptors(t, b)
		p.destroy(t, b)
	})
}

// settled are the parts of a box in which a program sleeps, once each of its processes
// is what it is to be: a child is its parent's copy for a moment.
func (p *place) settled(t *testing.T, b box.Lasting) (parts map[string][]*posture.Process) {
	t.Helper()
	names := []string{"runsc-gofer", "runsc-sandbox", "stub", "sunaba-runner"}
	if p.Name() == box.TierProcess {
		names = []string{"sleep", "sunaba-agentd", "sunaba-cell"}
	}
	if err := comes(func() error {
		parts = p.parts(t, b)
		if got := slices.Sorted(maps.Keys(parts)); !slices.Equal(got, names) {
			return fmt.Errorf("the box's processes are %q, want %q", got, names)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return parts
}

func (p *place) hasGroup(b box.Lasting) bool {
	_, err := p.groups.Open(string(b.ID()))
	return err == nil
}

// checkThreads wants the box's one host user, no right, no new ones, and a filter
// for all but the first process: of the cell, one thread has it, which starts the
// others.
func (p *place) checkThreads(t *testing.T, name string, q *posture.Process, uid int) {
	t.Helper()
	filtered := 0
	for _, th := range q.Threads {
		if ids := [4]int{uid, uid, uid, uid}; th.UID != ids {
			t.Errorf("%s, thread %d: uid %v, want %d", name, th.TID, th.UID, uid)
		}
		if len(th.Groups) > 0 && os.Geteuid() == 0 {
			t.Errorf("%s, thread %d: supplementary groups %v", name, th.TID, th.Groups)
		}
		if th.Effective|th.Permitted|th.Inheritable|th.Ambient != 0 || !th.NoNewPrivs {
			t.Errorf("%s, thread %d: %+v", name, th.TID, th)
		}
		if bounding := th.Bounding; bounding != 0 && name != "sunaba-runner" && name != "runsc-gofer" {
			t.Errorf("%s, thread %d: bounding set %#x", name, th.TID, bounding)
		}
		if th.Seccomp == 2 {
			filtered++
		}
	}
	want := map[string]int{"sunaba-runner": 0, "sunaba-cell": 1}
	if n, ok := want[name]; !ok && filtered != len(q.Threads) || ok && filtered != n {
		t.Errorf("%s: %d of %d threads are filtered", name, filtered, len(q.Threads))
	}
}

// count is how many descriptors of a kind a process has.
type count struct{ min, max int }

func exactly(n int) count { return count{n, n} }

// lastWords is the file of a first process's last words, once for it and once for
// those of the Go runtime.
const lastWords = "STATE/boxes/ID/run/ending w"

// files is all that the parts of a box have open while one stream is.
func files() map[string]map[string]count {
	sentry := map[string]count{
		"/dev/null r":                     exactly(2), // the agent's stdin, and gVisor's spare
		"/dev/null w":                     exactly(4),
		"STATE/images/DIGEST.erofs r":     exactly(1), // the root file system
		"STATE/store/# (deleted) r":       exactly(1), // the image with the agent
		"STATE/store/# (deleted) rw":      exactly(1), // the writable layer
		"memfd:runsc-memory rw":           exactly(1),
		"memfd:systrap-memory rw":         exactly(1),
		"memfd:memory-usage rw":           exactly(1),
		"pipe r":                          exactly(1),
		"pipe w":                          exactly(3), // its other end; reports of limits, and again for a panic's words
		"unix socket rw":                  exactly(7), // one more than in other boxes: the stream
		"anon_inode:[pidfd] of nobody rw": {0, 1},
		"anon_inode:[eventfd] rw":         exactly(5),
		"anon_inode:[eventpoll] rw":       exactly(2),
		"anon_inode:seccomp notify rw":    {1, 16},
		"file of the host below /usr r":   {0, 64},
	}
	return map[string]map[string]count{
		"sunaba-cell": {
			"/dev/null r": exactly(1), "/dev/null w": exactly(2),
			"anon_inode:[eventfd] rw": exactly(1), "anon_inode:[eventpoll] rw": exactly(1),
			"unix socket rw":  exactly(3), // where fronts come, the front's link, the agent's handover
			"/workspace path": exactly(1), // for the store of a front to come
			lastWords:         exactly(2),
		},
		"sunaba-agentd": {
			"/dev/null rw":            exactly(3),
			"anon_inode:[eventfd] rw": exactly(1), "anon_inode:[eventpoll] rw": exactly(1),
			"unix socket rw": exactly(2), // handover, the stream
			"pipe r":         exactly(2), // what the program writes
		},
		"sleep": {"/dev/null r": exactly(1), "pipe w": exactly(2)},
		"sunaba-runner": {
			"/dev/null r": exactly(1), "/dev/null w": exactly(2),
			"STATE/store/# (deleted) rw": exactly(1), // for a front to come
			"unix socket rw":             exactly(3), // where fronts come, the front's link, gVisor's control socket
			"pipe r":                     exactly(2), // reports of limits; one end of a pipe of its own
			"pipe w":                     exactly(1),
			"anon_inode:[eventfd] rw":    {1, 2}, "anon_inode:[eventpoll] rw": exactly(1),
			"anon_inode:[pidfd] rw": {1, 3},
			lastWords:               exactly(2),
		},
		"runsc-sandbox": sentry,
		"stub":          sentry, // a fork of it, under a filter that lets it use none of them
		"runsc-gofer": {
			"/dev/null r": exactly(1), "/dev/null w": exactly(2),
			"/ of a proc mount r":                     exactly(1),
			"STATE/boxes/ID/run/bundle/config.json r": exactly(1),
			"/root/usr r":                             exactly(1), // the folder that it serves
			"file of the host below /usr r":           {0, 256},
			"file of the host below /usr path":        {0, 256},
			"memfd:flipcall_packet_windows rw":        exactly(1),
			"unix socket rw":                          exactly(4),
			"pipe r":                                  exactly(2), "pipe w": exactly(2),
			"anon_inode:[eventfd] rw": exactly(4), "anon_inode:[eventpoll] rw": exactly(1),
			"anon_inode:[io_uring] rw": {0, 1},
		},
	}
}

// checkDescriptors wants that a box comes to have these files open and no others: what
// it has in between, while it starts a thread or a program, is not judged.
func (p *place) checkDescriptors(t *testing.T, b box.Lasting) {
	t.Helper()
	if err := comes(func() error { return errors.Join(p.otherDescriptors(t, b)...) }); err != nil {
		t.Error(err)
	}
	for name, all := range p.parts(t, b) {
		for _, q := range all {
			if q.Hidden {
				t.Logf("not compared: the descriptors of %s, which it shows to root alone", name)
			}
		}
	}
}

func (p *place) otherDescriptors(t *testing.T, b box.Lasting) (errs []error) {
	t.Helper()
	for name, all := range p.parts(t, b) {
		for _, q := range all {
			if q.Hidden {
				continue
			}
			want, got := files()[name], p.descriptors(q, b.ID())
			for kind, n := range got {
				if _, ok := want[kind]; !ok {
					errs = append(errs, fmt.Errorf("%s: %d unexpected descriptors: %s", name, n, kind))
				}
			}
			for kind, c := range want {
				if n := got[kind]; n < c.min || n > c.max {
					errs = append(errs, fmt.Errorf("%s: %d descriptors of %s, want %d to %d", name, n, kind, c.min, c.max))
				}
			}
		}
	}
	return errs
}
