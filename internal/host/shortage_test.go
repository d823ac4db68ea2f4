package host

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
)

func TestAShortageIsToldFromWhatItHides(t *testing.T) {
	for err, want := range map[error]bool{
		syscall.EMFILE: true, syscall.ENFILE: true, syscall.ENOMEM: true, syscall.ENOSPC: true, syscall.EAGAIN: true, ErrBusy: true,
		syscall.ECONNREFUSED: false, syscall.ENOENT: false, ErrNotThere: false, nil: false,
	} {
		if err != nil {
			err = fmt.Errorf("cannot do it: %w", &os.SyscallError{Syscall: "x", Err: err})
		}
		if IsShortage(err) != want {
			t.Errorf("%v: %v", err, !want)
		}
	}
}

// The kernel drops files for which there is no number left, and says so in a flag.
func TestFilesThatFindNoRoomAreAShortage(t *testing.T) {
	a, theirs, err := LinkPair()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := NewLink(theirs)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if err := a.Send([]byte("x"), null); err != nil {
		t.Fatal(err)
	}
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 1, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	body, files, err := b.Receive()
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, syscall.EMFILE) || len(files) != 0 {
		t.Errorf("%d files, %v", len(files), err)
	}
	if string(body) != "x" {
		t.Errorf("the message without its file is %q", body)
	}
	if err := a.Send([]byte("y"), null); err != nil {
		t.Fatal(err)
	}
	body, files, err = b.Receive()
	if string(body) != "y" || len(files) != 1 || err != nil {
		t.Errorf("the next message is %q with %d files, %v", body, len(files), err)
	}
	for _, f := range files {
		f.Close()
	}
}
