package limits

import (
	"testing"

	"github.com/sunaba-dev/sunaba/box"
)

func TestDeadline(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		side(t, "ends a program that ignores SIGTERM, and its children", func(t *testing.T) {
			e := shell(t, p, `trap "" TERM; echo up; (while :; do sleep 0.2; done) & while :; do sleep 1; done`, "--timeout", "1", "--grace", "0.5")
			e.check(t, box.Deadline, 244, ended("timeout_sec", "clock"))
			if w := e.Usage.WallSeconds; w < 1.5 || w > 8 {
				t.Errorf("it ran for %gs, want deadline and grace: 1.5s", w)
			}
		})
		side(t, "lets a program finish its work within the grace", func(t *testing.T) {
			e := python(t, p, `
import signal, sys, time
def term(*a):
    open("kept", "w").write("x")
    print("flushed")
    sys.exit(3)
signal.signal(signal.SIGTERM, term)
time.sleep(60)`, "--timeout", "2", "--grace", "20")
			e.check(t, box.Deadline, 244, ended("timeout_sec", "clock"))
			if e.stdout() != "flushed\n" || len(e.Artifacts) == 0 {
				t.Errorf("what it wrote on SIGTERM is missing: %q, %d files", e.stdout(), len(e.Artifacts))
			}
			if w := e.Usage.WallSeconds; w > 15 {
				t.Errorf("it was not asked, or not believed: %gs", w)
			}
		})
		side(t, "asks a shell's job too", func(t *testing.T) {
			e := run(t, p, "--timeout", "2", "--grace", "20", "--", "bash", "-c", `trap "echo bye; exit" TERM; sleep 100`)
			e.check(t, box.Deadline, 244, ended("timeout_sec", "clock"))
			if e.stdout() != "bye\n" || e.Usage.WallSeconds > 15 {
				t.Errorf("the shell waited for its job: %q after %gs", e.stdout(), e.Usage.WallSeconds)
			}
		})
		side(t, "without grace kills at once", func(t *testing.T) {
			e := shell(t, p, `trap "echo asked" TERM; while :; do :; done`, "--timeout", "0.3", "--grace", "0")
			e.check(t, box.Deadline, 244, ended("timeout_sec", "clock"))
			if e.stdout() != "" {
				t.Errorf("it was asked: %q", e.stdout())
			}
		})
		side(t, "does not touch a program that ends before it", func(t *testing.T) {
			shell(t, p, `sleep 0.5`, "--timeout", "20").exited(t)
		})
	})
}

func TestIdle(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		side(t, "ends a program that neither reads nor writes", func(t *testing.T) {
			e := shell(t, p, `echo up; sleep 100`, "--idle", "1")
			e.check(t, box.Idle, 245, ended("idle_sec", "clock"))
			if w := e.Usage.WallSeconds; w < 1 || w > 8 {
				t.Errorf("it ran for %gs, want 1s of silence", w)
			}
		})
		side(t, "does not end one that writes now and then", func(t *testing.T) {
			e := shell(t, p, `for i in 1 2 3 4 5; do echo $i; echo $i >&2; sleep 0.6; done`, "--idle", "2.5")
			e.exited(t)
			if w := e.Usage.WallSeconds; w < 3 {
				t.Errorf("the test is too short to tell: %gs", w)
			}
		})
	})
}
