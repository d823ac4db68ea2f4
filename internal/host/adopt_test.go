package host

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// sleeper is a process of this user's, as an earlier program may have left it.
func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.Env, cmd.Dir = []string{}, "/"
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

func TestOnlyTheVeryProcessIsAdopted(t *testing.T) {
	cmd := sleeper(t)
	id, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*Identity)
		uid    int
		gone   bool
	}{
		"another start": {func(i *Identity) { i.Start++ }, os.Getuid(), true},
		"another boot":  {func(i *Identity) { i.Boot = "x" }, os.Getuid(), true},
		"nobody":        {func(i *Identity) { i.PID = 1 << 22 }, os.Getuid(), true},
		"init":          {func(i *Identity) { i.PID = 1 }, os.Getuid(), false},
		"group":         {func(i *Identity) { i.PID = -i.PID }, os.Getuid(), false},
		"another user":  {func(*Identity) {}, os.Getuid() + 1, false},
	} {
		wrong := id
		c.change(&wrong)
		if _, err := Adopt(wrong, c.uid); err == nil || errors.Is(err, ErrNotThere) != c.gone {
			t.Errorf("%s: %v", name, err)
		}
	}
	child, err := Adopt(id, os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-child.Done():
		t.Fatal("it has ended at once")
	case <-time.After(20 * time.Millisecond):
	}
	child.Kill()
	select {
	case <-child.Done(): // though nobody has waited for it yet
	case <-time.After(time.Minute):
		t.Error("its end was not noticed")
	}
	child.Release()
	child.Kill() // of nobody
}

func TestAProcessThatIsReleasedLivesOn(t *testing.T) {
	cmd := sleeper(t)
	id, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	child, err := Adopt(id, os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	child.Release()
	select {
	case <-child.Done():
		t.Error("a process that was given up has ended")
	case <-time.After(20 * time.Millisecond):
	}
	if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Error(err)
	}
}

func TestLinksBeginAtANameThatMayBeLong(t *testing.T) {
	dir := t.TempDir()
	for range 4 { // beyond what a socket's own name can be
		dir += "/a-folder-with-a-name-of-forty-characters"
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := DialAt(dir, "link"); err == nil {
		t.Fatal("somebody is there")
	}
	f, err := ListenAt(dir, "link")
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(dir + "/link"); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v", st.Mode(), err)
	}
	if !IsListening(f) {
		t.Error("it does not listen")
	}
	early, err := DialAt(dir, "link") // before anybody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer early.Close()
	l, err := NewLinks(f)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	if err := early.Send([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if b, _, err := theirs.Receive(); err != nil || string(b) != "x" {
		t.Errorf("received %q, %v", b, err)
	}
	// Nobody waits for ever for one who does not accept.
	for range 100 {
		var again *Link
		if again, err = DialAt(dir, "link"); err != nil {
			break
		}
		defer again.Close()
	}
	if !errors.Is(err, ErrBusy) {
		t.Errorf("a queue that is full: %v", err)
	}
	l.Close()
	if _, err := DialAt(dir, "link"); err == nil {
		t.Error("nobody is there, and yet")
	}
}

func TestOnlyAConnectedByteStreamIsOne(t *testing.T) {
	a, b, err := StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	c, err := StreamConn(a)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := b.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1)
	if _, err := c.Read(buf); err != nil || buf[0] != 'x' {
		t.Errorf("read %q, %v", buf, err)
	}
	socket := func(domain, kind int) *os.File {
		fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return os.NewFile(uintptr(fd), "socket")
	}
	listening, err := ListenAt(t.TempDir(), "x")
	if err != nil {
		t.Fatal(err)
	}
	packets, other, err := PacketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for name, f := range map[string]*os.File{
		"not connected": socket(unix.AF_UNIX, unix.SOCK_STREAM), "another family": socket(unix.AF_INET, unix.SOCK_STREAM),
		"listening": listening, "packets": packets, "a pipe": r,
	} {
		if c, err := StreamConn(f); err == nil {
			c.Close()
			t.Errorf("%s: taken for a stream", name)
		}
	}
}

func TestAReaderThatIsBehindIsAnError(t *testing.T) {
	a, b, err := PacketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	defer b.Close()
	for range 100_000 {
		if err = SendFile(a, b); err != nil {
			break
		}
	}
	if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ETOOMANYREFS) {
		t.Errorf("a queue that is full: %v", err)
	}
}
