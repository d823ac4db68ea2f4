package tiertest

import (
	"io"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
)

// asRoot runs a script as guest root.
func asRoot(t *testing.T, g box.Guest, script string) string {
	t.Helper()
	p, err := g.Start(t.Context(), box.ProcessSpec{Command: box.Command{Argv: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, User: box.UserRoot}})
	if err != nil {
		t.Fatal(err)
	}
	end, out := ended(t, g, p.PID)
	if end.ExitCode != 0 {
		t.Errorf("%+v\n%s", end, out)
	}
	return out
}

// odd makes files of all kinds, and changes and removes some of the image's.
const odd = `set -e; cd /workspace
rm -rf /usr/share/doc; mkdir /usr/share/doc; echo new > /usr/share/doc/only
rm -rf /usr/share/common-licenses; echo file > /usr/share/common-licenses
rmdir /srv; ln -s /tmp /srv; ln -s $(printf 'l%.0s' $(seq 200)) long
mv /etc/debian_version /etc/moved; echo changed >> /etc/hosts; chown 1000:7 /etc/services; rm /etc/inputrc /usr/bin/yes; rm -r /etc/perl
touch .wh.evil .wh..wh..opq; mkdir od; touch od/.wh.x; mkfifo pipe
truncate -s 5G sparse; echo end >> sparse; touch $(printf 'n%.0s' $(seq 250)) "new
line"; touch -d 1960-01-01 old; touch -d '2200-01-01 00:00:00.123456789' late
ln /etc/hosts same; echo x > none; chmod 0 none; touch own; chmod 4755 own; mkdir sticky; chmod 1777 sticky
python3 -c "
import os, socket
socket.socket(socket.AF_UNIX).bind('sock')
open(b'bad\xff', 'w')
for f in 'own', 'sticky', '/etc/hostname', '/usr/lib':
    os.setxattr(f, 'user.text', 'ä=,'.encode()); os.setxattr(f, 'user.long', b'l' * 3000)
"`

// tree tells all about the files of a box, in lines. Their times are those of the nearest
// second, as in a copy.
const tree = `python3 -c "
import hashlib, os, stat, sys
def tell(p):
    s = os.lstat(p); m = s.st_mode; what = ''
    if stat.S_ISREG(m) and s.st_size < 1 << 20: what = hashlib.sha256(open(p, 'rb').read()).hexdigest()
    if stat.S_ISLNK(m): what = os.readlink(p)
    x = [] if stat.S_ISLNK(m) or stat.S_ISSOCK(m) else sorted((k, os.getxattr(p, k)) for k in os.listxattr(p))
    print(ascii(p), oct(m), s.st_uid, s.st_gid, s.st_nlink, s.st_size if not stat.S_ISDIR(m) else '', s.st_blocks if stat.S_ISREG(m) else '', (s.st_mtime_ns + 5 * 10**8) // 10**9, what, x)
for root in b'/workspace', b'/etc', b'/usr/share/doc', b'/srv', b'/home', b'/usr/share/common-licenses':
    tell(root)
    for d, ds, fs in os.walk(root):
        for n in sorted(ds + fs): tell(os.path.join(d, n))
for p in '/usr/bin/yes', '/usr/lib', '/usr/bin', '/usr/share/common-licenses': print(p, os.path.exists(p), os.path.exists(p) and sorted(os.listxattr(p)))
" | sort`

// A copy of files has no sockets.
func lost(line string) string {
	if strings.Contains(line, "/sock'") {
		return ""
	}
	return line
}

func TestAllThatAGuestsFilesAreIsInACopyOfThem(t *testing.T) {
	p := newPlace(t, box.TierGvisor)
	made := memorySpec()
	b := p.create(t, made)
	g := use(t, b)
	asRoot(t, g, odd)
	was := strings.Split(asRoot(t, g, tree), "\n")
	if len(was) < 50 {
		t.Fatalf("of %d files this judges nothing", len(was))
	}
	two := p.restore(t, made, p.copyFiles(t, b))
	three := p.restore(t, made, p.copyFiles(t, two))
	for _, c := range []box.Lasting{two, three} {
		now := map[string]bool{}
		for _, line := range strings.Split(asRoot(t, use(t, c), tree), "\n") {
			now[lost(line)] = true
		}
		for _, line := range was {
			if want := lost(line); want != "" && !now[want] && !strings.HasPrefix(want, "'/workspace' ") { // its time is that of the start
				t.Errorf("not in the copy: %s", want)
			}
		}
		if len(now) > len(was) {
			t.Errorf("%d files became %d", len(was), len(now))
		}
		if out := asRoot(t, use(t, c), "cat /etc/hosts | tail -1; echo more >> /workspace/same; tail -1 /etc/hosts; tail -c 4 /workspace/sparse; sha256sum < /usr/bin/true > /dev/null"); out != "changed\nmore\nend\n" {
			t.Errorf("the copy says %q", out)
		}
	}
	for _, c := range []box.Lasting{b, two, three} {
		p.destroy(t, c)
	}
	p.empty(t)
}

