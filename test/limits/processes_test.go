package limits

import (
	"fmt"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
)

// countTasks forks until it may not, then starts threads until it may not, then
// opens files until it may not. It prints how far it got. The program itself is
// the first task, and has three open files.
const countTasks = `
import os, threading, time
children = []
try:
    while True:
        p = os.fork()
        if p == 0:
            time.sleep(1000)
        children.append(p)
except BlockingIOError:
    pass
HOLD
print("children", len(children))
for p in children:
    os.kill(p, 9)
    os.waitpid(p, 0)
threads, stop = 0, threading.Event()
try:
    while True:
        threading.Thread(target=stop.wait, daemon=True).start()
        threads += 1
except RuntimeError:
    pass
HOLD
print("threads", threads)
files = []
try:
    while True:
        files.append(os.open("/dev/null", os.O_RDONLY))
except OSError as e:
    print("files", len(files), "errno", e.errno)
HOLD
os._exit(0)
`

func TestProcessesAndOpenFilesAreExact(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		type exact struct {
			n     int
			flags []string
		}
		// Of the process tier's box the first process must not need what a program
		// has; it has no root.
		cases := []exact{{32, nil}, {1, []string{"--max-processes", "1"}}}
		if p.tier == box.TierGvisor {
			cases = []exact{
				{32, nil}, // the default
				{8, []string{"--max-processes", "8"}},
				{8, []string{"--max-processes", "8", "--user", "root"}},
			}
		}
		for _, c := range cases {
			e := pythonHeld(t, p, countTasks, p.hits("max_processes", "max_open_files"), c.flags...)
			want := fmt.Sprintf("children %d\nthreads %d\nfiles %d errno 24\n", c.n-1, c.n-1, 256-3)
			if e.stdout() != want {
				t.Errorf("%v: got %q, want %q", c.flags, e.stdout(), want)
			}
		}
		e := pythonHeld(t, p, `
import os
fds = []
try:
    while True: fds.append(os.dup(0))
except OSError as e:
    print(max(fds), e.errno)
HOLD`, p.hits("max_open_files"), "--max-open-files", "40")
		if e.stdout() != "39 24\n" {
			t.Errorf("with 40 open files: %q", e.stdout())
		}
	})
}

func TestProcessesAndOpenFilesEndTheRunOnlyIfAsked(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		// The bomb ends by itself only when there is nothing left to fork. Where
		// tasks are counted by looking, it is one that stays at the limit: of this
		// one some are always about to end.
		bomb := `bomb() { bomb | bomb & }; bomb; sleep 1000`
		if p.source("max_processes") == "watchdog" {
			bomb = `while :; do sleep 1000 & done 2>/dev/null`
		}
		e := run(t, p, "--on-limit", "kill", "--timeout", "120", "--", "bash", "-c", bomb)
		e.check(t, box.ProcLimit, 249, p.end("max_processes"))
		e = python(t, p, `
import os, time
try:
    while True: os.dup(0)
except OSError:
    time.sleep(1000)`, "--on-limit", "kill", "--timeout", "120")
		e.check(t, box.ProcLimit, 249, p.end("max_open_files"))
	})
}

// A bomb goes off until the program sees that no process is left, and goes on
// when it has ended. Its files are read all the same.
func TestForkBombIsOutlivedByTheBox(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		e := pythonHeld(t, p, `
import os
def bomb():
    while True:
        try:
            os.fork()
        except BlockingIOError:
            pass
open("output.json", "w").write('{"bombs": 3}')
try:
    for _ in range(3):
        if os.fork() == 0:
            bomb()
    while True:
        if os.fork() == 0:
            bomb()
except BlockingIOError:
    HOLD # looks are late: bombs have the processors
    HOLD
    HOLD
    os._exit(0)`, p.hits("max_processes"), "--max-processes", "64")
		if string(e.Output) == "" || e.OutputError != "" {
			t.Errorf("files were not read from a box full of processes: %q, %s", e.Output, e.OutputError)
		}
	})
}

func TestGuestRootGetsNoMoreProcessesByBecomingManyUsers(t *testing.T) {
	onGvisor(t, func(t *testing.T, p place) {
		e := python(t, p, `
import os, time
r, w = os.pipe()
for uid in range(2000, 2006):
    try:
        if os.fork() == 0:
            os.setuid(uid)
            os.write(w, b"x")
            try:
                while True:
                    if os.fork() == 0:
                        os.write(w, b"x")
                        time.sleep(1000)
            except BlockingIOError:
                time.sleep(1000)
    except BlockingIOError:
        pass
tasks = 1
while tasks < 20:
    tasks += len(os.read(r, 1))
os.set_blocking(r, False)
time.sleep(0.3)
try:
    tasks += len(os.read(r, 1000))
except BlockingIOError:
    pass
print(tasks)
os._exit(0)`, "--user", "root", "--max-processes", "20")
		e.exited(t, p.hit("max_processes"))
		if e.stdout() != "20\n" {
			t.Errorf("guest root had %q tasks at once, with a limit of 20", e.stdout())
		}
	})
}

// liftLimits tries everything by which a program might raise its own limits,
// also with all capabilities of a user namespace of its own.
const liftLimits = `
import ctypes, os, resource
libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWUSER = 0x10000000
def more(pid, what):
    "raises the limit of another process, if it has one"
    hard = resource.prlimit(pid, what)[1]
    if hard == resource.RLIM_INFINITY: raise OSError
    resource.prlimit(pid, what, (hard + 1, hard + 1))
def tries(who):
    for name in "NPROC", "NOFILE":
        what = getattr(resource, "RLIMIT_" + name)
        soft, hard = resource.getrlimit(what)
        for how, call in (
            ("setrlimit hard", lambda: resource.setrlimit(what, (soft, hard + 1))),
            ("setrlimit both", lambda: resource.setrlimit(what, (hard + 1, hard + 1))),
            ("setrlimit infinity", lambda: resource.setrlimit(what, (-1, -1))),
            ("prlimit self", lambda: resource.prlimit(os.getpid(), what, (hard + 1, hard + 1))),
            ("prlimit parent", lambda: more(os.getppid(), what)),
        ):
            try:
                call()
                print(who, name, how, "worked")
            except (ValueError, OSError):
                pass
        assert resource.getrlimit(what) == (soft, hard)
def children():
    n = 0
    try:
        while True:
            if os.fork() == 0:
                import time
                time.sleep(1000)
            n += 1
    except BlockingIOError:
        return n
tries("as started")
if os.fork() == 0:
    if libc.unshare(CLONE_NEWUSER) == 0:
        tries("in a user namespace")
    n = children()
    HOLD
    print("children", n)
    os._exit(0)
os.wait()
`

func TestLimitsCannotBeLiftedFromInside(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		users := []string{"user"}
		if p.tier == box.TierGvisor {
			users = append(users, "root")
		}
		for _, who := range users {
			e := pythonHeld(t, p, liftLimits, p.hits("max_processes"), "--max-processes", "12", "--user", who)
			if want := fmt.Sprintf("children %d\n", 12-2); e.stdout() != want {
				t.Errorf("as %s: got %q, want %q", who, e.stdout(), want)
			}
		}
	})
}
