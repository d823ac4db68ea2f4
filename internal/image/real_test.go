package image

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// enterable skips the test where images cannot be mounted.
func enterable(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting an image needs root")
	}
	if fss, err := os.ReadFile("/proc/filesystems"); err != nil || !bytes.Contains(fss, []byte("\terofs\n")) {
		t.Skip("this kernel has no EROFS (or its module is not loaded)")
	}
}

// enter runs a script with the image as its root, as the ordinary user, in a
// mount namespace of its own that has what a box would have: the image's binds
// read-only, /proc, a /dev with null and urandom, and writable /tmp and /workspace.
func enter(t *testing.T, img *Image, script string) (string, error) {
	t.Helper()
	var binds []string
	for _, b := range img.Binds {
		binds = append(binds, b.Source)
	}
	mnt := filepath.Join(t.TempDir(), "mnt")
	if err := os.Mkdir(mnt, 0o755); err != nil {
		t.Fatal(err)
	}
	const setup = `
mnt=$1 image=$2 binds=$3 path=$4
mount -t erofs -o loop,ro "$image" "$mnt"
for b in $binds; do mount --bind "$b" "$mnt$b"; mount -o remount,bind,ro "$mnt$b"; done
mount -t proc proc "$mnt/proc"
mount -t tmpfs -o mode=755 tmpfs "$mnt/dev"; mknod -m 666 "$mnt/dev/null" c 1 3; mknod -m 666 "$mnt/dev/urandom" c 1 9
mount -t tmpfs -o mode=1777 tmpfs "$mnt/tmp"
mount -t tmpfs -o mode=755,uid=1000,gid=1000 tmpfs "$mnt/workspace"
exec env -i PATH="$path" HOME=/home/user LC_ALL=C.UTF-8 chroot --userspec=1000:1000 "$mnt" /bin/sh -ec "cd /workspace; $5"`
	cmd := exec.Command("unshare", "-m", "--propagation", "private", "sh", "-euc", setup, "sh",
		mnt, img.File.Name(), strings.Join(binds, " "), img.Path, script)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// works is what both images must be able to do. A check is passed over if the
// host does not have its program.
var works = []struct{ program, script, want string }{
	{"sh", `echo ok`, `^ok$`},
	{"bash", `bash -c 'a=(1 2); echo ${#a[@]}'`, `^2$`},
	{"id", `id`, `^uid=1000\(user\) gid=1000\(user\) groups=1000\(user\)$`},
	{"python3", `python3 -c 'import json, sqlite3, ssl, ctypes, decimal; print(json.dumps([1]))'`, `^\[1\]$`},
	{"python3", `python3 -c 'import mimetypes, socket; print(mimetypes.guess_type("a.csv")[0], socket.getservbyname("https"))'`, `^text/csv 443$`},
	{"node", `node -e 'console.log(6*7, require("os").homedir())'`, `^42 /home/user$`},
	{"git", `git --version; git init -q r; cd r; git -c user.name=u -c user.email=e commit -q --allow-empty -m m; git log --format=%s`, `(?s)^git version.*\nm$`},
	{"perl", `perl -MPOSIX -MList::Util=sum -e 'print sum(1, 2), floor(2.5)'`, `^32$`},
	{"awk", `printf '1 2\n' | awk '{ print $1 + $2 }'`, `^3$`},
	{"gcc", `printf '#include <stdio.h>\nint main(void) { puts("compiled"); }\n' >x.c; gcc -O2 x.c -o x; ./x`, `^compiled$`},
	{"g++", `printf '#include <iostream>\nint main() { std::cout << 7; }\n' >x.cc; g++ x.cc -o y; ./y`, `^7$`},
	{"make", `printf 'all:\n\t@echo made\n' >Makefile; make -s`, `^made$`},
	{"jq", `echo '{"a": 5}' | jq .a`, `^5$`},
	{"sqlite3", `sqlite3 :memory: 'select 1+1'`, `^2$`},
	{"curl", `curl --version | head -n 1`, `^curl `},
	{"xz", `echo text | xz | xz -dc; echo more | gzip | gunzip`, `^text\nmore$`},
	{"tar", `tar -cf - /etc/passwd 2>&- | tar -tf - `, `^etc/passwd$`},
	{"ps", `ps -o comm= -p $$`, `^sh$`},
	{"file", `file -b /etc/passwd`, `text`},
	{"sh", `touch /usr/x /etc/x 2>&1 || true`, `(?s)(Read-only file system|Permission denied).*(Read-only file system|Permission denied)`},
	{"sh", `find / -xdev -perm /6000 -type f 2>/dev/null | wc -l; ls -ld /tmp /root | cut -c 1-10`, `^0\ndrwx------\ndrwxrwxrwt$`},
	{"sh", `cat /etc/shadow /etc/ssh/* /etc/ssl/private/* 2>/dev/null | wc -c`, `^0$`},
}

func checkWorks(t *testing.T, img *Image) {
	for _, w := range works {
		if _, err := exec.LookPath(w.program); err != nil {
			t.Logf("not checked, as this host has no %s", w.program)
			continue
		}
		out, err := enter(t, img, w.script)
		if err != nil || !regexp.MustCompile(w.want).MatchString(out) {
			t.Errorf("%s: %v\n%s", w.script, err, out)
		}
	}
}

func TestProgramsRunInTheHostImage(t *testing.T) {
	enterable(t)
	img := hostImage(t, newStore(t), HostOptions{})
	checkWorks(t, img)
}

func TestProgramsRunInTheBaseImage(t *testing.T) {
	enterable(t)
	img := baseImage(t, newStore(t), BaseOptions{})
	checkWorks(t, img)

	out, err := enter(t, img, `cd /usr; find bin lib sbin -type l | while read -r l; do [ -e "$l" ] || echo "$l -> $(readlink "$l")"; done`)
	if err != nil || strings.Count(out, "\n") > 20 {
		t.Errorf("links that lead nowhere: %v\n%s", err, out)
	}
	if _, err := os.Stat("/etc/ld.so.cache"); err == nil {
		out, err := enter(t, img, `/sbin/ldconfig -p | grep 'libz\.so\.1 '; /sbin/ldconfig -p | sed -n 's/.*=> //p' | while read -r l; do [ -e "$l" ] || echo "lost $l"; done`)
		if err != nil || !strings.Contains(out, "libz.so.1") || strings.Contains(out, "lost") {
			t.Errorf("the loader's cache is wrong: %v\n%s", err, out)
		}
	}
	if out, err := enter(t, img, `find / -xdev -newermt 2000-01-02 -o ! -newermt 1999-12-31 2>/dev/null | grep -v '^/\(proc\|dev\|tmp\|workspace\)$' || true`); err != nil || out != "" {
		t.Errorf("not of the fixed time: %v\n%s", err, out)
	}
	if _, err := exec.LookPath("/usr/bin/python3"); err == nil {
		out, err := enter(t, img, `python3 -v -c 'import json, decimal, asyncio' 2>&1 | grep 'code object from .*\.py'"'"'' || true`)
		if err != nil || out != "" {
			t.Errorf("python compiles its library at each start: %v\n%s", err, out)
		}
	}
}

func TestBaseFromPathsBringsLibraries(t *testing.T) {
	enterable(t)
	for _, p := range []string{"/bin/sh", "/usr/bin/python3", "/usr/bin/git", "/usr/bin/env"} {
		if _, err := os.Stat(p); err != nil {
			t.Skipf("this host has no %s", p)
		}
	}
	s := newStore(t)
	img := baseImage(t, s, BaseOptions{
		Packages:   []string{},
		ExtraPaths: []string{"/bin/sh", "/usr/bin/ls", "/usr/bin/git", "/usr/bin/awk"},
	})
	out, err := enter(t, img, `ls -d /usr/bin/git; git --version; awk 'BEGIN { print 1 + 2 }'`)
	if err != nil || !regexp.MustCompile(`(?s)^/usr/bin/git\ngit version.*\n3$`).MatchString(out) {
		t.Errorf("%v\n%s", err, out)
	}
	info, err := img.File.Stat()
	if err != nil || info.Size() > 64<<20 {
		t.Errorf("four programs take %d bytes, %v", info.Size(), err)
	}
}
