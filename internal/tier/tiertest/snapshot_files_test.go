package tiertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/guest"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// untilCopied returns when a snapshot of a box has begun to be written, which then
// goes no further.
func untilCopied(b box.Box) {
	begun := make(chan struct{})
	go func() {
		_, _ = b.(box.Snapshotter).Snapshot(context.Background(), box.SnapshotFiles, func(_ string, r io.Reader) error {
			_, err := io.ReadFull(r, make([]byte, 100))
			close(begun)
			<-context.Background().Done()
			return err
		})
	}()
	<-begun
}

// snapper is a box whose files can be copied, or the test ends here: what cannot
// says why.
func snapper(t *testing.T, b box.Lasting) box.Snapshotter {
	t.Helper()
	s, ok := b.(box.Snapshotter)
	if !ok {
		t.Fatalf("%T is no Snapshotter", b)
	}
	if err := s.Snappable(box.SnapshotFiles); err != nil {
		_, serr := s.Snapshot(t.Context(), box.SnapshotFiles, func(string, io.Reader) error { return nil })
		if box.KindOf(err) != box.Unsupported || box.KindOf(serr) != box.Unsupported || os.Geteuid() == 0 {
			t.Errorf("it says that it cannot be copied: %v, %v", err, serr)
		}
		t.Skip(err)
	}
	return s
}

