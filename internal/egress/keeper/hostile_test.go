package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/egress/control"
	"github.com/sunaba-dev/sunaba/internal/egress/gate"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/nic"
)

// argvFalse is a gateway that somebody has taken over. It answers the first request
// as an honest one would, and then does what its second argument says.
const argvFalse = "false-gateway"

func falseGateway(how string) int {
	if how == "fails" {
		fmt.Fprintln(os.Stderr, "cannot be: \x1b[2Jno reason\u202e")
		return 1
	}
	if how == "few" { // an honest one with few descriptors
		if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 24, Max: 24}) != nil {
			return 1
		}
		code, _ := gate.Dispatch([]string{gate.Argv})
		return code
	}
	l, err := host.NewLink(os.NewFile(3, "control"))
	if err != nil {
		return 1
	}
	for n := 0; ; n++ {
		body, _, err := l.Receive()
		if err != nil {
			return 0
		}
		var req control.Request
		if json.Unmarshal(body, &req) != nil {
			return 1
		}
		rep := control.Reply{Seq: req.Seq}
		switch {
		case n == 0 || how == "honest":
		case how == "deaf": // takes nothing any more
			select {}
		case how == "child": // and somebody else keeps its end of the connection
			f, err := l.File()
			if err != nil {
				return 1
			}
			cmd := exec.Command("/proc/self/exe")
			cmd.Args, cmd.Env, cmd.ExtraFiles = []string{argvFalse, "mute"}, []string{}, []*os.File{f}
			if cmd.Start() != nil {
				return 1
			}
			select {}
		case how == "mute":
			time.Sleep(15 * time.Second)
			return 0
		case how == "leaves": // closes its connection, and lives on
			l.Close()
			select {}
		case how == "shouts":
			for range 20_000 {
				fmt.Fprintf(os.Stderr, "\x1b]0;pwned\a%s\n", strings.Repeat("x", 100))
			}
		case how == "liar":
			rep.Traffic = lies()
		case how == "flood":
			for range 2_000 {
				if l.Send([]byte(`{"event":{"cell":"`+strings.Repeat("x", 1000)+`"}}`)) != nil {
					return 0
				}
			}
		case how == "frame": // announces more than there may be
			f, err := l.File()
			if err != nil {
				return 1
			}
			_, _ = f.Write([]byte{0xff, 0xff, 0xff, 0xff, 0})
			select {}
		case how == "files":
			for range 2000 {
				if l.Send([]byte(`{}`), os.Stderr, os.Stderr, os.Stderr) != nil {
					return 0
				}
			}
		}
		b, err := json.Marshal(rep)
		if err != nil || l.Send(b) != nil {
			return 1
		}
	}
}

func lies() *box.Traffic {
	t := &box.Traffic{Generation: 999, Open: -5, Sent: -1 << 60, Received: 1}
	for i := range 9000 {
		t.Denied = append(t.Denied, box.Denial{Kind: "\x1b]0;pwned\a", Name: fmt.Sprint("n", i), Path: "\u202e\x1b[2J" + strings.Repeat("p", 200), Code: "x\ny", Count: -1})
	}
	return t
}

// neverAnswer are those that do not answer what they are asked after the first time.
var neverAnswer = []string{"deaf", "child", "leaves", "frame"}

func falseKeeper(t *testing.T, how string) *Keeper {
	t.Helper()
	return loggingKeeper(t, how, t.Output())
}

func loggingKeeper(t *testing.T, how string, log io.Writer) *Keeper {
	t.Helper()
	answer := patience
	if slices.Contains(neverAnswer, how) { // it is that time that ends them
		answer = 3 * time.Second
	}
	k := New(Config{
		Start: func(f, stderr *os.File) (*host.Child, error) {
			return host.Helper{Args: []string{argvFalse, how}, Files: []*os.File{f}, Stderr: stderr}.Start()
		},
		Settings: func() (control.Settings, error) { return control.Settings{}, nil },
		Log:      slog.New(slog.NewTextHandler(log, nil)), Answer: answer, Ask: 10 * time.Second,
	})
	t.Cleanup(func() { within(t, patience, "ended", func() { k.Close() }) })
	return k
}

