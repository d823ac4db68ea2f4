package tiertest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/volume"
)

const volumeSize = 16 << 20

// shelf is a place's volumes.
type shelf struct {
	*volume.Store
	dir string
}

func (p *place) shelf(t *testing.T) *shelf {
	t.Helper()
	dir := filepath.Join(p.state, "volumes")
	s, err := volume.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &shelf{s, dir}
}

func (s *shelf) volume(t *testing.T) (file string) {
	t.Helper()
	file = volume.NewFile()
	if err := s.Make(file, volumeSize); err != nil {
		t.Fatal(err)
	}
	if err := s.Name(file); err != nil {
		t.Fatal(err)
	}
	return file
}

// with is a spec with a volume at /data, which its caller has open only until the
// box is made.
func (s *shelf) with(t *testing.T, sp box.Spec, file string, readOnly bool) (box.Spec, func()) {
	t.Helper()
	var f *os.File
	if err := comes(func() (err error) { // its last box may have to be written out
		f, err = s.Take(t.Context(), file, volumeSize, readOnly)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	sp.Volumes = []box.Volume{{Name: "data", Target: "/data", ReadOnly: readOnly, Image: f}}
	return sp, func() { f.Close() }
}

// onVolume makes a box with a volume.
func (p *place) onVolume(t *testing.T, s *shelf, file string, readOnly bool) box.Lasting {
	t.Helper()
	sp, done := s.with(t, spec(), file, readOnly)
	defer done()
	return p.create(t, sp)
}

// settled returns when what the last box wrote is on the disk.
func (s *shelf) settled(t *testing.T, file string) {
	t.Helper()
	if err := comes(func() error { return s.Settle(t.Context(), file) }); err != nil {
		t.Fatal(err)
	}
}

func needVolumes(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("see TestAnOrdinaryUserIsRefusedAVolumeWithTheReason")
	}
}

func TestAVolumeKeepsFilesOverBoxesAndTiers(t *testing.T) {
	needVolumes(t)
	tiers := []box.TierName{box.TierProcess, box.TierGvisor, box.TierProcess, box.TierGvisor, box.TierGvisor}
	places := map[box.TierName]*place{}
	for _, n := range tiers {
		if places[n] == nil {
			places[n] = newPlace(t, n)
		}
	}
	s := places[box.TierProcess].shelf(t)
	file := s.volume(t)
	want := ""
	for i, n := range tiers {
		p := places[n]
		b := p.onVolume(t, s, file, false)
		g := use(t, b)
		out := run(t, g, fmt.Sprintf(`cd /data; cat log 2>/dev/null; echo %d %s >> log; mkdir -p d/deep; echo x > "d/deep/ü %d"; ln -s /etc/passwd l%[1]d; ln log h%[1]d
			printf '#!/bin/sh\necho ran\n' > prog; chmod 755 prog; ./prog; stat -c %%U log`, i, n, i))
		if out != want+"ran\nuser\n" {
			t.Errorf("round %d (%s): %q, want %q", i, n, out, want)
		}
		want += fmt.Sprintf("%d %s\n", i, n)
		p.destroy(t, b)
		s.settled(t, file)
	}
	for _, p := range places {
		p.empty(t)
	}
}

// The lock is the kernel's: nobody on the host has the file open but the loop
// device of the box.
func TestAVolumeOfABoxIsNobodyElses(t *testing.T) {
	needVolumes(t)
	eachTier(t, func(t *testing.T, p *place) {
		s := p.shelf(t)
		file := s.volume(t)
		refused := func(readOnly bool) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if f, err := s.Take(ctx, file, volumeSize, readOnly); err == nil {
				f.Close()
				t.Error("another gets it")
			}
		}
		w := p.onVolume(t, s, file, false)
		refused(false)
		refused(true)
		run(t, use(t, w), "echo kept > /data/file")
		// Its owner's end takes nothing away; the box's own does.
		w.Detach()
		refused(false)
		again, err := p.Recover(t.Context(), w.ID(), w.State())
		if err != nil {
			t.Fatal(err)
		}
		p.destroy(t, again.(box.Lasting))
		one, two := p.onVolume(t, s, file, true), p.onVolume(t, s, file, true)
		refused(false)
		for _, r := range []box.Lasting{one, two} {
			out := run(t, use(t, r), "cat /data/file; echo more >> /data/file || echo refused; mkdir /data/d || echo refused; rm -f /data/file; cat /data/file")
			if strings.Count(out, "refused\n") != 2 || strings.Count(out, "kept\n") != 2 {
				t.Errorf("a reader: %q", out)
			}
		}
		p.destroy(t, one)
		refused(false)
		p.destroy(t, two)
		p.destroy(t, p.onVolume(t, s, file, false))
	})
}

