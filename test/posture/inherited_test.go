package posture

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// What the caller of sunaba has left open, a terminal's, a key's, a database's,
// must reach no process of a box and not the box itself (CVE-2024-21626).
func TestADescriptorOfTheCallersReachesNothing(t *testing.T) {
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		for _, tier := range built() {
			t.Run(string(tier), func(t *testing.T) { inheritNothing(t, u, tier) })
		}
	})
}

func inheritNothing(t *testing.T, u harness.User, tier box.TierName) {
	harness.NothingLeft(t)
	secret, err := os.OpenFile(filepath.Join(harness.Dir(t, u), "secret"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := harness.Command(ctx, t, u, runOn(tier, "--", "sh", "-c", "ls -l /proc/self/fd; echo ready; read end")...)
	cmd.ExtraFiles = []*os.File{nil, secret, nil, secret} // 4 and 6 of the front
	var errs bytes.Buffer                                 // to be read when it has ended
	cmd.Stderr = &errs
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var seen strings.Builder
	buf := make([]byte, 4096)
	for !strings.Contains(seen.String(), "ready") {
		n, err := out.Read(buf)
		seen.Write(buf[:n])
		if err != nil {
			_ = cmd.Wait()
			t.Fatalf("the box ended early: %v; %v\n%s%s", err, cmd.ProcessState, seen.String(), errs.String())
		}
	}
	if strings.Contains(seen.String(), "secret") {
		t.Errorf("the box sees it:\n%s", seen.String())
	}
	front, others := holders(t, cmd.Process.Pid, secret.Name())
	// What the front starts has it until it is a program of its own: nobody keeps it.
	for deadline := time.Now().Add(time.Minute); len(others) > 0 && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
		front, others = holders(t, cmd.Process.Pid, secret.Name())
	}
	if front != 2 {
		t.Errorf("control: the front holds it %d times, not twice", front)
	}
	if len(others) > 0 {
		t.Errorf("held by %q", others)
	}
	in.Close()
	_, _ = io.Copy(io.Discard, out)
	if err := cmd.Wait(); err != nil && cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("%v: %s", err, errs.String())
	}
}

// holders counts the descriptors of path in the front, and names every other
// process of this host but the test that has one.
func holders(t *testing.T, front int, path string) (mine int, others []string) {
	t.Helper()
	fds, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err != nil || target != path {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(fd, "/")[2])
		if err != nil {
			t.Fatal(err)
		}
		switch pid {
		case os.Getpid():
		case front:
			mine++
		default:
			comm, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
			others = append(others, fd+" "+string(comm))
		}
	}
	return mine, others
}
