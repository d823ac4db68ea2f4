package gate

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The witness is started like the gateway and then tries what a gateway that was taken
// over would, in place of its work.
const (
	argvWitness     = "gate-witness"      // the first step
	argvWitnessFree = "gate-witness-free" // no step at all: the control
	argvWitnessIn   = "gate-witness-in"
)

func TestMain(m *testing.M) {
	switch os.Args[0] {
	case argvWitness:
		err := become(append([]string{argvWitnessIn}, os.Args[1:]...)...)
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	case argvWitnessIn:
		if err := narrow(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		witness(os.Args[1:])
	case argvWitnessFree:
		witness(os.Args[1:])
	}
	if code, ok := Dispatch(os.Args); ok {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// witness tells the error number of each try, by descriptor 3.
func witness(args []string) {
	dir, port := args[0], args[1]
	got := map[string]syscall.Errno{}
	try := func(what string, err error) {
		var e syscall.Errno
		if err != nil && !errors.As(err, &e) {
			e = 9999
		}
		got[what] = e
	}
	call := func(what string, nr uintptr, a ...uintptr) uintptr {
		var v [6]uintptr
		copy(v[:], a)
		r, _, e := unix.RawSyscall6(nr, v[0], v[1], v[2], v[3], v[4], v[5])
		got[what] = e
		return r
	}
	file := filepath.Join(dir, "state")
	open := func(name string, flags int) error {
		fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0o600)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
	try("read a file", open(file, unix.O_RDONLY))
	try("write a file", open(file, unix.O_WRONLY))
	try("make a file", open(filepath.Join(dir, "new"), unix.O_CREAT|unix.O_WRONLY))
	try("look at a path", open(file, unix.O_PATH))
	try("list a folder", open(dir, unix.O_DIRECTORY))
	try("read the program", open("/proc/self/exe", unix.O_RDONLY))
	var st unix.Stat_t
	try("stat", unix.Stat(file, &st))
	try("access", unix.Access(file, unix.R_OK))
	try("chmod", unix.Chmod(file, 0o666))
	try("utimes", unix.Utimes(file, make([]unix.Timeval, 2)))
	try("set an attribute", unix.Setxattr(file, "user.x", nil, 0))
	try("truncate", unix.Truncate(file, 0))
	try("rename", unix.Rename(file, file+"2"))
	try("rename back", unix.Rename(file+"2", file))
	try("make a folder", unix.Mkdir(filepath.Join(dir, "d"), 0o700))
	try("link", unix.Symlink("x", filepath.Join(dir, "s")))
	try("change folder", unix.Chdir(dir))
	_, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	try("watch files", err)
	_, err = unix.MemfdCreate("x", unix.MFD_CLOEXEC)
	try("make a file in memory", err)
	try("mount", unix.Mount("none", dir, "tmpfs", 0, ""))
	try("unshare", unix.Unshare(unix.CLONE_NEWUSER))
	try("signal the parent", unix.Kill(os.Getppid(), 0))
	try("signal a thread of the parent", unix.Tgkill(os.Getppid(), os.Getppid(), 0))
	try("trace the parent", unix.PtraceAttach(os.Getppid()))
	_, err = unix.PidfdOpen(os.Getppid(), 0)
	try("hold the parent", err)
	socket := func(what string, family, kind, protocol int) {
		fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
		if err == nil {
			unix.Close(fd)
		}
		try(what, err)
	}
	socket("a UNIX socket", unix.AF_UNIX, unix.SOCK_STREAM, 0)
	socket("a packet socket", unix.AF_PACKET, unix.SOCK_RAW, 0)
	socket("a raw socket", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP)
	socket("a vsock", unix.AF_VSOCK, unix.SOCK_STREAM, 0)
	socket("netlink for filters", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER)
	socket("netlink for audit", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT)
	_, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	try("a pair of sockets", err)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	if err == nil {
		err = unix.Listen(fd, 1)
	}
	try("listen", err)
	_, err = unix.IoctlGetInt(2, unix.TIOCGPGRP)
	try("control a terminal", err)
	id := call("shared memory", unix.SYS_SHMGET, 0, 4096, unix.IPC_CREAT|0o600)
	if got["shared memory"] == 0 {
		_, _ = unix.SysvShmCtl(int(id), unix.IPC_RMID, nil)
	}
	call("a ring", unix.SYS_IO_URING_SETUP, 1, 0)
	call("a program in the kernel", unix.SYS_BPF, 0, 0, 0)
	call("keys", unix.SYS_KEYCTL, unix.KEYCTL_GET_KEYRING_ID, 0xfffffffd, 0)
	call("memory of the parent", unix.SYS_PROCESS_VM_READV, uintptr(os.Getppid()), 0, 0, 0, 0, 0)
	cmd := exec.Command("/bin/true")
	cmd.Env = []string{}
	try("start a program", cmd.Run())
	if pid := call("fork", unix.SYS_CLONE, uintptr(unix.SIGCHLD)); got["fork"] == 0 {
		if pid == 0 {
			unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
		_, _ = unix.Wait4(int(pid), nil, 0, nil)
	}
	// What it is for.
	c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
	if err == nil {
		_, err = c.Write([]byte("x"))
	}
	try("dial", err)
	u, err := net.Dial("udp", "127.0.0.1:9")
	if err == nil {
		u.Close()
	}
	try("dial by datagrams", err)
	socket("netlink for routes", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)
	started := make(chan struct{})
	go func() { runtime.LockOSThread(); close(started) }()
	<-started
	try("start a thread", nil)

	b, err := json.Marshal(got)
	if err == nil {
		_, err = os.NewFile(3, "out").Write(b)
	}
	if err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

func TestAGatewayThatWasTakenOverCannotDoWhatItsUserCan(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	tried := func(how string) map[string]syscall.Errno {
		t.Helper()
		dir := t.TempDir()
		if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.WriteFile(filepath.Join(dir, "state"), []byte("secret"), 0o600)); err != nil {
			t.Fatal(err)
		}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		cmd := exec.Command("/proc/self/exe")
		var errs strings.Builder
		cmd.Args, cmd.Env, cmd.ExtraFiles, cmd.Stderr = []string{how, dir, port}, []string{}, []*os.File{w}, &errs
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if os.Getuid() == 0 { // as the gateway of an ordinary user, whose files these are
			const user = 54323
			if err := errors.Join(os.Chown(dir, user, user), os.Chown(filepath.Join(dir, "state"), user, user)); err != nil {
				t.Fatal(err)
			}
			cmd.SysProcAttr.Credential = &syscall.Credential{Uid: user, Gid: user}
		}
		err = cmd.Run()
		w.Close()
		if err != nil {
			t.Fatalf("%v: %s", err, errs.String())
		}
		var got map[string]syscall.Errno
		if err := json.NewDecoder(r).Decode(&got); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "state")); how == argvWitness && (err != nil || string(b) != "secret") {
			t.Errorf("the file holds %q, %v", b, err)
		}
		return got
	}
	mayStill := []string{"dial", "dial by datagrams", "netlink for routes", "start a thread"} // what it is for
	free, in := tried(argvWitnessFree), tried(argvWitness)
	could := 0
	for what, e := range in {
		switch may := slices.Contains(mayStill, what); {
		case may && e != 0:
			t.Errorf("it cannot %s: %v", what, e)
		case !may && e == 0:
			t.Errorf("it can: %s", what)
		case !may && free[what] == 0:
			could++
		}
	}
	if len(in) != len(free) || could < 25 {
		t.Errorf("%d tries, of which %d work without confinement", len(in), could)
	}
	t.Logf("%d tries, of which %d work without confinement", len(in), could)
}