// copyFiles takes a snapshot of a box's files.
func (p *place) copyFiles(t *testing.T, b box.Lasting) *box.Snapshot {
	t.Helper()
	s := &box.Snapshot{Parts: map[string]*os.File{}}
	began := time.Now()
	head, err := snapper(t, b).Snapshot(t.Context(), box.SnapshotFiles, func(name string, r io.Reader) error {
		f, err := host.OpenUnlinked(p.state)
		if err != nil {
			return err
		}
		t.Cleanup(func() { f.Close() })
		n, err := io.Copy(f, r)
		t.Logf("copied %s: %d KiB in %v", name, n>>10, time.Since(began).Round(time.Millisecond))
		s.Parts[name] = f
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s.SnapshotHead = head
	return s
}

// restore makes a box of a snapshot.
func (p *place) restore(t *testing.T, made box.Spec, s *box.Snapshot) box.Lasting {
	t.Helper()
	made.ID, made.Limits.MilliCPU = box.NewID(), 1500
	b, err := p.standing.(box.Restorer).Restore(t.Context(), somebodys(made), s)
	if err != nil {
		t.Fatal(err)
	}
	return b.(box.Lasting)
}

func TestFilesOfACycleAreThereFiveCyclesLater(t *testing.T) {
	p := newPlace(t, box.TierProcess)
	made := spec()
	b := p.create(t, made)
	var s *box.Snapshot
	for g := range 7 {
		user := use(t, b)
		run(t, user, fmt.Sprintf(`
			set -e
			head -c %d /dev/urandom > /workspace/file%d # is not written out
			sha256sum /workspace/file%d >> /tmp/sums
			mkdir -p /home/user/deep/%d; ln -s /workspace/file%d /home/user/deep/%d/link
			ln /workspace/file%d /workspace/same%d; chmod 60%d /workspace/file%d
			rm -f /workspace/gone; echo new > /var/tmp/gone%d; rm -f /var/tmp/gone%d`, 50_000+g, g, g, g, g, g, g, g, g, g, g, g-1))
		if g == 0 {
			run(t, user, `chmod 700 /workspace; mkfifo /workspace/pipe; touch -d 2001-02-03T04:05:06 /workspace/old; truncate -s 10M /workspace/sparse
				echo x > /workspace/none; chmod 0 /workspace/none; echo lost > /dev/shm/lost`)
		}
		startCounter(t, user)
		used := run(t, user, "stat -f -c '%b %f %c %d' /workspace")
		s = p.copyFiles(t, b)
		counting(t, user)
		p.destroy(t, b)
		b = p.restore(t, made, s)
		user = use(t, b)
		run(t, user, "sha256sum -c --quiet /tmp/sums")
		got := run(t, user, fmt.Sprintf(`cat /home/user/deep/%d/link | wc -c; ls /var/tmp; id -u
			stat -c '%%a %%u %%h' /workspace/file%d; stat -c %%a /workspace /tmp /workspace/none; stat -c '%%F %%s %%b' /workspace/pipe /workspace/sparse
			stat -c %%y /workspace/old; ls /dev/shm`, g, g))
		want := fmt.Sprintf("%d\ngone%d\n1000\n60%d 1000 2\n700\n1777\n0\nfifo 0 0\nregular file 10485760 0\n2001-02-03 04:05:06.000000000", 50_000+g, g, g)
		if !strings.HasPrefix(got, want) || strings.Contains(got, "lost") {
			t.Fatalf("generation %d has\n%s\nnot\n%s", g, got, want)
		}
		if now := run(t, user, "rm /workspace/n; sync; stat -f -c '%b %f %c %d' /workspace"); g > 0 && !alike(used, now) {
			t.Errorf("generation %d: blocks and files %q became %q", g, used, now)
		}
		if got := specOf(t, b.State()); got.Tenant != "acme" || got.Limits.MilliCPU != 1500 {
			t.Errorf("it is %+v", got)
		}
	}
	// Two of the same differ, and what one has in use is counted.
	two := p.restore(t, made, s)
	run(t, use(t, b), "echo one > /workspace/which; sync")
	if out := run(t, use(t, two), "cat /workspace/which 2>/dev/null || echo none"); out != "none\n" {
		t.Errorf("the other box has %q", out)
	}
	a, err := two.Account(t.Context())
	if err != nil || a.Written < 7*50_000 || a.Written > 2<<20 {
		t.Errorf("it has written %d bytes, %v", a.Written, err)
	}
	// And what it may write is bounded as it was.
	if out := run(t, use(t, two), "head -c 40000000 /dev/zero > /workspace/big 2>&1 || echo full"); !strings.HasSuffix(out, "full\n") {
		t.Errorf("more than its disk: %q", out)
	}
	p.destroy(t, b)
	p.destroy(t, two)
	p.empty(t)
}

// alike compares room of a store in which a small file was removed meanwhile.
func alike(a, b string) bool {
	var x, y [4]int
	for i, s := range []string{a, b} {
		to := []*[4]int{&x, &y}[i]
		if n, err := fmt.Sscan(s, &to[0], &to[1], &to[2], &to[3]); n != 4 || err != nil {
			return false
		}
	}
	near := func(a, b int) bool { return a-b <= 2 && b-a <= 2 }
	return x[0] == y[0] && near(x[1], y[1]) && x[2] == y[2] && near(x[3], y[3])
}

// counting makes sure that a box's counter goes on.
func counting(t *testing.T, g box.Guest) {
	t.Helper()
	goesOn(t, g, counts(t, g))
}

func TestWhatCannotBeCopiedSaysWhy(t *testing.T) {
	p := newPlace(t, box.TierProcess)
	b := p.create(t, spec())
	defer p.destroy(t, b)
	s := b.(box.Snapshotter)
	_, err := s.Snapshot(t.Context(), box.SnapshotMemory, func(string, io.Reader) error { return nil })
	for _, err := range []error{s.Snappable(box.SnapshotMemory), err} {
		if box.KindOf(err) != box.Unsupported || !strings.Contains(err.Error(), "cannot copy what runs") {
			t.Errorf("its memory: %v", err)
		}
	}
	if err := s.Snappable(box.SnapshotFiles); os.Geteuid() != 0 && (box.KindOf(err) != box.Unsupported || !strings.Contains(err.Error(), "ordinary user")) {
		t.Errorf("an ordinary user's: %v", err)
	}
}

func TestACopyThatDoesNotFitMakesNoBox(t *testing.T) {
	p := newPlace(t, box.TierProcess)
	made := spec()
	b := p.create(t, made)
	good := box.Snapshot{SnapshotHead: box.SnapshotHead{Kind: box.SnapshotFiles, Tier: box.TierProcess}}
	root := os.Geteuid() == 0
	if root {
		good = *p.copyFiles(t, b)
	}
	p.destroy(t, b)
	for what, change := range map[string]func(*box.Snapshot, *box.Spec){
		"tier":  func(s *box.Snapshot, _ *box.Spec) { s.Tier = box.TierGvisor },
		"store": func(s *box.Snapshot, _ *box.Spec) { s.Needs = map[string]string{"image": "host", "store": "tmpfs-1"} },
		"image": func(s *box.Snapshot, _ *box.Spec) {
			s.Needs = map[string]string{"image": "base@sha256:0", "store": "ext4-1"}
		},
		"memory": func(_ *box.Snapshot, w *box.Spec) { w.Limits.Memory *= 2 },
		"disk":   func(_ *box.Snapshot, w *box.Spec) { w.Limits.Disk *= 2 },
		"folder": func(_ *box.Snapshot, w *box.Spec) { w.Workdir = "/elsewhere" },
		"part":   func(s *box.Snapshot, _ *box.Spec) { s.Parts = nil },
		"words":  func(s *box.Snapshot, _ *box.Spec) { s.Own = []byte(`{"Disk":0}`) },
		"bytes": func(s *box.Snapshot, _ *box.Spec) {
			f, err := host.OpenUnlinked(p.state)
			if err != nil {
				t.Fatal(err)
			}
			s.Parts = map[string]*os.File{"store": f}
		},
	} {
		s, wanted := good, somebodys(made)
		wanted.ID = box.NewID()
		change(&s, &wanted)
		if b, err := p.standing.(box.Restorer).Restore(t.Context(), wanted, &s); box.KindOf(err) != box.Conflict {
			t.Errorf("another %s: %v", what, err)
			if err == nil {
				_ = b.Destroy(context.Background())
			}
		}
	}
	if root {
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		wanted := somebodys(made)
		wanted.ID = box.NewID()
		if _, err := p.standing.(box.Restorer).Restore(gone, wanted, &good); !errors.Is(err, context.Canceled) {
			t.Errorf("for nobody: %v", err)
		}
	}
	p.empty(t)
}

// Whatever ends a snapshot before it is whole, the box goes on.
func TestABoxGoesOnAfterASnapshotThatFailed(t *testing.T) {
	p := newPlace(t, box.TierProcess)
	b := p.create(t, spec())
	defer p.destroy(t, b)
	g := use(t, b)
	startCounter(t, g)
	run(t, g, "head -c 3000000 /dev/urandom > /workspace/data")
	s := snapper(t, b)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	if _, err := s.Snapshot(t.Context(), box.SnapshotFiles, func(_ string, r io.Reader) error {
		if _, err := io.CopyN(io.Discard, r, 1<<20); err != nil {
			return err
		}
		_, err := io.Copy(full, r)
		return err
	}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a full disk: %v", err)
	}
	counting(t, g)
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := s.Snapshot(ctx, box.SnapshotFiles, func(_ string, r io.Reader) error {
		cancel()
		_, err := io.Copy(io.Discard, r)
		return err
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	counting(t, g)
	if _, err := s.Snapshot(t.Context(), box.SnapshotFiles, func(_ string, r io.Reader) error { return nil }); err == nil {
		t.Error("nobody read it, and it is well")
	}
	counting(t, g)
	stood := false
	if _, err := s.Snapshot(t.Context(), box.SnapshotFiles, func(_ string, r io.Reader) error {
		stands(t, b)
		stood = true
		_, err := io.Copy(io.Discard, r)
		return err
	}); err != nil || !stood {
		t.Error(err)
	}
	counting(t, g)
}

func TestABoxCanBeDestroyedWhileItIsCopied(t *testing.T) {
	p := newPlace(t, box.TierProcess)
	for range 3 {
		b := p.create(t, spec())
		run(t, use(t, b), "head -c 3000000 /dev/urandom > /workspace/data")
		begun, done := make(chan struct{}), make(chan error)
		s := snapper(t, b)
		go func() {
			_, err := s.Snapshot(context.Background(), box.SnapshotFiles, func(_ string, r io.Reader) error {
				_, err := io.CopyN(io.Discard, r, 1<<20)
				close(begun)
				<-b.Ended()
				return errors.Join(err, func() error { _, err := io.Copy(io.Discard, r); return err }())
			})
			done <- err
		}()
		<-begun
		p.destroy(t, b)
		if err := <-done; err == nil {
			t.Error("a box that was destroyed was copied")
		}
	}
	p.empty(t)
}

func TestACopyOfAPausedBoxLeavesItPaused(t *testing.T) {
	p := newPlace(t, box.TierProcess)
	made := spec()
	b := p.create(t, made)
	g := use(t, b)
	snapper(t, b)
	startCounter(t, g)
	run(t, g, "echo kept > /workspace/file")
	do(t, b.(box.Pauser).Pause)
	for range 2 { // the second one by a front that never spoke to it
		s := p.copyFiles(t, b)
		stands(t, b)
		two := p.restore(t, made, s)
		if out := run(t, use(t, two), "cat /workspace/file"); out != "kept\n" {
			t.Errorf("the copy has %q", out)
		}
		p.destroy(t, two)
		raw := b.State()
		b.Detach()
		b = p.recover(t, made.ID, raw)
	}
	do(t, b.(box.Pauser).Resume)
	counting(t, use(t, b))
	p.destroy(t, b)
	p.empty(t)
}

func TestABoxOutlivesAMakerThatWasKilledWhileCopyingIt(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user's boxes are not copied")
	}
	p := newPlace(t, box.TierProcess)
	made := p.killedFront(t, "copying")
	b := p.recover(t, made.ID, made.State)
	if _, err := b.(box.Fingerprinter).Fingerprint(t.Context()); err == nil {
		t.Error("it was not held")
	}
	do(t, b.(box.Pauser).Resume)
	g := guest.New(b.Agent, unhurried)
	defer g.Close()
	if _, err := g.Input(t.Context(), box.ProcessRef{PID: made.PID}, box.Input{Data: []byte("all\n")}); err != nil {
		t.Fatal(err)
	}
	if end, out := ended(t, g, made.PID); end.ExitCode != 42 || out != "before\nafter all\n" {
		t.Errorf("a program from before: %+v, %q", end, out)
	}
	run(t, g, "echo now > /workspace/now")
	s := p.copyFiles(t, b)
	p.destroy(t, b)
	two := p.restore(t, spec(), s)
	if out := run(t, use(t, two), "cat /workspace/now"); out != "now\n" {
		t.Errorf("the copy has %q", out)
	}
	p.destroy(t, two)
	p.empty(t)
}