// What is copied of files does not pass through the memory of the guest's kernel, so
// that a box may have more of it than memory.
func TestFilesAreCopiedThatAreLargerThanTheMemory(t *testing.T) {
	p := newPlace(t, box.TierGvisor)
	made := spec()
	made.Limits.Memory, made.Limits.Disk, made.Limits.Files = 64<<20, 400<<20, 100
	b := p.create(t, made)
	g := use(t, b)
	// All that it may have of both.
	sum := run(t, g, `cd /workspace; head -c 300000000 /dev/urandom > large; truncate -s 1P sparse; sha256sum < large
		i=0; while true > f$i; do i=$((i+1)); done 2>/dev/null; dd if=/dev/zero of=f0 bs=65536 2>/dev/null; stat -f -c '%f %d' .; ls | wc -l`)
	alive := begin(t, g, "read x; echo alive")
	s := p.copyFiles(t, b)
	c := p.restore(t, made, s)
	if now := run(t, use(t, c), "cd /workspace; sha256sum < large; stat -f -c '%f %d' .; ls | wc -l"); now != sum {
		t.Errorf("%q became %q", sum, now)
	}
	if a, err := c.Account(t.Context()); err != nil || a.Written < 300_000_000 || a.Written > made.Limits.Disk+16<<20 {
		t.Errorf("account %+v, %v", a, err)
	}
	run(t, use(t, c), "rm /workspace/large /workspace/f1; echo again > /workspace/again")
	if _, err := g.Input(t.Context(), box.ProcessRef{PID: alive.PID}, box.Input{Data: []byte("\n")}); err != nil {
		t.Fatal(err)
	}
	if _, out := ended(t, g, alive.PID); out != "alive\n" {
		t.Errorf("what ran in it says %q", out)
	}
	p.destroy(t, b)
	p.destroy(t, c)
	// And no more is theirs: a copy that has more than its box may have is none.
	small := made
	small.ID, small.Limits.Disk = box.NewID(), 100<<20
	if c, err := p.standing.(box.Restorer).Restore(t.Context(), somebodys(small), s); box.KindOf(err) != box.Conflict {
		t.Errorf("%v, %v", c, err)
	}
	p.empty(t)
}

// What would not be in a copy is no copy: it is refused, in copies of the box as well,
// until nobody can say that it is there.
func TestFilesWithAttributesThatNoCopyKeepsAreNotCopied(t *testing.T) {
	p := newPlace(t, box.TierGvisor)
	for what, set := range map[string]string{
		"an empty value":  "os.setxattr('f', 'user.x', b'')",
		"no UTF-8":        "os.setxattr(os.open('f', os.O_WRONLY), 'user.x', bytes([0xff]))",
		"a strange name":  "os.setxattr('f', 'user.x=y', b'1', follow_symlinks=False)",
		"one that failed": "\ntry: os.setxattr('nothing', 'user.x', b'')\nexcept OSError: pass",
	} {
		made := memorySpec()
		b := p.create(t, made)
		g := use(t, b)
		run(t, g, "cd /workspace; touch f; python3 -c \"import os; os.setxattr('f', 'user.good', 'ä'.encode() + bytes(1))\"")
		p.copyFiles(t, b)
		run(t, g, `cd /workspace; python3 -c "import os; `+set+`"`)
		leave(t, g)
		c := p.restore(t, made, p.copyMemory(t, b))
		if out := run(t, use(t, c), `cd /workspace; python3 -c "import os; print(len(os.listxattr('f')), os.getxattr('f', 'user.good'))"`); !strings.HasSuffix(out, "b'\\xc3\\xa4\\x00'\n") {
			t.Errorf("%s: %q", what, out)
		}
		for _, each := range []box.Lasting{b, c} {
			_, err := each.(box.Snapshotter).Snapshot(t.Context(), box.SnapshotFiles, func(_ string, r io.Reader) error {
				_, err := io.Copy(io.Discard, r)
				return err
			})
			if refused := box.KindOf(err) == box.Conflict && strings.Contains(err.Error(), "attribute"); refused != (what != "one that failed") {
				t.Errorf("%s: %v", what, err)
			}
		}
		p.destroy(t, b)
		p.destroy(t, c)
	}
	p.empty(t)
}
