package tiertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
)

// A folder of the host is no part of a copy, but is where it was.
func TestAHostFolderIsShownInACopyAsWell(t *testing.T) {
	p := newPlace(t, box.TierProcess)
	dir, err := os.MkdirTemp("/var/tmp", "sunaba-tiertest-mount-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("first\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	made := spec()
	made.Mounts = []box.Mount{{Source: dir, Target: "/workspace/deep/shared"}}
	b := p.create(t, made)
	snapper(t, b)
	run(t, use(t, b), "cat /workspace/deep/shared/file; echo own > /workspace/deep/own; echo written > /workspace/deep/shared/new")
	s := p.copyFiles(t, b)
	p.destroy(t, b)
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("second\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	two := p.restore(t, made, s)
	if out := run(t, use(t, two), "cd /workspace/deep; cat shared/file own shared/new; echo more > shared/more"); out != "second\nown\nwritten\n" {
		t.Errorf("the copy has %q", out)
	}
	if more, err := os.ReadFile(filepath.Join(dir, "more")); err != nil || string(more) != "more\n" {
		t.Errorf("the host has %q, %v", more, err)
	}
	// What is in the way of it in a copy is not followed.
	run(t, use(t, two), "cd /workspace; mv deep aside; mkdir -p /tmp/else/shared; ln -s /tmp/else deep")
	s = p.copyFiles(t, two)
	p.destroy(t, two)
	made.ID = box.NewID()
	if three, err := p.standing.(box.Restorer).Restore(t.Context(), somebodys(made), s); err == nil {
		t.Error("a link was followed")
		p.destroy(t, three.(box.Lasting))
	}
	p.empty(t)
}

// A box that has all that it may have is copied like another.
func TestAFullBoxIsCopied(t *testing.T) {
	p := newPlace(t, box.TierProcess)
	made := spec()
	b := p.create(t, made)
	snapper(t, b)
	run(t, use(t, b), `cd /workspace; i=0; while true > f$i; do i=$((i+1)); done 2>/dev/null; rm f0 f1
		head -c 100000000 /dev/urandom > big 2>/dev/null; dd if=/dev/urandom of=small bs=4096 2>/dev/null; sync; :`)
	sum := run(t, use(t, b), "cd /workspace; ls | wc -l; cat big small | sha256sum; stat -f -c %d .")
	if !strings.HasSuffix(sum, "\n0\n") {
		t.Fatalf("it is not full: %q", sum)
	}
	s := p.copyFiles(t, b)
	p.destroy(t, b)
	two := p.restore(t, made, s)
	if now := run(t, use(t, two), "cd /workspace; ls | wc -l; cat big small | sha256sum; stat -f -c %d ."); now != sum {
		t.Errorf("%q became %q", sum, now)
	}
	a, err := two.Account(t.Context())
	if err != nil || a.Written < made.Limits.Disk-1<<20 {
		t.Errorf("of %d bytes it has written %d, %v", made.Limits.Disk, a.Written, err)
	}
	run(t, use(t, two), "rm /workspace/big; echo again > /tmp/again")
	p.destroy(t, two)
	p.empty(t)
}

// Nor does it matter that it has shut itself out of its own folder.
func TestABoxThatClosedItsFolderIsCopied(t *testing.T) {
	p := newPlace(t, box.TierProcess)
	made := spec()
	b := p.create(t, made)
	snapper(t, b)
	run(t, use(t, b), "echo in > /workspace/in; chmod 0 /workspace")
	s := p.copyFiles(t, b)
	p.destroy(t, b)
	made.ID = box.NewID()
	two, err := p.standing.(box.Restorer).Restore(t.Context(), somebodys(made), s)
	if err != nil {
		t.Fatal(err)
	}
	g := use(t, two.(box.Lasting))
	pr, err := g.Start(t.Context(), box.ProcessSpec{Command: box.Command{
		Argv: []string{"sh", "-c", "stat -c %a /workspace; chmod 755 /workspace; cat /workspace/in"}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/tmp",
	}})
	if err != nil {
		t.Fatal(err)
	}
	if end, out := ended(t, g, pr.PID); end.ExitCode != 0 || out != "0\nin\n" {
		t.Errorf("the copy says %q, %+v", out, end)
	}
	p.destroy(t, two.(box.Lasting))
	p.empty(t)
}
