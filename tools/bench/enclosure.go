package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The enclosure is a PID, mount and network namespace, and a control group in
// every hierarchy, that holds everything a peer starts, daemons and containers
// included. So one account covers all of a peer's cost, daemons cannot touch
// the machine's firewall, and when the enclosure's first process ends nothing
// of them is left.

const cgroupRoot = "/sys/fs/cgroup"

// hierarchy is one mounted tree of control groups.
type hierarchy struct {
	point   string // below cgroupRoot
	fstype  string // cgroup or cgroup2
	options string // controllers, for version 1
	own     string // this process's group in it
}

func hierarchies() ([]hierarchy, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("cannot find control groups: %w", err)
	}
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("cannot find own control group: %w", err)
	}
	var all []hierarchy
	for line := range strings.Lines(string(mounts)) {
		left, right, _ := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if len(l) < 5 || len(r) < 3 || !strings.HasPrefix(r[0], "cgroup") || !strings.HasPrefix(l[4], cgroupRoot) {
			continue
		}
		h := hierarchy{point: l[4], fstype: r[0], own: "/"}
		for _, o := range strings.Split(r[2], ",") {
			if o != "rw" && o != "ro" {
				h.options = strings.TrimPrefix(h.options+","+o, ",")
			}
		}
		for own := range strings.Lines(string(self)) {
			f := strings.SplitN(strings.TrimSpace(own), ":", 3)
			if len(f) == 3 && (f[1] == "" && h.fstype == "cgroup2" || f[1] != "" && f[1] == h.options) {
				h.own = f[2]
			}
		}
		all = append(all, h)
	}
	if len(all) == 0 {
		return nil, errors.New("cannot find control groups: none is mounted")
	}
	return all, nil
}

// group is the enclosure's folder in h. Memory stays below what the caller's own
// group is charged.
func (h hierarchy) group(name string) string {
	if strings.Contains(","+h.options+",", ",memory,") {
		return filepath.Join(h.point, h.own, name)
	}
	return filepath.Join(h.point, name)
}

// enclose runs this program in the role "inside" within a fresh enclosure, and
// removes it afterwards.
func enclose(args []string) error {
	hs, err := hierarchies()
	if err != nil {
		return err
	}
	name := fmt.Sprintf("sunaba-bench-%d", os.Getpid())
	defer func() {
		for _, h := range hs {
			removeGroup(h.group(name))
		}
	}()
	for _, h := range hs {
		if err := os.Mkdir(h.group(name), 0o755); err != nil {
			return fmt.Errorf("cannot make control group: %w", err)
		}
		if strings.Contains(h.options, "cpuset") { // has no value of its own at first
			for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
				v, err := os.ReadFile(filepath.Join(filepath.Dir(h.group(name)), f))
				if err == nil {
					err = write(filepath.Join(h.group(name), f), string(v))
				}
				if err != nil {
					return err
				}
			}
		}
	}
	cmd := exec.Command("/proc/self/exe", append([]string{name}, args...)...)
	cmd.Args[0] = roleInit
	cmd.Env = childEnv()
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		Setpgid:    true, Pdeathsig: syscall.SIGKILL,
	}
	runtime.LockOSThread() // the parent-death signal is tied to it
	defer runtime.UnlockOSThread()
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(interrupts)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot make enclosure: %w", err)
	}
	go func() {
		<-interrupts
		_ = cmd.Process.Kill() // and with it all that it holds
	}()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("cannot measure: the enclosure ended with %w", err)
	}
	return nil
}

// removeGroup removes a group and those below it, once their processes are gone.
func removeGroup(dir string) {
	for range 200 {
		names, _ := os.ReadDir(dir)
		for _, n := range names {
			if n.IsDir() {
				removeGroup(filepath.Join(dir, n.Name()))
			}
		}
		if err := syscall.Rmdir(dir); err == nil || errors.Is(err, syscall.ENOENT) {
			return
		}
		<-time.After(25 * time.Millisecond)
	}
	fmt.Fprintln(os.Stderr, "bench: cannot remove control group", dir)
}