func TestAVolumeIsFullAtItsSize(t *testing.T) {
	needVolumes(t)
	eachTier(t, func(t *testing.T, p *place) {
		s := p.shelf(t)
		file := s.volume(t)
		b := p.onVolume(t, s, file, false)
		g := use(t, b)
		full := func(source string) {
			t.Helper()
			a, err := b.Account(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, h := range a.Limits {
				if h.Limit == "volume" {
					got += h.Source + ";"
				}
			}
			if got != source {
				t.Errorf("limits that were met: %+v, want %q", a.Limits, source)
			}
		}
		full("")
		run(t, g, "head -c 1500000 /dev/zero > /data/some")
		full("")
		run(t, g, "cat /dev/zero > /data/all 2> /dev/null || true")
		full("size of volume data;")
		run(t, g, "rm /data/*")
		out := run(t, g, `cd /data; df -k . | tail -1 | while read a size b; do echo size $size; done
			cat /dev/zero > big 2> why; echo code $?; stat -c 'wrote %s' big; rm big; cat why
			i=0; while true > f$i; do i=$((i+1)); done 2> why2; ls | wc -l; tail -1 why2; echo mine > /workspace/still`)
		t.Logf("%s", out)
		n := func(after string) int64 {
			_, rest, _ := strings.Cut(out, after+" ")
			v, _ := strconv.ParseInt(strings.Fields(rest + " x")[0], 10, 64)
			return v
		}
		if size := n("size") << 10; size < volumeSize || size > volumeSize*104/100+1<<20 {
			t.Errorf("a program is told of %d bytes", size)
		}
		if wrote := n("wrote"); wrote < volumeSize || wrote > volumeSize*103/100+64<<10 || n("code") == 0 {
			t.Errorf("%d bytes of %d fit, with code %d", wrote, volumeSize, n("code"))
		}
		if strings.Count(out, "No space left on device") < 1 {
			t.Error("nobody is told why")
		}
		full("size of volume data;inodes of volume data;")
		a, err := b.Account(t.Context())
		if err != nil || a.Written > 2<<20 {
			t.Errorf("what is on the volume counts as the box's disk: %d, %v", a.Written, err)
		}
		p.destroy(t, b)
	})
}

// What one box leaves on a volume another one finds, and both may be hostile: there
// is nothing of it that reaches beyond the box it is in.
func TestWhatIsOnAVolumeHasNoPower(t *testing.T) {
	needVolumes(t)
	eachTier(t, func(t *testing.T, p *place) {
		s := p.shelf(t)
		file := s.volume(t)
		b := p.onVolume(t, s, file, false)
		out := run(t, use(t, b), `cd /data; ln -s /proc/1/root/etc/shadow up; ln -s ../../../../../../etc dots; ln -s / root
			cp /bin/sh suid; chmod 6755 suid 2>&1; stat -c '%a' suid
			for k in 'b 7 0' 'c 1 3'; do mknod node $k 2>/dev/null && echo made a node; done; mkfifo fifo && echo fifo
			chown 0:0 suid 2>/dev/null && echo chowned; mount -t tmpfs x /data 2>/dev/null && echo mounted; umount /data 2>/dev/null && echo unmounted
			grep ' /data ' /proc/self/mounts`)
		t.Logf("%s", out)
		if strings.Contains(out, "made a node") || strings.Contains(out, "chowned") || strings.Contains(out, "mounted\n") || strings.Contains(out, "6755") || !strings.Contains(out, "fifo\n") {
			t.Errorf("in the box that makes it: %q", out)
		}
		p.destroy(t, b)
		// What a box cannot make is put there by the host, as the worst that a
		// kernel's mistake could have let through.
		s.settled(t, file)
		planted := plant(t, s, file)
		b = p.onVolume(t, s, file, false)
		g := use(t, b)
		out = run(t, g, `cd /data; cat up 2>&1; ls -ld root/. >/dev/null && echo own root; cat dots/hostname; cat disk 2>&1 | head -c 16; ./idplus 2>/dev/null || echo not run; head -c 1 mem 2>&1
			grep ' /data ' /proc/self/mounts`)
		t.Logf("%s", out)
		if strings.Contains(out, ":$") || strings.Contains(out, "root:") || !strings.Contains(out, "sunaba\n") || strings.Contains(out, "uid=0") {
			t.Errorf("in another box: %q", out)
		}
		if name, err := os.Hostname(); err == nil && name != "sunaba" && strings.Contains(out, name) {
			t.Errorf("in another box: %q", out)
		}
		for _, node := range planted {
			if o := run(t, g, fmt.Sprintf("dd if=/data/%s of=/dev/null bs=1 count=1 2>/dev/null && echo read || echo shut", node)); o != "shut\n" {
				t.Errorf("a device node %s is %s", node, o)
			}
		}
		p.destroy(t, b)
	})
}

// plant puts device nodes of the host's first loop device and of its memory,
// and a program with a setuid bit on a volume, by a mount of the host's own. (A node
// of a device that gVisor has itself, such as /dev/zero, works there: it is the
// guest kernel's.) It returns the names of the nodes.
func plant(t *testing.T, s *shelf, file string) []string {
	t.Helper()
	f, err := s.Take(t.Context(), file, volumeSize, false)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dir := t.TempDir()
	s.mountHere(t, file, dir)
	for name, dev := range map[string]int{"disk": 7 << 8, "mem": 1<<8 | 1} {
		kind := uint32(0o020666)
		if name == "disk" {
			kind = 0o060666
		}
		mknod(t, filepath.Join(dir, name), kind, dev)
	}
	id, err := os.ReadFile("/usr/bin/id")
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "idplus")
	if err := os.WriteFile(name, id, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	command(t, "umount", dir)
	return []string{"disk", "mem"}
}

// Nothing in a box has a descriptor of what a volume's file system lies in: whoever
// could write that could have the host's kernel read anything.
func TestNobodyInABoxHasTheBlocksOfAVolume(t *testing.T) {
	needVolumes(t)
	eachTier(t, func(t *testing.T, p *place) {
		s := p.shelf(t)
		file := s.volume(t)
		sp, done := s.with(t, spec(), file, false)
		if mine := blocksOf(t, s, os.Getpid()); len(mine) != 1 {
			t.Fatalf("this process has the file open, and %v is found", mine)
		}
		b := p.create(t, sp)
		done()
		g := use(t, b)
		pid := start(t, g, "sleep", "60").PID
		uid, _ := p.HostUser(b.ID())
		all, err := filepath.Glob("/proc/[0-9]*")
		if err != nil {
			t.Fatal(err)
		}
		looked := 0
		for _, dir := range all {
			st, err := os.Stat(dir)
			if err != nil {
				continue
			}
			status, err := os.ReadFile(dir + "/status") // the folder of who is not dumpable is root's
			if sys, ok := st.Sys().(*syscall.Stat_t); err != nil || !ok || int(sys.Uid) != uid && !strings.Contains(string(status), fmt.Sprintf("\nUid:\t%d\t", uid)) {
				continue
			}
			n, err := strconv.Atoi(filepath.Base(dir))
			if err != nil {
				t.Fatal(err)
			}
			looked++
			if has := blocksOf(t, s, n); len(has) > 0 {
				t.Errorf("process %d has %v", n, has)
			}
		}
		if looked < 2 {
			t.Errorf("%d processes were looked at", looked)
		}
		if mine := blocksOf(t, s, os.Getpid()); len(mine) > 0 {
			t.Errorf("who made the box has %v still", mine)
		}
		run(t, g, fmt.Sprintf("kill %d; ls /dev | grep -e loop -e mapper && exit 1; ls /dev/block 2>/dev/null && exit 1; :", pid))
		p.destroy(t, b)
	})
}

// blocksOf lists what a process has open of a shelf's files and of loop devices.
func blocksOf(t *testing.T, s *shelf, pid int) (has []string) {
	t.Helper()
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		name, err := os.Readlink(fd)
		if err == nil && (strings.HasPrefix(name, s.dir+"/") || strings.HasPrefix(name, "/dev/loop")) {
			has = append(has, name)
		}
	}
	return has
}

