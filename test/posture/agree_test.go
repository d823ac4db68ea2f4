package posture

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// Whatever a filter around sunaba refuses, doctor and a real run must agree:
// either there are boxes, and they report what was predicted, or there are none
// and both say why, and what to do. (If all that doctor sees is that a whole box
// fails, there is nothing that a run could add.)
func TestDoctorAndRunAgreeWhateverIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a stage is made of mounts")
	}
	harness.NothingLeft(t)
	// Not openat2: without it there is no box, and what was made cannot be
	// removed either; the next run that can does it.
	//
	// Numbers of asm-generic/unistd.h from 424 on are those of all architectures.
	calls := map[string]uint32{
		"unshare": syscall.SYS_UNSHARE, "mount": syscall.SYS_MOUNT, "umount2": syscall.SYS_UMOUNT2, "pivot_root": syscall.SYS_PIVOT_ROOT,
		"sethostname": syscall.SYS_SETHOSTNAME, "setdomainname": syscall.SYS_SETDOMAINNAME, "capset": syscall.SYS_CAPSET,
		"prlimit64": syscall.SYS_PRLIMIT64, "flock": syscall.SYS_FLOCK, "statfs": syscall.SYS_STATFS, "fstatfs": syscall.SYS_FSTATFS,
		"fchmod": syscall.SYS_FCHMOD, "fchown": syscall.SYS_FCHOWN, "sendmsg": syscall.SYS_SENDMSG, "keyctl": syscall.SYS_KEYCTL,
		"pidfd_send_signal": 424, "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432,
		"pidfd_open": 434, "clone3": 435, "close_range": 436, "mount_setattr": 442,
		"landlock_create_ruleset": 444, "landlock_add_rule": 445, "landlock_restrict_self": 446,
	}
	n := 0
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		for _, u := range harness.Users() {
			for _, errno := range []syscall.Errno{syscall.EPERM, syscall.ENOSYS} {
				if n++; !every && n%9 != 1 {
					continue // so that each user meets each error, with different calls
				}
				t.Run(fmt.Sprintf("%s/%s/%d", u, name, errno), func(t *testing.T) {
					s := stage{As: u, Ops: []op{{Do: "refuse", Number: calls[name], Errno: uint32(errno)}}}
					agree(t, s, box.TierProcess)
				})
			}
		}
	}
}

// Limits of the caller's own hold for what it starts.
func TestDoctorAndRunAgreeUnderLimitsOfTheCaller(t *testing.T) {
	harness.NothingLeft(t)
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		for _, c := range []struct {
			limit string
			code  int
			words string
		}{
			{"-n 48", 0, ""},
			{"-s 64", 0, ""},
			{"-l 0", 0, ""},
			{"-v 2000000", 0, ""},
			{"-f 1000", 242, "ulimit -f unlimited"},
		} {
			limited := func(args ...string) harness.Result {
				cmd := harness.Command(t.Context(), t, u, args...)
				cmd.Args = append([]string{"sh", "-c", "ulimit " + c.limit + ` && exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
				cmd.Path = "/bin/sh"
				var out, errs strings.Builder
				cmd.Stdout, cmd.Stderr = &out, &errs
				if err := cmd.Run(); cmd.ProcessState == nil {
					t.Fatal(err)
				}
				return harness.Result{Code: cmd.ProcessState.ExitCode(), Stdout: out.String(), Stderr: errs.String()}
			}
			h := parse(t, limited("doctor", "-o", "json")).of(t, box.TierProcess)
			r := limited(runOn(box.TierProcess, "-o", "json", "--", "true")...)
			rep := r.JSON(t)
			if h.Usable != (c.code == 0) || r.Code != c.code || c.code != 0 && !strings.Contains(rep.Error.Hint, c.words) {
				t.Errorf("ulimit %s: usable %v (missing %q), run ended with %d: %+v %s", c.limit, h.Usable, h.Missing, r.Code, rep.Error, r.Stderr)
			}
		}
	})
}

func agree(t *testing.T, s stage, tier box.TierName) {
	t.Helper()
	h := parse(t, on(t, s, "", "doctor", "-o", "json")).of(t, tier)
	r := on(t, s, "", runOn(tier, "-o", "json", "--", "true")...)
	rep := r.JSON(t)
	switch {
	case h.Usable != (r.Code == 0):
		t.Errorf("usable %v (missing %q), but run ended with %d: %+v %s", h.Usable, h.Missing, r.Code, rep.Error, r.Stderr)
	case h.Usable && !slices.Equal(h.Weak, rep.Weak):
		t.Errorf("predicted weak %q, reported %q", h.Weak, rep.Weak)
	case !h.Usable && len(h.Missing) == 1 && strings.HasPrefix(h.Missing[0], "whole box: ") && r.Code == 243 && rep.Error != nil:
		t.Logf("whole box: %s", rep.Error.Message)
	case !h.Usable && (r.Code != 242 || rep.Error == nil || rep.Error.Hint == ""):
		t.Errorf("missing %q; run ended with %d: %+v", h.Missing, r.Code, rep.Error)
	}
}