// initMain is the enclosure's first process: it makes the view that those inside
// have, starts the measurement, and reaps what is orphaned.
func initMain(args []string) error {
	runtime.LockOSThread() // the cgroup namespace is this thread's, and its children's
	hs, err := hierarchies()
	if err != nil {
		return err
	}
	name := args[0]
	for _, h := range hs {
		if err := write(h.group(name)+"/cgroup.procs", "0"); err != nil {
			return fmt.Errorf("cannot enter control group: %w", err)
		}
	}
	const newCgroup = 0x02000000 // CLONE_NEWCGROUP, cgroup_namespaces(7)
	if err := syscall.Unshare(newCgroup); err != nil {
		return fmt.Errorf("cannot make cgroup namespace: %w", err)
	}
	if err := view(hs); err != nil {
		return err
	}
	if err := exec1(nil, "ip", "link", "set", "lo", "up"); err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe", args[1:]...)
	cmd.Args[0] = roleInside
	cmd.Env = childEnv()
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot start measurement: %w", err)
	}
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return fmt.Errorf("cannot wait for measurement: %w", err)
		case pid == cmd.Process.Pid && ws.ExitStatus() != 0:
			return fmt.Errorf("the measurement ended with status %#x", int(ws))
		case pid == cmd.Process.Pid:
			return nil
		}
	}
}

// view mounts what belongs to the new namespaces.
func view(hs []hierarchy) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("cannot make mounts private: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("cannot mount /proc: %w", err)
	}
	// Where daemons keep sockets and locks; gone with the enclosure.
	if err := syscall.Mount("run", "/run", "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("cannot mount /run: %w", err)
	}
	for _, h := range slices.Backward(hs) {
		if err := syscall.Unmount(h.point, syscall.MNT_DETACH); err != nil {
			return fmt.Errorf("cannot unmount %s: %w", h.point, err)
		}
	}
	for _, h := range hs {
		if err := syscall.Mount(h.fstype, h.point, h.fstype, 0, h.options); err != nil {
			return fmt.Errorf("cannot mount %s: %w", h.point, err)
		}
	}
	return nil
}

// parkHugetlb takes the last controller from version 2 on a host with both
// versions: crun refuses such a host otherwise. It says why if it cannot.
func parkHugetlb() error {
	const dir = "/run/hugetlb"
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return syscall.Mount("cgroup", dir, "cgroup", 0, "hugetlb")
}

// account reads what everything in the enclosure has used.
type account struct{ cpuFile, cpuUnit, peakFile, statFile, kernelFile string }

func newAccount() (account, error) {
	for _, a := range []account{
		{cgroupRoot + "/cpuacct/cpuacct.usage", "ns", cgroupRoot + "/memory/memory.max_usage_in_bytes", cgroupRoot + "/memory/memory.stat", cgroupRoot + "/memory/memory.kmem.usage_in_bytes"},
		{cgroupRoot + "/cpu,cpuacct/cpuacct.usage", "ns", cgroupRoot + "/memory/memory.max_usage_in_bytes", cgroupRoot + "/memory/memory.stat", cgroupRoot + "/memory/memory.kmem.usage_in_bytes"},
		{cgroupRoot + "/cpu.stat", "us", cgroupRoot + "/memory.peak", cgroupRoot + "/memory.stat", ""},
	} {
		if _, err := a.cpu(); err == nil {
			return a, nil
		}
	}
	return account{}, errors.New("cannot account: neither cpuacct nor cpu.stat is there")
}

func (a account) cpu() (time.Duration, error) {
	b, err := os.ReadFile(a.cpuFile)
	if err != nil {
		return 0, err
	}
	text := strings.TrimPrefix(string(b), "usage_usec ") // first line of cpu.stat
	n, err := strconv.ParseInt(strings.Fields(text)[0], 10, 64)
	if a.cpuUnit == "us" {
		n *= 1000
	}
	return time.Duration(n), err
}

// resetPeak sets the high-water mark back to what is used now, and returns it.
func (a account) resetPeak() (int64, error) {
	if err := write(a.peakFile, "0"); err != nil {
		return 0, err
	}
	return a.peak()
}

func (a account) peak() (int64, error) {
	b, err := os.ReadFile(a.peakFile)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
}

// held is memory that cannot be dropped: anonymous, in tmpfs, and the kernel's
// own for these processes.
func (a account) held() (int64, error) {
	b, err := os.ReadFile(a.statFile)
	if err != nil {
		return 0, err
	}
	var sum int64
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) != 2 {
			continue
		}
		n, _ := strconv.ParseInt(f[1], 10, 64)
		switch f[0] {
		case "total_rss", "total_shmem", "anon", "shmem", "kernel":
			sum += n
		}
	}
	if a.kernelFile == "" {
		return sum, nil
	}
	k, err := os.ReadFile(a.kernelFile)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(k)), 10, 64)
	return sum + n, err
}

// write writes to a file that is there.
func write(name, text string) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
