package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/cgroup"
	"github.com/sunaba-dev/sunaba/internal/host/hostfs"
	"github.com/sunaba-dev/sunaba/internal/host/trial"
	"github.com/sunaba-dev/sunaba/internal/image"
	"github.com/sunaba-dev/sunaba/internal/tier/frame"
)

// usualDisk is the disk limit of a box whose caller names none, in bytes.
const usualDisk = 1 << 30

// State looks at the folder where images, stores and run folders live. Weak is
// what a box of this tier says if that folder is in memory.
func State(dir string, weak []string) Step {
	err := host.OwnDir(dir)
	var free int64
	var memory bool
	if err == nil {
		free, err = freeSpace(dir)
	}
	if err == nil {
		memory, err = host.OnMemory(dir)
	}
	if err != nil {
		return NoState(err)
	}
	s := Needed(trial.Works(StepState, fmt.Sprintf("%s is ours alone, on a disk, %d MiB free", dir, free>>20)))
	if free < usualDisk {
		s.Advice = fmt.Sprintf("free some space: a box may write %d MiB by default", usualDisk>>20)
	}
	if memory {
		s.Detail = fmt.Sprintf("%s is ours alone, in memory (tmpfs), %d MiB free", dir, free>>20)
	}
	if len(weak) > 0 {
		s.State, s.Weak, s.Detail = box.Weak, weak, fmt.Sprintf("%s is in memory (tmpfs), %d MiB free", dir, free>>20)
		s.Advice = "name a folder on a disk: --state DIR or SUNABA_STATE"
	}
	return s
}

// NoState is the step of a state folder that cannot be used.
func NoState(why error) Step { return Needed(trial.Missing(StepState, why, AdviceState(why))) }

// NoTier is the step that a tier was not made for.
func NoTier(why error) Step {
	const name = "program in memory"
	switch {
	case errors.Is(why, host.ErrNoExec):
		return Needed(trial.Missing(name, why, adviceNoExec()))
	case errors.Is(why, syscall.EFBIG): // setrlimit(2), RLIMIT_FSIZE
		return Needed(trial.Missing(name, why, "let files be larger: ulimit -f unlimited"))
	}
	return NoState(why)
}

func adviceNoExec() string {
	return "let files in memory be executed by those who ask for it: sysctl -w vm.memfd_noexec=1 (now " + trial.OrUnknown(trial.Sysctl("vm.memfd_noexec")) + ")"
}

// AdviceState says what to do about the state folder.
func AdviceState(err error) string {
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return "name a folder that you may write to, on a disk: --state DIR or SUNABA_STATE"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "free some space, or name a folder on another disk: --state DIR or SUNABA_STATE"
	}
	return "name a folder of your own, on a disk, that nobody else may write to: --state DIR or SUNABA_STATE"
}

