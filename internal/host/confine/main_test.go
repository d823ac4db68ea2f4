package confine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// inside is the first argument of this test binary when it runs again as one of
// the children below; the second names it, the third is its JSON argument.
const inside = "inside-the-confines"

func TestMain(m *testing.M) {
	if len(os.Args) != 4 || os.Args[1] != inside {
		os.Exit(m.Run())
	}
	child := map[string]func(arg []byte) error{
		"become": become, "witness": witness, "victim": victim, "starter": starter, "keys": keys, "drop": dropAndShow,
	}[os.Args[2]]
	if err := child([]byte(os.Args[3])); err != nil {
		fmt.Fprint(os.Stderr, err)
		os.Exit(3)
	}
	os.Exit(0)
}

// self is the test binary, for a user who cannot reach its folder, too.
const self = "/proc/self/exe"

// command makes a child of the given kind.
func command(kind string, arg any) *exec.Cmd {
	b, err := json.Marshal(arg)
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(self, inside, kind, string(b))
	cmd.Env = []string{}
	return cmd
}

// in runs the command as another user, or in another way.
type in struct {
	name string
	attr *syscall.SysProcAttr
}

// everyone is root, an ordinary user, and the first process of a user
// namespace with the right to drop rights, as far as the caller may be them.
func everyone(t *testing.T) []in {
	t.Helper()
	one := []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Geteuid(), Size: 1}}
	ns := &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, UidMappings: one, GidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getegid(), Size: 1}},
		Credential: &syscall.Credential{Uid: 1000, Gid: 1000, NoSetGroups: true}, AmbientCaps: []uintptr{8}, // CAP_SETPCAP
	}
	list := []in{{"the caller", &syscall.SysProcAttr{}}}
	try := exec.Command("/bin/true")
	try.Env, try.SysProcAttr = []string{}, ns
	if err := try.Run(); err != nil {
		t.Logf("not tried in a user namespace, which this user may not make: %v", err)
	} else {
		list = append(list, in{"a user namespace", ns})
	}
	if os.Geteuid() == 0 {
		list = append(list, in{"an ordinary user", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}})
	}
	return list
}

// output is what a child wrote.
func output(t *testing.T, cmd *exec.Cmd) []byte {
	t.Helper()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	return text
}

// victim lives until its standard input ends, as the same user in the same way.
func startVictim(t *testing.T, attr *syscall.SysProcAttr) int {
	t.Helper()
	cmd := command("victim", nil)
	cmd.SysProcAttr = attr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Wait()
	})
	if _, err := io.ReadFull(stdout, make([]byte, 2)); err != nil { // it is up
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

func victim([]byte) error {
	fmt.Println("x")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// systemFolders are those of a host that programs run from, as far as it has
// them.
func systemFolders() (out []string) {
	for _, p := range []string{"/usr", "/bin", "/lib", "/lib64", "/etc", "/proc"} {
		if r, err := filepath.EvalSymlinks(p); err == nil {
			out = append(out, r)
		}
	}
	return out
}
