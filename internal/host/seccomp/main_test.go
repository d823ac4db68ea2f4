package seccomp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// inside is the first argument of this test binary when it runs again as the
// program that is filtered; the second names one of the children below.
const inside = "inside-the-filter"

func TestMain(m *testing.M) {
	if len(os.Args) < 4 || os.Args[1] != inside {
		os.Exit(m.Run())
	}
	runtime.LockOSThread()
	if os.Args[3] != "unfiltered" {
		if err := filterSelf(os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	child := map[string]func(args []string) error{
		"call": callAll, "refused": callRefused, "32-bit": call32, "x32": callX32, "exec": execProgram, "threads": threadModes, "unprotected": installWithoutNoNewPrivs,
	}[os.Args[2]]
	if err := child(os.Args[4:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	os.Exit(0)
}

func filterSelf(scope string) error {
	p, err := Compile(runtime.GOARCH)
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	s := CallingThread
	if scope == "all threads" {
		s = AllThreads
	}
	return Install(p, s)
}

// run is one execution of this test binary as a child.
type run struct {
	name     string
	filtered string // "unfiltered", "this thread" or "all threads"
	uid      int    // 0 for whoever runs the test
	args     []string
	env      []string
}

// start runs a child in a session of its own and returns what it wrote.
func (r run) start() ([]byte, *os.ProcessState, error) {
	cmd := exec.Command("/proc/self/exe", append([]string{inside, r.name, r.filtered}, r.args...)...)
	cmd.Env = append([]string{}, r.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if r.uid != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(r.uid), Gid: uint32(r.uid)}
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("child %q: %w: %s", r.name, err, errs.String())
	}
	return out.Bytes(), cmd.ProcessState, err
}

// answers runs a child that writes a JSON object of error numbers.
func (r run) answers(t *testing.T) map[string]unix.Errno {
	t.Helper()
	out, _, err := r.start()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]unix.Errno{}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	return got
}

// users are the identities to try: the caller's, and an ordinary one if the
// caller is root.
func users() []int {
	if os.Geteuid() == 0 {
		return []int{0, 65534}
	}
	return []int{0}
}