// freeSpace is how many bytes an ordinary user may still write in dir.
func freeSpace(dir string) (int64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("cannot look at file system of %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// Groups tries the control groups, nil for none. Root's boxes need them; an
// ordinary user's boxes do without, and say so in the words of weakMemory and
// weakCPU.
func Groups(ctx context.Context, m *cgroup.Manager, weakMemory, weakCPU string) []Step {
	const prefix = "control group: "
	if m == nil {
		return []Step{{Step: trial.Missing(prefix+"all", errors.New("not looked for"), ""), Needed: host.IsRoot()}}
	}
	var out []Step
	steps := m.Probe(ctx)
	ok := map[string]bool{}
	for _, s := range steps {
		ok[s.Name] = s.State != box.Missing
	}
	// What a box asks for first: without these there is no group at all.
	group := ok["memory limit"] && ok["pids limit"] && ok["process membership"]
	for _, s := range steps {
		one := Step{Step: s, Needed: host.IsRoot()}
		if s.State == box.Missing && !host.IsRoot() {
			one.State = box.Weak
			switch {
			case s.Name == "cpu limit":
				one.Weak = []string{weakCPU}
			case !group:
				one.Weak = []string{weakMemory, weakCPU}
			}
		}
		one.Name = prefix + s.Name
		out = append(out, one)
	}
	// What the group's life was not long enough for.
	for _, name := range []string{"process membership", "kill", "counters", "removal"} {
		if _, tried := ok[name]; tried {
			continue
		}
		one := NotTried(prefix+name, prefix+"process membership")
		if one.Needed = host.IsRoot(); !host.IsRoot() {
			one.State = box.Weak
		}
		out = append(out, one)
	}
	return out
}

// IDMap makes the kind of mount in which a folder of some user's is the box
// user's, of dir. Only root's boxes need it, and only for --mount.
func IDMap(dir string, uid int) Step {
	const name = "mounts with other owners"
	err := func() error {
		f, _, err := hostfs.OpenMountSource(dir, nil)
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
		return Step{Step: trial.Missing(name, fmt.Errorf("needed for --mount only: %w", err),
			"mount folders of a file system that supports idmapped mounts (ext4, xfs, btrfs; Linux 5.12 or later), or give files with --copy and --input")}
	}
	return Step{Step: trial.Works(name, "idmapped mount made on the state folder's file system")}
}

// Terminal makes a pseudo-terminal.
func Terminal() Step {
	const name = "terminal"
	master, replica, err := host.OpenPTY(box.WindowSize{Rows: 24, Cols: 80})
	if err != nil {
		return Step{Step: trial.Missing(name, fmt.Errorf("needed for interactive runs (-t) only: %w", err),
			"mount a devpts and link /dev/ptmx to it (mount -t devpts -o ptmxmode=666 devpts /dev/pts; ln -s pts/ptmx /dev/ptmx)")}
	}
	master.Close()
	replica.Close()
	return Step{Step: trial.Works(name, "pseudo-terminal made")}
}

// HostImage opens the skeleton image of a run without mounts. Extracted says
// that the tier shows the tree of an image in place of mounting it.
func HostImage(ctx context.Context, i frame.Images, extracted bool) Step {
	const name = "image host"
	img, err := i.Store.Host(ctx, image.HostOptions{Workdir: image.DefaultWorkdir, Hostname: image.DefaultHostname, ExtraPrefixes: i.Prefixes})
	if err != nil {
		return Needed(trial.Missing(name, err, "see the message; --image base may work"))
	}
	defer img.Close()
	if !extracted {
		return Needed(trial.Works(name, "made and verified, "+img.Digest))
	}
	tree, err := i.Store.Tree(ctx, img, nil)
	if err != nil {
		return Needed(trial.Missing(name, err, AdviceState(err)))
	}
	tree.Close()
	return Needed(trial.Works(name, "made, extracted and verified, "+img.Digest))
}

// BaseImage looks whether there is a base image or what to make it from. Making
// it takes too long for a probe.
func BaseImage(store *image.Store) Step {
	const name = "image base"
	infos, err := store.Images()
	if err != nil {
		return Step{Step: trial.Missing(name, err, AdviceState(err))}
	}
	for _, info := range infos {
		if info.Name == box.ImageBase {
			return Step{Step: trial.Works(name, fmt.Sprintf("made %s, %d MiB, %s", info.Built.Format("2006-01-02"), info.Size>>20, info.Digest))}
		}
	}
	from := "the packages that dpkg knows"
	if _, err := os.Stat("/var/lib/dpkg/status"); err != nil {
		from = "a list of paths"
	}
	return Step{Step: trial.Works(name, "not made yet; the first --image base makes it from "+from)}
}

// Agent says which program is the agent; the whole box runs it.
func Agent(agent *io.SectionReader) Step {
	const name = "agent"
	self, err := os.Stat(host.SelfExe)
	switch {
	case agent == nil:
		return Needed(trial.Missing(name, errors.New("there is none"), "build with make"))
	case err == nil && self.Size() == agent.Size():
		s := Needed(trial.Works(name, fmt.Sprintf("sunaba itself, %d MiB: starts more slowly", agent.Size()>>20)))
		s.Advice = "build with make, which makes a small agent and builds it in"
		return s
	}
	return Needed(trial.Works(name, fmt.Sprintf("built in, %d KiB", agent.Size()>>10)))
}
