package wire

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/internal/host"
)

// lasting is the far end of a box that lasts, and the folder where fronts come.
func lasting(t *testing.T, handle Handler) (dir string, first *Conn, s *Server, over chan struct{}) {
	t.Helper()
	dir = t.TempDir()
	f, err := host.ListenAt(dir, "link")
	if err != nil {
		t.Fatal(err)
	}
	first = dial(t, dir)
	if s, err = Open(f); err != nil {
		t.Fatal(err)
	}
	over = make(chan struct{})
	go func() {
		defer close(over)
		s.Serve(handle)
	}()
	t.Cleanup(func() { s.End(); <-over })
	return dir, first, s, over
}

func dial(t *testing.T, dir string) *Conn {
	t.Helper()
	link, err := host.DialAt(dir, "link")
	if err != nil {
		t.Fatal(err)
	}
	c := NewConn(link)
	t.Cleanup(c.Close)
	return c
}

func call(t *testing.T, c *Conn, op string, out any) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	return c.Call(ctx, op, struct{}{}, out)
}

func echo(req Request, _ []*os.File) (any, error) {
	if req.Op == "fails" {
		return nil, errors.New("it fails")
	}
	return struct{}{}, nil
}

func isOver(over chan struct{}) bool {
	select {
	case <-over:
		return true
	case <-time.After(2 * time.Minute):
		return false
	}
}

func TestAFrontThatDiesBeforeItsBoxStandsTakesItAlong(t *testing.T) {
	_, first, _, over := lasting(t, echo)
	if err := call(t, first, "fails", nil); err == nil {
		t.Error("what fails succeeded")
	}
	first.Close()
	if !isOver(over) {
		t.Error("a box that nobody has set up goes on")
	}
}

func TestABoxThatStandsOutlivesItsFronts(t *testing.T) {
	dir, front, s, over := lasting(t, echo)
	for range 5 {
		if err := call(t, front, "setup", nil); err != nil {
			t.Fatal(err)
		}
		front.Close()
		front = dial(t, dir)
	}
	select {
	case <-over:
		t.Error("it has ended")
	default:
	}
	s.End()
	if !isOver(over) {
		t.Error("it does not end")
	}
	if err := call(t, front, "setup", nil); !errors.Is(err, ErrGone) {
		t.Errorf("a box at its end says %v", err)
	}
}

func TestWhoComesTakesThePlaceOfWhoIsThere(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	dir, older, s, _ := lasting(t, func(req Request, _ []*os.File) (any, error) {
		if req.Op == "slow" {
			close(asked)
			<-answer
		}
		return struct{}{}, nil
	})
	if err := call(t, older, "setup", nil); err != nil {
		t.Fatal(err)
	}
	slow := make(chan error, 1)
	go func() { slow <- older.Call(context.Background(), "slow", struct{}{}, nil) }()
	<-asked
	newer := dial(t, dir)
	if err := call(t, newer, "x", nil); err != nil {
		t.Errorf("who comes is not heard: %v", err)
	}
	if err := <-slow; !errors.Is(err, ErrGone) {
		t.Errorf("who was there got %v", err)
	}
	close(answer) // which goes to nobody: its number is one of the newer's, too
	for range 3 {
		if err := call(t, newer, "x", nil); err != nil {
			t.Error(err)
		}
	}
	heard := make(chan Limit, 1)
	newer.OnLimit(func(l Limit) { heard <- l })
	s.Touched(Limit{Name: "disk", Source: "a test"})
	select {
	case l := <-heard:
		if l.Name != "disk" {
			t.Errorf("heard of %v", l)
		}
	case <-time.After(2 * time.Minute):
		t.Error("the newer front hears nothing")
	}
}

func TestTheAccountIsThereForFrontsToCome(t *testing.T) {
	dir, front, s, _ := lasting(t, echo)
	if err := call(t, front, "setup", nil); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		s.Touched(Limit{Name: "disk", Source: "first"})
		s.Touched(Limit{Name: ""})
		s.KilledForMemory()
	}
	if err := front.Call(t.Context(), "note", Limit{Name: "memory", Source: "front"}, nil); err != nil {
		t.Error(err)
	}
	front.Close()
	var got Ledger
	if err := call(t, dial(t, dir), "account", &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Limits) != 2 || got.Limits[0].Name != "disk" || got.Limits[1] != (Limit{"memory", "front"}) || got.MemoryKills != 3 {
		t.Errorf("account %+v", got)
	}
}

// Who cannot be accepted for want of a descriptor is accepted when there is one.
func TestAShortageAsAFrontComesIsNoEnd(t *testing.T) {
	dir, first, _, over := lasting(t, echo)
	if err := call(t, first, "setup", nil); err != nil {
		t.Fatal(err)
	}
	first.Close()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "front")
	defer f.Close()
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 3, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: filepath.Join(dir, "link")})
	ended := false
	select {
	case <-over:
		ended = true
	case <-time.After(3 * acceptAgain / 2):
	}
	if rerr := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil || rerr != nil || ended {
		t.Fatalf("it ended: %v; %v, %v", ended, err, rerr)
	}
	link, err := host.NewLink(f)
	if err != nil {
		t.Fatal(err)
	}
	next := NewConn(link)
	defer next.Close()
	if err := call(t, next, "anything", nil); err != nil {
		t.Errorf("the next front: %v", err)
	}
}
