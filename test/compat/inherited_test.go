package compat

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/test/harness"
)

// A signal that is ignored stays ignored through execve(2). What nohup(1) or a
// script with traps ignores, and what sunaba itself does, is none of the
// program's. (Python would hide SIGPIPE, so a shell tells.)
func TestProgramsIgnoreNoSignalOfTheCaller(t *testing.T) {
	harness.NothingLeft(t)
	const traps = `trap '' HUP INT QUIT PIPE TERM USR1 TSTP TTIN TTOU WINCH; exec "$@"`
	// glibc's posix_spawn(3), by which make(1) starts programs, has them ignore its
	// own signals 32 and 33.
	const spawn = `import os, sys; sys.exit(os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ), 0)[1]))`
	// Each of these ends a shell that does not ignore it. Others would stop it;
	// of those the kernel tells, and gVisor does not.
	const ends = `for s in HUP INT QUIT PIPE TERM USR1; do sh -c "kill -$s \$\$"; echo $s $?; done; grep SigIgn /proc/self/status; true`
	const want = "HUP 129\nINT 130\nQUIT 131\nPIPE 141\nTERM 143\nUSR1 138\n"
	eachHost(t, func(t *testing.T, p place) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		like := harness.Command(ctx, t, p.user, p.run("--", "bash", "-c", ends)...)
		cmd := exec.CommandContext(ctx, "/bin/bash", append([]string{"-c", traps, "bash", python, "-c", spawn}, like.Args...)...)
		cmd.Env, cmd.SysProcAttr, cmd.Dir = like.Env, like.SysProcAttr, "/"
		out, err := cmd.Output()
		want := want
		if p.tier == process {
			want += "SigIgn:0000000000000000\n"
		}
		if got := strings.ReplaceAll(string(out), "\t", ""); err != nil || got != want {
			t.Errorf("%v\n%s\nwant\n%s", err, got, want)
		}
	})
}