func within(t *testing.T, most time.Duration, what string, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); fn() }()
	select {
	case <-done:
	case <-time.After(most):
		t.Fatalf("it is not %s after %v", what, most)
	}
}

// Whatever a gateway does that was taken over, who keeps it is answered in time, holds
// nothing of it, and has ended it by then if it did not do what it was asked.
func TestAGatewayThatWasTakenOverHoldsNobodyUp(t *testing.T) {
	big, _ := json.Marshal(strings.Repeat("x", 3<<20)) // more than a socket holds
	for _, how := range []string{"honest", "deaf", "child", "leaves", "frame", "files", "flood", "liar", "shouts"} {
		t.Run(how, func(t *testing.T) {
			k := falseKeeper(t, how)
			before := descriptors(t)
			ours, theirs, err := nic.Pair()
			if err != nil {
				t.Fatal(err)
			}
			defer theirs.Close()
			var pid int
			within(t, patience, "started", func() { pid, _ = k.Try(context.Background()) })
			within(t, 2*patience, "answered", func() {
				answers := !slices.Contains(neverAnswer, how)
				most := patience
				if !answers {
					most = 4 * time.Second
				}
				ctx, cancel := context.WithTimeout(t.Context(), most)
				defer cancel()
				id := box.NewID()
				err := k.Attach(ctx, id, box.Link{File: ours, Kind: box.LinkSeqpacket}, big, 1, nil)
				if answers != (err == nil) {
					t.Errorf("attach: %v", err)
				}
				if err != nil && pid > 0 && syscall.Kill(pid, 0) == nil {
					t.Error("it is given up and still there")
				}
				tr, err := k.Traffic(ctx, id)
				if answers && err != nil {
					t.Errorf("traffic: %v", err)
				}
				if len(tr.Denied) > maxDenials || tr.Sent < 0 || tr.Open < 0 {
					t.Errorf("%d denials, %d sent, %d open", len(tr.Denied), tr.Sent, tr.Open)
				}
				for _, d := range tr.Denied {
					if text := d.Kind + d.Path + d.Code; strings.ContainsAny(text, "\x1b\a\n\u202e") || d.Count < 0 {
						t.Fatalf("a denial says %+q", text)
					}
				}
				k.Detach(ctx, id)
			})
			within(t, patience, "ended", func() { k.Close() })
			if after := descriptors(t); after > before+2 {
				t.Errorf("%d descriptors before, %d after", before, after)
			}
		})
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// A gateway that has no room for one more box says so, and keeps those that it has.
func TestAGatewayThatIsFullKeepsWhatItHas(t *testing.T) {
	k := falseKeeper(t, "few")
	first := attach(t, k, box.NewID(), "a.example.com:443")
	pid := k.PID()
	var all []box.ID
	for len(all) < 40 {
		ours, theirs, err := nic.Pair()
		if err != nil {
			t.Fatal(err)
		}
		defer theirs.Close()
		id := box.NewID()
		err = k.Attach(t.Context(), id, box.Link{File: ours, Kind: box.LinkSeqpacket}, policy(t, "a.example.com:443"), 1, nil)
		var e *box.Error
		if errors.As(err, &e) && e.Kind == box.Exhausted {
			break
		}
		if err != nil {
			t.Fatalf("box %d: %v", len(all), err)
		}
		all = append(all, id)
	}
	if len(all) < 5 || len(all) == 40 || k.PID() != pid {
		t.Errorf("it took %d boxes, and is process %d, before %d", len(all), k.PID(), pid)
	}
	first.want(t, "a.example.com", true)
	for _, id := range all[:4] {
		k.Detach(t.Context(), id)
	}
	last := attach(t, k, box.NewID(), "a.example.com:443")
	last.want(t, "a.example.com", true)
	if k.PID() != pid {
		t.Error("the gateway was ended")
	}
}

// What a gateway says is in the log, cleaned and bounded, and is why it does not start.
func TestWhatAGatewaySaysIsCleanAndShort(t *testing.T) {
	var b strings.Builder
	k := loggingKeeper(t, "fails", &b)
	_, err := k.Try(t.Context())
	if err == nil || !strings.Contains(err.Error(), "cannot be: ?[2Jno reason?") {
		t.Errorf("it does not start: %+q", err)
	}
	k.Close()
	b.Reset()
	k = loggingKeeper(t, "shouts", &b)
	if _, err := k.Try(t.Context()); err != nil { // the second question is the ping
		t.Fatal(err)
	}
	k.Close()
	if n := strings.Count(b.String(), "the gateway says"); n != mostLines || strings.ContainsAny(b.String(), "\x1b\a") || b.Len() > 2*mostLines*longLine {
		t.Errorf("%d lines of %d bytes are in the log", n, b.Len())
	}
}

// Rules that no message can hold are refused, and those in force stay.
func TestRulesThatAreTooLongAreRefused(t *testing.T) {
	k, _ := newKeeper(t)
	id := box.NewID()
	w := attach(t, k, id, "a.example.com:443")
	pid := k.PID()
	long, _ := json.Marshal(strings.Repeat("x", host.MaxMessage))
	within(t, patience, "answered", func() {
		err := k.Update(t.Context(), id, long, 2)
		var e *box.Error
		if !errors.As(err, &e) || e.Kind != box.Invalid {
			t.Errorf("update: %v", err)
		}
	})
	w.want(t, "a.example.com", true)
	within(t, patience, "answered", func() {
		ours, theirs, err := nic.Pair()
		if err != nil {
			t.Error(err)
			return
		}
		defer theirs.Close()
		if err := k.Attach(t.Context(), box.NewID(), box.Link{File: ours, Kind: box.LinkSeqpacket}, long, 1, nil); err == nil {
			t.Error("a box has rules that nobody took")
		}
	})
	if k.PID() != pid {
		t.Error("the gateway was ended for it")
	}
	if err := k.Update(t.Context(), id, policy(t, "b.example.com:443"), 2); err != nil {
		t.Fatal(err)
	}
	w.want(t, "a.example.com", false)
}

// Who has taken over a box's first process shares the link's descriptor with the
// gateway, and can make its writes wait. That box's end is no other's.
func TestABoxThatMakesItsLinkWaitKeepsNobody(t *testing.T) {
	k, _ := newKeeper(t)
	other := attach(t, k, box.NewID(), "a.example.com:443")
	pid := k.PID()
	ours, theirs, err := nic.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	shared, err := host.Dup(ours)
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	id := box.NewID()
	if err := k.Attach(t.Context(), id, box.Link{File: ours, Kind: box.LinkSeqpacket}, policy(t, "a.example.com:443"), 1, nil); err != nil {
		t.Fatal(err)
	}
	w := wire{theirs}
	w.want(t, "a.example.com", true)
	if err := syscall.SetNonblock(int(shared.Fd()), false); err != nil {
		t.Fatal(err)
	}
	fd, q := int(theirs.Fd()), datagram([]byte("\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x07example\x03com\x00\x00\x01\x00\x01"))
	if err := syscall.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	taken, full := 0, 0
	for full < 500 && taken < 20_000 { // answers that nobody takes, until it does not go on
		if _, err := syscall.Write(fd, q); err != nil {
			full++
			time.Sleep(time.Millisecond)
		} else {
			taken, full = taken+1, 0
		}
	}
	within(t, patience, "given up", func() { k.Detach(t.Context(), id) })
	other.want(t, "a.example.com", true)
	if now := k.PID(); now != pid {
		t.Errorf("the gateway is process %d, before %d", now, pid)
	}
}
