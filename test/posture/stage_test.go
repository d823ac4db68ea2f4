package posture

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/internal/host/seccomp"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// stageName is argv[0] of this test binary when it prepares a throw-away stage:
// namespaces of its own, in which something is taken away before sunaba starts.
const stageName = "posture-stage"

func TestMain(m *testing.M) {
	if os.Args[0] == stageName {
		os.Exit(stageMain(os.Args[1]))
	}
	os.Exit(harness.Main(m))
}

// op is one thing that a stage does, all in namespaces of its own.
type op struct {
	// Do is bind (From on To), rbind (with what is mounted below), readonly (To
	// becomes a read-only mount), noexec (likewise), remount (a mount becomes read-only), mount (a
	// file system of type From on To), file, folder, link (make To), write (From into To),
	// drop (capability Number leaves the bounding set), refuse (system call
	// Number gets error Errno, by a filter).
	Do, From, To  string
	Data          string // options of mount
	Number, Errno uint32
}

type stage struct {
	// User asks for a user namespace in which every id is itself, so that
	// settings that each user namespace has of its own can be changed.
	User bool
	// PID asks for a PID namespace with a /proc of its own, for settings that
	// each of those has.
	PID  bool
	Ops  []op
	As   harness.User
	Args []string // Args[0] is sunaba unless it is set
}

// stageMain prepares a stage and becomes sunaba. It never returns on success.
func stageMain(arg string) int {
	runtime.LockOSThread() // capabilities and filters are kept by thread
	var s stage
	err := json.Unmarshal([]byte(arg), &s)
	if err == nil {
		err = syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
	}
	if s.PID {
		s.Ops = append([]op{{Do: "mount", From: "proc", To: "/proc"}}, s.Ops...)
	}
	for _, o := range s.Ops {
		if err == nil {
			err = o.do()
		}
		if err != nil {
			os.Stderr.WriteString("stage: " + o.Do + " " + o.To + ": " + err.Error() + "\n")
			return 1
		}
	}
	if err == nil && s.As == harness.Ordinary {
		if err = syscall.Setgroups(nil); err == nil {
			if err = syscall.Setgid(harness.OrdinaryID); err == nil {
				err = syscall.Setuid(harness.OrdinaryID)
			}
		}
	}
	if err == nil {
		err = syscall.Exec(s.Args[0], s.Args, os.Environ())
	}
	os.Stderr.WriteString("stage: " + err.Error() + "\n")
	return 1
}

func (o op) do() error {
	switch o.Do {
	case "bind":
		return syscall.Mount(o.From, o.To, "", syscall.MS_BIND, "")
	case "rbind":
		return syscall.Mount(o.From, o.To, "", syscall.MS_BIND|syscall.MS_REC, "")
	case "readonly":
		if err := syscall.Mount(o.To, o.To, "", syscall.MS_BIND, ""); err != nil {
			return err
		}
		return syscall.Mount("", o.To, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
	case "remount":
		return syscall.Mount("", o.To, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
	case "noexec":
		if err := syscall.Mount(o.To, o.To, "", syscall.MS_BIND, ""); err != nil {
			return err
		}
		return syscall.Mount("", o.To, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_NOEXEC, "")
	case "mount":
		return syscall.Mount("stage", o.To, o.From, 0, o.Data)
	case "link":
		return os.Symlink(o.From, o.To)
	case "folder":
		return os.Mkdir(o.To, 0o755)
	case "file":
		f, err := os.OpenFile(o.To, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		return f.Close()
	case "write":
		f, err := os.OpenFile(o.To, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString(o.From)
		f.Close()
		return err
	case "drop":
		return prctl(24, uintptr(o.Number)) // PR_CAPBSET_DROP
	case "refuse":
		if err := prctl(38, 1); err != nil { // PR_SET_NO_NEW_PRIVS
			return err
		}
		// Load the call's number, compare, answer; see seccomp(2).
		return seccomp.Install(seccomp.Program{
			{Code: syscall.BPF_LD | syscall.BPF_W | syscall.BPF_ABS},
			{Code: syscall.BPF_JMP | syscall.BPF_JEQ | syscall.BPF_K, K: o.Number, Jf: 1},
			{Code: syscall.BPF_RET | syscall.BPF_K, K: uint32(seccomp.Refuse(syscall.Errno(o.Errno)))},
			{Code: syscall.BPF_RET | syscall.BPF_K, K: uint32(seccomp.Allow)},
		}, seccomp.CallingThread)
	}
	return syscall.ENOSYS
}

func prctl(option, arg uintptr) error {
	if _, _, e := syscall.RawSyscall6(syscall.SYS_PRCTL, option, arg, 0, 0, 0, 0); e != 0 {
		return e
	}
	return nil
}

// on runs sunaba on a stage. The state folder is the user's shared one, unless
// it is given.
func on(t *testing.T, s stage, state string, args ...string) harness.Result {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: a stage is made of mounts and of a user namespace that holds every id")
	}
	if state == "" {
		state = harness.State(t, s.As)
	}
	if len(s.Args) == 0 {
		s.Args = []string{harness.Binary(t)}
	}
	s.Args = append(slices.Clip(s.Args), args...)
	arg, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = []string{stageName, string(arg)}
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent", "SUNABA_STATE=" + state}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if s.PID {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWPID
	}
	if s.User {
		all := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1<<32 - 1}}
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings = all, all
		cmd.SysProcAttr.GidMappingsEnableSetgroups = true
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	start := time.Now()
	err = cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatalf("cannot start stage: %v", err)
	}
	if ctx.Err() != nil {
		t.Fatalf("%q did not end in %v\n%s%s", args, time.Since(start), out.Bytes(), errs.Bytes())
	}
	if bytes.Contains(errs.Bytes(), []byte("stage: ")) {
		t.Fatal(errs.String())
	}
	return harness.Result{Code: cmd.ProcessState.ExitCode(), Stdout: out.String(), Stderr: errs.String(), Took: time.Since(start)}
}
