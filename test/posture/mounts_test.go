package posture

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/internal/posture"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// covered are the entries of /proc that a program of tier process does not see,
// as far as the kernel has them.
func covered() []string {
	return []string{
		"acpi", "asound", "bootconfig", "buddyinfo", "bus", "cmdline", "config.gz", "consoles", "crypto", "diskstats", "driver", "dma", "dynamic_debug", "execdomains", "fb", "fs", "interrupts", "iomem", "ioports", "irq",
		"kallsyms", "kcore", "key-users", "keys", "kmsg", "kpagecgroup", "kpagecount", "kpageflags", "kpti", "latency_stats",
		"locks", "mdstat", "misc", "modules", "mtrr", "pagetypeinfo", "partitions", "pressure", "sched_debug", "schedstat", "scsi",
		"slabinfo", "softirqs", "swaps", "sysrq-trigger", "sysvipc", "timer_list", "timer_stats", "tty", "vmallocinfo", "vmstat", "zoneinfo",
	}
}

// checkMounts wants exactly these mounts in a box with the host image.
func (b *cellBox) checkMounts(t *testing.T) {
	t.Helper()
	outside, err := posture.Read(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	onHost := func(path string) string { return holder(outside.Mounts, path).Type }
	root, store, atime := "erofs", "ext4", "noatime"
	if b.user == harness.Ordinary {
		root, store, atime = "overlay", "tmpfs", "relatime" // the extracted image, set apart
	}
	// Root's boxes have device files of their own.
	device := func(name string) string {
		if b.user == harness.Root {
			return "tmpfs ro,nosuid,noexec,relatime"
		}
		return onHost("/dev/"+name) + " ro,nosuid,noexec"
	}
	want := []string{"/ " + root + " ro,nosuid,nodev"}
	for _, dir := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		if st, err := os.Lstat(dir); err == nil && st.IsDir() {
			want = append(want, dir+" overlay ro,nosuid,nodev") // the host's, set apart
		}
	}
	for _, dir := range []string{"/workspace", "/tmp", "/var/tmp", "/home/user"} {
		want = append(want, dir+" "+store+" rw,nosuid,nodev,"+atime)
	}
	want = append(want, "/proc proc ro,nosuid,nodev,noexec,relatime")
	for _, name := range covered() {
		st, err := os.Lstat("/proc/" + name)
		switch {
		case err != nil:
		case st.IsDir():
			want = append(want, "/proc/"+name+" tmpfs ro,nosuid,nodev,noexec,relatime")
		default:
			want = append(want, "/proc/"+name+" "+device("null")+" null")
		}
	}
	want = append(want, "/sys tmpfs ro,nosuid,nodev,noexec,relatime")
	want = append(want, "/dev tmpfs ro,nosuid,noexec,relatime")
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		want = append(want, "/dev/"+name+" "+device(name)+" "+name)
	}
	want = append(want, "/dev/pts devpts rw,nosuid,noexec,relatime", "/dev/shm tmpfs rw,nosuid,nodev,relatime")

	var got []string
	for _, m := range b.cell.Mounts {
		got = append(got, describe(m))
	}
	slices.Sort(got)
	slices.Sort(want)
	for _, m := range got {
		if !slices.Contains(want, m) {
			t.Errorf("mount %q is there", m)
		}
	}
	for _, m := range want {
		if !slices.Contains(got, m) {
			t.Errorf("mount %q is not there", m)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d mounts, want %d", len(got), len(want))
	}
}

// describe leaves out what a mount of the host brings along: how it keeps times
// of access, and the place of a folder. A file's name stays.
func describe(m posture.Mount) string {
	opts := m.Opts
	fromHost := m.Type != "tmpfs" && m.Type != "proc" && m.Type != "devpts" && !(m.Type == "ext4" && strings.HasPrefix(opts, "rw"))
	if fromHost {
		kept := slices.DeleteFunc(strings.Split(opts, ","), func(o string) bool { return strings.HasSuffix(o, "atime") })
		opts = strings.Join(kept, ",")
	}
	s := fmt.Sprintf("%s %s %s", m.Point, m.Type, opts)
	if name := m.Root[strings.LastIndexByte(m.Root, '/')+1:]; name != "" && "/dev/"+name == m.Point || name == "null" {
		s += " " + name
	}
	return s
}

// holder is the mount that a path lies on.
func holder(mounts []posture.Mount, path string) (best posture.Mount) {
	for _, m := range mounts {
		inside := m.Point == "/" || path == m.Point || strings.HasPrefix(path, m.Point+"/")
		if inside && len(m.Point) >= len(best.Point) {
			best = m
		}
	}
	return best
}
