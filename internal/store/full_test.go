package store

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
)

func TestAFullDiskIsNobodysFaultAndPasses(t *testing.T) {
	s := open(t, t.TempDir())
	s.boxes.SetMaxOpenConns(1) // the bound is a connection's own
	if _, err := s.boxes.Exec("PRAGMA max_page_count = 1"); err != nil {
		t.Fatal(err)
	}
	big := record("a")
	big.Spec = []byte(strings.Repeat("x", 1<<20))
	if err := s.Add(t.Context(), big); box.KindOf(err) != box.Unavailable || !strings.Contains(err.Error(), "disk") {
		t.Errorf("%v", err)
	}
	if _, err := s.boxes.Exec("PRAGMA max_page_count = 100000"); err != nil {
		t.Fatal(err)
	}
	add(t, s, big)
}

// The disk is one of this test's own, in a mount namespace of its own.
func TestAStateFolderWithoutRoomIsNotReadyAndRecoversByItself(t *testing.T) {
	dir := os.Getenv("SUNABA_TEST_SMALL_DISK")
	if dir == "" {
		if os.Geteuid() != 0 {
			t.Skip("an ordinary user cannot mount a small disk; what is done when it is full is the same")
		}
		again := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		again.Env = []string{"SUNABA_TEST_SMALL_DISK=" + t.TempDir()}
		again.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if err := errors.Join(host.PrivateMounts(), syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=700,size=16m")); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir)
	if err := s.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(dir + "/filler")
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	f.Close()
	if err := s.Ready(t.Context()); box.KindOf(err) != box.Unavailable {
		t.Errorf("ready with a full disk: %v", err)
	}
	big := record("a")
	big.Spec = []byte(strings.Repeat("x", 1<<20))
	if err := s.Add(t.Context(), big); box.KindOf(err) != box.Unavailable {
		t.Errorf("added on a full disk: %v", err)
	}
	if _, err := s.Alive(t.Context()); err != nil {
		t.Errorf("what is there cannot be read: %v", err)
	}
	if err := os.Remove(dir + "/filler"); err != nil {
		t.Fatal(err)
	}
	add(t, s, big)
	if err := s.Ready(t.Context()); err != nil {
		t.Error(err)
	}
}