// A copy of a box's files is without what is on its volume; what is made from it
// has the volume as it is then.
func TestACopyOfABoxIsWithoutItsVolume(t *testing.T) {
	needVolumes(t)
	eachTier(t, func(t *testing.T, p *place) {
		s := p.shelf(t)
		file := s.volume(t)
		made, done := s.with(t, spec(), file, false)
		b := p.create(t, made)
		done()
		sn := snapper(t, b)
		if err := sn.Snappable(box.SnapshotMemory); box.KindOf(err) != box.Unsupported {
			t.Errorf("of what runs: %v", err)
		}
		run(t, use(t, b), "head -c 4000000 /dev/urandom > /data/first; echo own > /workspace/own")
		copied := p.copyFiles(t, b)
		for name, part := range copied.Parts {
			if st, err := part.Stat(); err != nil || st.Size() > 3<<20 {
				t.Errorf("%s has %d bytes, %v", name, st.Size(), err)
			}
		}
		run(t, use(t, b), "mv /data/first /data/second")
		p.destroy(t, b)
		s.settled(t, file)
		again, done := s.with(t, made, file, false)
		two := p.restore(t, again, copied)
		done()
		if out := run(t, use(t, two), "ls /data | grep -v lost; cat /workspace/own"); out != "second\nown\n" {
			t.Errorf("the copy has %q", out)
		}
		p.destroy(t, two)
		made.Volumes = nil
		made.ID = box.NewID()
		if b, err := p.standing.(box.Restorer).Restore(t.Context(), somebodys(made), copied); box.KindOf(err) != box.Conflict {
			t.Errorf("a copy without the volume: %v, %v", b, err)
		}
	})
}

