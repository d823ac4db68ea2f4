package tiertest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// childrenOf lists the children of a process that are called so; empty means any
// name. Each says whose it is: a list of children leaves one out when another ends
// (proc_pid_task_tid_children(5)).
func childrenOf(t *testing.T, pid int, name string) (kids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil || !alive(pid) {
		t.Fatalf("cannot list children of %d: %v", pid, err)
	}
	for _, dir := range all {
		status, _ := os.ReadFile(dir + "/status") // none if it has ended
		line, _ := os.ReadFile(dir + "/cmdline")
		if !strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", pid)) || name != "" && !strings.HasPrefix(string(line), name+"\x00") {
			continue
		}
		kid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			t.Fatal(err)
		}
		kids = append(kids, kid)
	}
	return kids
}

// A box that ends by itself, or by somebody else's hand, says which of its parts
// did, and how.
func TestABoxThatEndsSaysWhichPartOfItDidAndHow(t *testing.T) {
	parts := map[box.TierName]map[string]func(*testing.T, int) []int{
		box.TierProcess: {
			"signal: killed":                     func(_ *testing.T, first int) []int { return []int{first} },
			"the agent ended: signal 9 (killed)": func(t *testing.T, first int) []int { return childrenOf(t, first, "") },
		},
		box.TierGvisor: {
			"signal: killed": func(_ *testing.T, first int) []int { return []int{first} },
			"the guest's kernel ended: signal 9 (killed)": func(t *testing.T, first int) []int {
				return childrenOf(t, first, "runsc-sandbox")
			},
			"its file server ended: signal: killed": func(t *testing.T, first int) []int { return childrenOf(t, first, "runsc-gofer") },
			// What its programs run in.
			"the agent ended: signal 9 (killed)": func(t *testing.T, first int) []int {
				return childrenOf(t, childrenOf(t, first, "runsc-sandbox")[0], "")
			},
		},
	}
	eachTier(t, func(t *testing.T, p *place) {
		for want, victims := range parts[p.Name()] {
			b := p.create(t, spec())
			run(t, use(t, b), "true")
			if acc, err := b.Account(t.Context()); err != nil || acc.Ending != "" {
				t.Errorf("a box that stands: %q, %v", acc.Ending, err)
			}
			pids := victims(t, firstOf(t, b.State()).PID)
			if len(pids) == 0 {
				t.Fatalf("nobody to end for %q", want)
			}
			for _, pid := range pids {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
					t.Fatal(err)
				}
			}
			g := use(t, b)
			if err := comes(func() error {
				if strings.HasPrefix(want, "the agent") { // which is heard of when it is next to run
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					_, _ = g.Metrics(ctx)
					cancel()
				}
				select {
				case <-b.Ended():
					return nil
				case <-time.After(time.Second):
					return fmt.Errorf("the box lives on without what should say %q", want)
				}
			}); err != nil {
				t.Fatal(err)
			}
			if acc, err := b.Account(t.Context()); err != nil || acc.Ending != want {
				t.Errorf("says %q, %v; want %q", acc.Ending, err, want)
			}
			p.destroy(t, b)
		}
	})
}

// Its first words are where to look for the cause. A signal for the guest's kernel is
// passed on to the agent, whose runtime says how it ended.
func TestAnAgentThatPanicsSaysWhatItSaid(t *testing.T) {
	p := newPlace(t, box.TierGvisor)
	b := p.create(t, spec())
	run(t, use(t, b), "echo of a program >&2")
	sentry := childrenOf(t, firstOf(t, b.State()).PID, "runsc-sandbox")[0]
	if err := syscall.Kill(sentry, syscall.SIGABRT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-b.Ended():
	case <-time.After(patience):
		t.Fatal("the box lives on")
	}
	if acc, err := b.Account(t.Context()); err != nil || !strings.HasPrefix(acc.Ending, "the agent ended: exit status 2: SIGABRT: abort") {
		t.Errorf("says %q, %v", acc.Ending, err)
	}
	p.destroy(t, b)
}

// The guest's kernel says what it has to say, too. It gets no more memory of the host,
// which the Go runtime does not survive.
func TestAGuestsKernelThatPanicsSaysWhatItSaid(t *testing.T) {
	p := newPlace(t, box.TierGvisor)
	b := p.create(t, spec())
	g := use(t, b)
	run(t, g, "true")
	sentry := childrenOf(t, firstOf(t, b.State()).PID, "runsc-sandbox")[0]
	owner, err := os.Stat("/proc/" + strconv.Itoa(sentry))
	if err != nil {
		t.Fatal(err)
	}
	limit := exec.Command("/usr/bin/prlimit", "--pid", strconv.Itoa(sentry), "--as=1:1")
	limit.Env = []string{}
	if st := owner.Sys().(*syscall.Stat_t); int(st.Uid) != os.Geteuid() {
		limit.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: st.Uid, Gid: st.Gid}}
	}
	if out, err := limit.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for ended := false; !ended; {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		for range 20 {
			_, _ = g.Start(ctx, box.ProcessSpec{Command: box.Command{Argv: []string{"sleep", "60"}, Env: []string{"PATH=/usr/bin:/bin"}}})
		}
		cancel()
		select {
		case <-b.Ended():
			ended = true
		case <-t.Context().Done():
			t.Fatal("the box lives on")
		default:
		}
	}
	if acc, err := b.Account(t.Context()); err != nil || !strings.HasPrefix(acc.Ending, "the guest's kernel ended: exit status 2: ") || !strings.Contains(acc.Ending, "runtime.throw") {
		t.Errorf("says %q, %v", acc.Ending, err)
	}
	p.destroy(t, b)
}

// An agent that threw its code away lost the jumps that gVisor has put into it: see
// giveBack of internal/agent/daemon.
func TestTheAgentOfAGuestKeepsItsCode(t *testing.T) {
	p := newPlace(t, box.TierGvisor)
	b := p.create(t, spec())
	run(t, use(t, b), `tr '\0' '\n' </proc/1/cmdline | grep -qx keep-code`)
	p.destroy(t, b)
}
