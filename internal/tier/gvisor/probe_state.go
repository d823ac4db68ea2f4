package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/hostfs"
	"github.com/sunaba-dev/sunaba/internal/image"
)

// probeState looks at the folder where images, stores and run folders live.
func (t *Tier) probeState() step {
	s := step{needed: true}
	dir := t.cfg.State
	err := host.OwnDir(dir)
	var free int64
	if err == nil {
		free, err = freeSpace(dir)
	}
	if err != nil {
		s.Step = missing(stepState, err, adviceState(err))
		return s
	}
	s.Step = works(stepState, fmt.Sprintf("%s is ours alone, on a disk, %d MiB free", dir, free>>20))
	if s.weak = t.weakStore(); len(s.weak) > 0 {
		s.State, s.Detail = box.Weak, fmt.Sprintf("%s is in memory (tmpfs), %d MiB free", dir, free>>20)
		s.Advice = "name a folder on a disk: --state DIR or SUNABA_STATE"
	} else if free < usualDisk {
		s.Advice = fmt.Sprintf("free some space: a box may write %d MiB by default", usualDisk>>20)
	}
	return s
}

// freeSpace is how many bytes an ordinary user may still write in dir.
func freeSpace(dir string) (int64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("cannot look at file system of %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// probeStore makes the file behind a writable layer, writes to it, and reads
// back that it has no name.
func (t *Tier) probeStore() step {
	const name = "unlinked store"
	s := step{needed: true}
	err := func() error {
		f, err := host.OpenUnlinked(t.StoreDir())
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err := f.WriteAt(make([]byte, 4096), 1<<20); err != nil {
			return fmt.Errorf("cannot write to store: %w", err)
		}
		st, err := f.Stat()
		if err != nil {
			return fmt.Errorf("cannot look at store: %w", err)
		}
		if sys, ok := st.Sys().(*syscall.Stat_t); !ok || sys.Nlink != 0 {
			return errors.New("cannot make store: it has a name")
		}
		return nil
	}()
	if err != nil {
		s.Step = missing(name, err, adviceState(err))
		return s
	}
	s.Step = works(name, "a file without a name was made and written to")
	return s
}

// probeIDMap makes the kind of mount in which a folder of some user's is the
// box user's. Only root's boxes need it, and only for --mount.
func (t *Tier) probeIDMap(uid int) step {
	const name = "mounts with other owners"
	err := func() error {
		f, _, err := hostfs.OpenMountSource(t.cfg.State, nil)
		if err != nil {
			return err
		}
		defer f.Close()
		to := []hostfs.IDMap{{From: 0, To: uint32(uid)}}
		tree, err := hostfs.CloneMount(f, hostfs.MountAttr{ReadOnly: true, Users: to, Groups: to})
		if err != nil {
			return err
		}
		return tree.Close()
	}()
	if err != nil {
		return step{Step: missing(name, fmt.Errorf("needed for --mount only: %w", err),
			"mount folders of a file system that supports idmapped mounts (ext4, xfs, btrfs; Linux 5.12 or later), or give files with --copy and --input")}
	}
	return step{Step: works(name, "idmapped mount made on the state folder's file system")}
}

// probeTerminal makes a pseudo-terminal.
func probeTerminal() step {
	const name = "terminal"
	master, replica, err := host.OpenPTY(box.WindowSize{Rows: 24, Cols: 80})
	if err != nil {
		return step{Step: missing(name, fmt.Errorf("needed for interactive runs (-t) only: %w", err),
			"mount a devpts and link /dev/ptmx to it (mount -t devpts -o ptmxmode=666 devpts /dev/pts; ln -s pts/ptmx /dev/ptmx)")}
	}
	master.Close()
	replica.Close()
	return step{Step: works(name, "pseudo-terminal made")}
}

// probeHostImage opens the skeleton image of a run without mounts.
func (t *Tier) probeHostImage(ctx context.Context) step {
	const name = "image host"
	img, err := t.cfg.Images.Store.Host(ctx, image.HostOptions{Workdir: image.DefaultWorkdir, Hostname: image.DefaultHostname, ExtraPrefixes: t.cfg.Images.Prefixes})
	if err != nil {
		return step{needed: true, Step: missing(name, err, "see the message; --image base may work")}
	}
	img.Close()
	return step{needed: true, Step: works(name, "made and verified, "+img.Digest)}
}

// probeBaseImage looks whether there is a base image or what to make it from.
// Making it takes too long for a probe.
func (t *Tier) probeBaseImage() step {
	const name = "image base"
	infos, err := t.cfg.Images.Store.Images()
	if err != nil {
		return step{Step: missing(name, err, adviceState(err))}
	}
	for _, info := range infos {
		if info.Name == box.ImageBase {
			return step{Step: works(name, fmt.Sprintf("made %s, %d MiB, %s", info.Built.Format("2006-01-02"), info.Size>>20, info.Digest))}
		}
	}
	from := "the packages that dpkg knows"
	if _, err := os.Stat("/var/lib/dpkg/status"); err != nil {
		from = "a list of paths"
	}
	return step{Step: works(name, "not made yet; the first --image base makes it from "+from)}
}

// probeAgent says which program will collect files; the whole box runs it.
func (t *Tier) probeAgent() step {
	const name = "agent"
	s := step{needed: true, Step: works(name, fmt.Sprintf("built in, %d KiB", len(t.cfg.Agent)>>10))}
	self, err := os.Stat(host.SelfExe)
	switch {
	case len(t.cfg.Agent) == 0:
		s.Step = missing(name, errors.New("there is none"), "build with make")
	case err == nil && self.Size() == int64(len(t.cfg.Agent)):
		s.Step = works(name, fmt.Sprintf("sunaba itself, %d MiB: starts more slowly", len(t.cfg.Agent)>>20))
		s.Advice = "build with make, which makes a small agent and builds it in"
	}
	return s
}
