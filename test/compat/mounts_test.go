package compat

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sunaba-dev/sunaba/test/harness"
)

// inBox runs a bash script and wants it to end well.
func inBox(t *testing.T, p place, script string, flags ...string) string {
	t.Helper()
	args := p.run(flags...)
	r := harness.Run(t, p.user, append(args, "--", "bash", "-euc", script)...)
	if r.Code != 0 {
		t.Fatalf("exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// owner is the host uid of a file, not of what a link points to.
func owner(t *testing.T, path string) int {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Sys().(*syscall.Stat_t).Uid)
}

func TestReadOnlyMountIsReadable(t *testing.T) {
	harness.NothingLeft(t)
	eachHost(t, func(t *testing.T, p place) {
		dir := harness.Dir(t, p.user)
		if err := os.WriteFile(filepath.Join(dir, "data"), []byte("seen\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		harness.Give(t, p.user, filepath.Join(dir, "data"))
		out := inBox(t, p, `
			cat /in/data
			! touch /in/new 2>/dev/null
			! rm -f /in/data 2>/dev/null
			! echo x 2>/dev/null >> /in/data
			grep -q ' /in ' /proc/mounts`, "--mount", dir+":/in")
		if out != "seen\n" {
			t.Errorf("read %q", out)
		}
	})
}

// The image has no name for these places, and base is the same for everybody.
func TestMountsAndTheWorkFolderMayBeAnywhere(t *testing.T) {
	harness.NothingLeft(t)
	eachPlace(t, func(t *testing.T, p place) {
		dir := harness.Dir(t, p.user)
		for _, name := range []string{"a", "b"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(name+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			harness.Give(t, p.user, filepath.Join(dir, name))
		}
		out := inBox(t, p, `
			pwd
			cat /data/a /etc/some/deep/file /tmp/t/a sub/a
			touch here
			[ ! -w /etc ]; [ -x /usr/bin/env ]; [ -r /etc/passwd ]; [ -r /etc/os-release ]`,
			"--mount", dir+":/data", "--mount", dir+"/b:/etc/some/deep/file", "--mount", dir+":/tmp/t", "--mount", dir+":/srv/work/sub",
			"--writable-dir", "/srv/work")
		if out != "/srv/work\na\nb\na\na\n" {
			t.Errorf("got %q", out)
		}
	})
}

// Whoever owns the folder on the host owns what a program makes there, whoever
// started sunaba, and the program can do what the owner could.
func TestFilesInAWritableMountBelongToItsOwner(t *testing.T) {
	harness.NothingLeft(t)
	const script = `
		cd /data
		[ -O . ]; [ -O private ]
		cat private > copy
		mkdir d
		mv private d/moved
		ln -s copy link
		ln copy hard
		truncate -s 1M copy
		chmod 640 copy
		touch -d 2001-02-03T04:05:06Z copy
		git init -q repo
		cd repo
		git -c user.name=N -c user.email=e@example.com commit -q --allow-empty -m first
		[ "$(git log --format=%s)" = first ]
		cd ..
		python3 -c '
import fcntl, mmap, os, sqlite3
f = open("map", "w+b")
f.truncate(4096)
m = mmap.mmap(f.fileno(), 0)
m[0] = 65
m.flush()
assert open("map").read(1) == "A"
fcntl.flock(f, fcntl.LOCK_EX)
fcntl.lockf(f, fcntl.LOCK_EX)
db = sqlite3.connect("db")
db.execute("create table t (a)")
db.commit()
os.replace("db", "db2")
'
		rm -r d`
	eachHost(t, func(t *testing.T, p place) {
		dir := harness.Dir(t, p.user)
		owners := map[string]int{"the caller": owner(t, dir)}
		if p.user == harness.Root {
			owners["a third user"] = 4242
		}
		for name, uid := range owners {
			t.Run(name, func(t *testing.T) {
				dir := harness.Dir(t, p.user)
				private := filepath.Join(dir, "private")
				if err := os.WriteFile(private, []byte("secret\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				for _, path := range []string{dir, private} {
					if err := os.Lchown(path, uid, uid); err != nil {
						t.Fatal(err)
					}
				}
				inBox(t, p, script, "--mount", dir+":/data:rw")
				files := 0
				err := filepath.Walk(dir, func(path string, _ os.FileInfo, err error) error {
					if files++; err == nil && owner(t, path) != uid {
						t.Errorf("%s belongs to %d, not %d", path, owner(t, path), uid)
					}
					return err
				})
				if err != nil || files < 20 {
					t.Errorf("%d files: %v", files, err)
				}
				info, err := os.Stat(filepath.Join(dir, "copy"))
				if err != nil || info.Mode() != 0o640 || info.Size() != 1<<20 || info.ModTime().Unix() != 981173106 {
					t.Errorf("copy: %v, %v", info, err)
				}
			})
		}
	})
}

// A file may be made for writing with a mode that forbids writing; git does that
// for every object. It says nothing about files that are there.
func TestReadOnlyFileIsMadeForWritingInAMount(t *testing.T) {
	harness.NothingLeft(t)
	const script = `
		cd /data
		umask 022
		echo old > old
		chmod 444 old
		mkdir locked
		chmod 555 locked
		python3 -c '
import errno, os
W, R, C, E = os.O_RDWR, os.O_RDONLY, os.O_CREAT, os.O_EXCL
def make(name, flags, mode):
    fd = os.open(name, flags, mode)
    if flags & W:
        os.write(fd, b"text")
    os.close(fd)
def refused(error, *args):
    try:
        make(*args)
    except OSError as e:
        assert e.errno == error, (args, e)
    else:
        assert False, args
make("a", W | C | E, 0o444)
make("b", W | C, 0o466)
make("c", W | C | E, 0)
make("d", R | C, 0o200)
refused(errno.EACCES, "a", W, 0)
refused(errno.EACCES, "a", W | C, 0o444)
refused(errno.EEXIST, "a", W | C | E, 0o444)
refused(errno.EACCES, "old", W | C, 0o444)
refused(errno.EACCES, "locked/new", W | C, 0o444)
os.symlink("nowhere/x", "dangling")
refused(errno.ENOENT, "dangling", W | C, 0o444)
'
		stat -c '%n %a %s' a b c d old
		cp old copy
		cp -p old precise
		tar c old | tar x --transform s/old/untarred/
		cat copy precise untarred`
	const want = "a 444 4\nb 444 4\nc 0 4\nd 200 0\nold 444 4\nold\nold\nold\n"
	eachHost(t, func(t *testing.T, p place) {
		if out := inBox(t, p, script, "--mount", harness.Dir(t, p.user)+":/data:rw"); out != want {
			t.Errorf("got %q, want %q", out, want)
		}
		if out := inBox(t, p, strings.Replace(script, "/data", "/workspace", 1)); out != want {
			t.Errorf("without a mount: got %q", out)
		}
	})
}

// A file that the program makes belongs to the mount's owner, so with a setuid
// bit it would be that owner's program, for anybody on the host to start.
func TestNoSetuidFileReachesTheHost(t *testing.T) {
	harness.NothingLeft(t)
	const script = `
		cd /data
		cp /bin/true a
		for mode in 4755 2755 6755 u+s g+s; do ! chmod $mode a 2>/dev/null; done
		! install -m 4755 /bin/true b 2>/dev/null
		python3 -c '
import os
for i, make in enumerate((lambda n: os.open(n, os.O_CREAT | os.O_WRONLY, 0o6755), lambda n: os.mknod(n, 0o106755), lambda n: os.fchmod(os.open(n, os.O_CREAT), 0o4755))):
    try:
        make("file%d" % i)
    except PermissionError:
        pass
'
		tar c -C / --mode=u+s bin/true | tar xp 2>/dev/null || true
		chmod 1755 a`
	eachHost(t, func(t *testing.T, p place) {
		dir := harness.Dir(t, p.user)
		inBox(t, p, script, "--mount", dir+":/data:rw")
		if p.tier == gvisor { // the other has no root
			inBox(t, p, script, "--mount", dir+":/data:rw", "--user", "root")
		}
		err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
			if err == nil && info.Mode().IsRegular() && info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
				t.Errorf("%s has mode %v on the host", path, info.Mode())
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		if info, err := os.Stat(filepath.Join(dir, "a")); err != nil || info.Mode()&os.ModeSticky == 0 {
			t.Errorf("the script did not come to its end: %v, %v", info, err)
		}
	})
}

// Images and run folders lie there: a program that could write them would
// choose what later boxes start from.
func TestStateFolderIsNotShown(t *testing.T) {
	eachHost(t, func(t *testing.T, p place) {
		dir := harness.Dir(t, p.user)
		state := dir + "/state"
		if r := harness.Run(t, p.user, p.run("--state", state, "--", "true")...); r.Code != 0 {
			t.Fatalf("exit %d: %s", r.Code, r.Stderr)
		}
		for _, source := range []string{state, dir, state + "/images"} {
			r := harness.Run(t, p.user, p.run("--state", state, "--mount", source+":/data:rw", "--", "true")...)
			if r.Code != 241 || !strings.Contains(r.Stderr, state) {
				t.Errorf("%s: exit %d, want 241: %s", source, r.Code, r.Stderr)
			}
		}
	})
}

func TestHostPrefixShowsProgramsOfTheOperator(t *testing.T) {
	harness.NothingLeft(t)
	prefix, err := os.MkdirTemp("/", "sunaba-test-prefix-")
	if err != nil {
		t.Skip("only root can make a folder in /: run the tests as root:", err)
	}
	defer os.RemoveAll(prefix)
	if err := os.MkdirAll(filepath.Join(prefix, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(prefix, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(prefix, "bin/our-tool"), []byte("#!/bin/sh\necho ours\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	eachHost(t, func(t *testing.T, p place) {
		out := inBox(t, p, `our-tool`, "--host-prefix", prefix)
		if out != "ours\n" {
			t.Errorf("got %q", out)
		}
		r := harness.Run(t, p.user, p.run("--", "ls", prefix)...)
		if r.Code == 0 || !strings.Contains(r.Stderr, "No such file") {
			t.Errorf("without the flag: exit code %d, %s", r.Code, r.Stderr)
		}
	})
}
