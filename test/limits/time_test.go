package limits

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
)

// late is when a clock of a second or so has not been looked at, in seconds. The
// programs would go on for ever; a host that has much else to do takes some.
const late = 60

// ready runs a program with a deadline that comes when it has said that it is up: one
// that came before, since this host had much else to do, is tried again, later.
func ready(t *testing.T, run func(timeout string) end) (e end, timeout float64) {
	t.Helper()
	for timeout = 2; ; timeout *= 4 {
		e = run(fmt.Sprint(timeout))
		if timeout > 60 || e.Cause != box.Deadline || strings.HasPrefix(e.stdout(), "up\n") {
			return e, timeout
		}
		t.Logf("it was not up after %gs", timeout)
	}
}

func TestDeadline(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		side(t, "ends a program that ignores SIGTERM, and its children", func(t *testing.T) {
			e, at := ready(t, func(at string) end {
				return shell(t, p, `trap "" TERM; echo up; (while :; do sleep 0.2; done) & while :; do sleep 1; done`, "--timeout", at, "--grace", "0.5")
			})
			e.check(t, box.Deadline, 244, ended("timeout_sec", "clock"))
			if w := e.Usage.WallSeconds; w < at+0.5 || w > at+late {
				t.Errorf("it ran for %gs, want deadline and grace: %gs and 0.5s", w, at)
			}
		})
		side(t, "lets a program finish its work within the grace", func(t *testing.T) {
			e, at := ready(t, func(at string) end {
				return python(t, p, `
import signal, sys, time
def term(*a):
    open("kept", "w").write("x")
    print("flushed")
    sys.exit(3)
signal.signal(signal.SIGTERM, term)
print("up", flush=True)
time.sleep(300)`, "--timeout", at, "--grace", "60")
			})
			e.check(t, box.Deadline, 244, ended("timeout_sec", "clock"))
			if e.stdout() != "up\nflushed\n" || len(e.Artifacts) == 0 {
				t.Errorf("what it wrote on SIGTERM is missing: %q, %d files", e.stdout(), len(e.Artifacts))
			}
			if w := e.Usage.WallSeconds; w > at+50 {
				t.Errorf("it was not asked, or not believed: %gs, %gs of them before its deadline", w, at)
			}
		})
		side(t, "asks a shell's job too", func(t *testing.T) {
			e, at := ready(t, func(at string) end {
				return run(t, p, "--timeout", at, "--grace", "60", "--", "bash", "-c", `trap "echo bye; exit" TERM; echo up; sleep 300`)
			})
			e.check(t, box.Deadline, 244, ended("timeout_sec", "clock"))
			if e.stdout() != "up\nbye\n" || e.Usage.WallSeconds > at+50 {
				t.Errorf("the shell waited for its job: %q after %gs, %gs of them before its deadline", e.stdout(), e.Usage.WallSeconds, at)
			}
		})
		side(t, "without grace kills at once", func(t *testing.T) {
			e, _ := ready(t, func(at string) end {
				return shell(t, p, `trap "echo asked" TERM; echo up; while :; do :; done`, "--timeout", at, "--grace", "0")
			})
			e.check(t, box.Deadline, 244, ended("timeout_sec", "clock"))
			if e.stdout() != "up\n" {
				t.Errorf("it was asked: %q", e.stdout())
			}
		})
		side(t, "does not touch a program that ends before it", func(t *testing.T) {
			shell(t, p, `sleep 0.5`, "--timeout", "120").exited(t)
		})
	})
}

func TestIdle(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		side(t, "ends a program that neither reads nor writes", func(t *testing.T) {
			e := shell(t, p, `echo up; sleep 100`, "--idle", "1")
			e.check(t, box.Idle, 245, ended("idle_sec", "clock"))
			if w := e.Usage.WallSeconds; w < 1 || w > late {
				t.Errorf("it ran for %gs, want 1s of silence", w)
			}
		})
		side(t, "does not end one that writes now and then", func(t *testing.T) {
			e := shell(t, p, `for i in $(seq 16); do echo $i; echo $i >&2; sleep 0.6; done`, "--idle", "8")
			e.exited(t)
			if w := e.Usage.WallSeconds; w < 9 {
				t.Errorf("the test is too short to tell: %gs", w)
			}
		})
	})
}