func TestABoxWithAVolumeIsPausedAndGoesOn(t *testing.T) {
	needVolumes(t)
	eachTier(t, func(t *testing.T, p *place) {
		s := p.shelf(t)
		b := p.onVolume(t, s, s.volume(t), false)
		pauses, ok := b.(box.Pauser)
		if !ok {
			t.Fatalf("%T", b)
		}
		g := use(t, b)
		pid := start(t, g, "sh", "-c", "while :; do echo x >> /data/log; sleep 0.02; done").PID
		run(t, g, "until test -s /data/log; do sleep 0.01; done")
		if err := pauses.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := pauses.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		run(t, g, fmt.Sprintf("a=$(wc -l < /data/log); while [ $(wc -l < /data/log) -le $a ]; do sleep 0.01; done; kill %d 2>/dev/null; :", pid))
		p.destroy(t, b)
	})
}

func TestAnOrdinaryUserIsRefusedAVolumeWithTheReason(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("for an ordinary user: see TestAllOfItHoldsForAnOrdinaryUser")
	}
	eachTier(t, func(t *testing.T, p *place) {
		f, err := host.OpenUnlinked(p.state)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		sp := spec()
		sp.Volumes = []box.Volume{{Name: "data", Target: "/data", Image: f}}
		b, err := p.Create(t.Context(), sp)
		if box.KindOf(err) != box.Unsupported || err == nil || !strings.Contains(err.Error(), "loop device") {
			t.Errorf("%v, %v", b, err)
		}
		if err := p.shelf(t).Usable(); box.KindOf(err) != box.Unsupported || err == nil || !strings.Contains(err.Error(), "loop device") {
			t.Error(err)
		}
	})
}
