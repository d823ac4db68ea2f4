package compat

import (
	"bytes"
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/test/harness"
)

// Nothing but the program itself is given: the limits are the defaults, among
// them 512 MiB, 32 processes and one processor.
func TestRealWorkRunsUnchanged(t *testing.T) {
	harness.NothingLeft(t)
	scripts, err := filepath.Glob("testdata/work/*.*")
	if err != nil || len(scripts) < 8 {
		t.Fatalf("programs: %v, %v", scripts, err)
	}
	eachPlace(t, func(t *testing.T, p place) {
		for _, script := range scripts {
			name := filepath.Base(script)
			if !long && !(p.image == "host" && (p.tier == gvisor || p.user == harness.Users()[0])) &&
				(name == "archive.sh" || name == "cxx.sh" || name == "shell.sh") {
				continue // long, and no different there
			}
			t.Run(name, func(t *testing.T) {
				args := p.run()
				full, err := filepath.Abs(script)
				if err != nil {
					t.Fatal(err)
				}
				switch filepath.Ext(name) {
				case ".pl":
					args = append(args, "--copy", full, "--", "perl", name)
				case ".c":
					args = append(args, "--copy", full, "--", "sh", "-ec", "gcc -O1 -Wall -o program "+name+" -pthread -lrt; ./program")
				default:
					args = append(args, full)
				}
				r := harness.Run(t, p.user, args...)
				if r.Code != 0 || !strings.HasSuffix("\n"+r.Stdout, "\nok\n") {
					t.Errorf("exit code %d after %v\n%s%s", r.Code, r.Took, r.Stdout, r.Stderr)
				}
			})
		}
	})
}

func TestCompiledProgramComesOutExecutable(t *testing.T) {
	harness.NothingLeft(t)
	eachPlace(t, func(t *testing.T, p place) {
		dir := harness.Dir(t, p.user)
		source, out := filepath.Join(dir, "x.c"), filepath.Join(dir, "out")
		if err := os.WriteFile(source, []byte("#include <stdio.h>\nint main(void) { puts(\"from the box\"); }\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		harness.Give(t, p.user, source)
		r := harness.RunIn(t, p.user, dir, "", p.run("--copy", "x.c", "--out", "out", "--", "gcc", "-O2", "x.c", "-o", "x")...)
		if r.Code != 0 {
			t.Fatalf("exit code %d\n%s", r.Code, r.Stderr)
		}
		info, err := os.Stat(filepath.Join(out, "x"))
		if err != nil || info.Mode().Perm()&0o111 != 0o111 {
			t.Errorf("x has mode %v: %v", info.Mode(), err)
		}
		b, err := os.ReadFile(filepath.Join(out, "x"))
		if err != nil {
			t.Fatal(err)
		}
		// It is code of a box: looked at, not started.
		f, err := elf.NewFile(bytes.NewReader(b))
		if err != nil || f.Section(".text") == nil || !bytes.Contains(b, []byte("from the box")) {
			t.Errorf("x is no program: %v", err)
		}
		if left, err := os.ReadDir(out); err != nil || len(left) != 1 {
			t.Errorf("saved besides x: %v, %v", left, err)
		}
	})
}

func TestGuestRootIsRootOfItsBoxOnly(t *testing.T) {
	harness.NothingLeft(t)
	eachPlace(t, func(t *testing.T, p place) {
		if p.tier == process {
			r := harness.Run(t, p.user, p.run("--user", "root", "--", "true")...)
			if r.Code != 242 || !strings.Contains(r.Stderr, "one user") {
				t.Errorf("this tier has no guest root, but: exit code %d, %s", r.Code, r.Stderr)
			}
			return
		}
		inBox(t, p, `
			[ "$(id -u)" = 0 ]; [ "$HOME" = /root ]
			touch /root/a /etc/new
			chown 1000:1000 /root/a
			[ "$(stat -c %U /root/a)" = user ]
			chmod 4755 /root/a
			[ "$(setpriv --reuid 1000 --regid 1000 --clear-groups id -un)" = user ]
			tar c --owner=5 --group=6 -C /etc hosts | tar x -C /tmp
			[ "$(stat -c %u:%g /tmp/hosts)" = 5:6 ]
			mkdir -p /opt/tool/bin
			python3 -m venv --without-pip /opt/venv
			/opt/venv/bin/python -c 'import os; os.setuid(1000); open("/workspace/x", "w")'
			! mknod /tmp/disk b 8 0 2>/dev/null
			! mount -t tmpfs none /mnt 2>/dev/null
			! hostname other 2>/dev/null
			! prlimit --pid $$ --nproc=1000 2>/dev/null
			! sh -c 'echo x > /proc/sys/kernel/core_pattern' 2>/dev/null
			! dd if=/dev/mem of=/dev/null count=1 2>/dev/null`, "--user", "root")
	})
}

func TestThirtyThreadsFitIntoTheDefaultLimit(t *testing.T) {
	harness.NothingLeft(t)
	const code = `
import threading
barrier = threading.Barrier(30)
threads = [threading.Thread(target=barrier.wait, args=(300,)) for _ in range(29)]
for t in threads: t.start()
barrier.wait(300)
for t in threads: t.join()
`
	eachPlace(t, func(t *testing.T, p place) {
		args := p.run("-o", "json", "--max-processes", "32", "-e", code, "--lang", "python")
		rep := harness.Run(t, p.user, args...).JSON(t)
		if rep.ExitCode == nil || *rep.ExitCode != 0 || len(rep.LimitsHit) != 0 {
			t.Errorf("%+v", rep)
		}
	})
}
