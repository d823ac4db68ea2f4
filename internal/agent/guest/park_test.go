package guest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
	rpc "github.com/sunaba-dev/sunaba/internal/agent/agentpb/agentpbconnect"
	"github.com/sunaba-dev/sunaba/internal/agent/guest"
)

func park(t *testing.T, g *guest.Guest) {
	t.Helper()
	if err := g.Park(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// goOn is what follows a Park when the box goes on.
func goOn(t *testing.T, g *guest.Guest) {
	t.Helper()
	g.Unpark()
	if err := g.Renew(t.Context(), box.Renewal{}); err != nil {
		t.Error(err)
	}
}

func TestAStoryGoesOnAfterEachParkingWithEveryByteOnce(t *testing.T) {
	g, _ := real(t)
	p := sh(`i=0; while [ $i -lt 60000 ]; do echo line $i; i=$((i+1)); done; read x; echo over >&2`)
	p.Stdin = true
	ref := started(t, g, p)
	type told struct {
		out, err []byte
		end      *box.End
	}
	done := make(chan told, 1)
	began := make(chan struct{}, 1)
	go func() {
		var got told
		err := g.Follow(t.Context(), ref, box.Positions{Stdout: -1, Stderr: -1}, func(e box.ProcessEvent) error {
			select {
			case began <- struct{}{}:
			default:
			}
			switch e.Kind {
			case box.EventStdout:
				if e.At != int64(len(got.out)) {
					return fmt.Errorf("a piece at %d after %d bytes", e.At, len(got.out))
				}
				got.out = append(got.out, e.Data...)
			case box.EventStderr:
				got.err = append(got.err, e.Data...)
			case box.EventEnd:
				got.end = e.End
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		done <- got
	}()
	<-began
	for range 10 {
		park(t, g)
		goOn(t, g)
	}
	if _, err := g.Input(t.Context(), ref, box.Input{Data: []byte("\n")}); err != nil {
		t.Fatal(err)
	}
	got := <-done
	var want bytes.Buffer
	for i := range 60000 {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	if !bytes.Equal(got.out, want.Bytes()) || string(got.err) != "over\n" || got.end == nil || got.end.Cause != box.Exited {
		t.Errorf("%d bytes of %d, %q, %+v", len(got.out), want.Len(), got.err, got.end)
	}
}

// A caller whose cell is interrupted when it goes away has not gone away.
func TestACellGoesOnAfterAParking(t *testing.T) {
	g, dir := real(t)
	c, err := g.OpenContext(t.Context(), box.ContextSpec{Language: "bash"})
	if err != nil {
		t.Fatal(err)
	}
	code := "for i in 1 2 3 4; do echo $i; until [ -e " + dir + "/go$i ]; do sleep 0.01; done; done"
	var out strings.Builder
	var end *box.CellEnd
	err = g.RunCell(t.Context(), c.ID, box.Cell{ID: "1", Code: code, Attached: true}, func(e box.CellEvent) error {
		out.WriteString(e.Text)
		end = e.End
		if n := strings.TrimSpace(e.Text); n != "" {
			park(t, g)
			goOn(t, g)
			return os.WriteFile(filepath.Join(dir, "go"+n), nil, 0o600)
		}
		return nil
	})
	if err != nil || out.String() != "1\n2\n3\n4\n" || end == nil || end.Outcome != box.CellOK {
		t.Errorf("it told %q, %+v (%v)", out.String(), end, err)
	}
}

func TestACallerWhoDoesNotComeBackAfterAParkingHasItsCellInterrupted(t *testing.T) {
	t.Parallel()
	g, _ := real(t)
	c, err := g.OpenContext(t.Context(), box.ContextSpec{Language: "bash"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = g.RunCell(ctx, c.ID, box.Cell{ID: "1", Code: "echo; sleep 1000", Attached: true}, func(e box.CellEvent) error {
		if e.Kind != box.EventStdout {
			return nil
		}
		park(t, g)
		cancel()
		goOn(t, g)
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	err = g.RunCell(t.Context(), c.ID, box.Cell{ID: "1"}, func(e box.CellEvent) error {
		if e.Kind == box.EventEnd && e.End.Outcome != box.CellInterrupted {
			t.Errorf("it ended as %s", e.End.Outcome)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestCallsWaitWhileTheGuestIsParked(t *testing.T) {
	g, _ := real(t)
	for range 2 { // without a connection, and with one
		park(t, g)
		if err := g.Park(t.Context()); box.KindOf(err) != box.Conflict {
			t.Errorf("parked twice: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if _, err := g.Metrics(ctx); box.KindOf(err) != box.Unavailable || ctx.Err() == nil {
			t.Errorf("a call while it is parked: %v", err)
		}
		cancel()
		got := make(chan error, 1)
		go func() { got <- metrics(t.Context(), g) }()
		g.Unpark()
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
	park(t, g)
	got := make(chan error, 1)
	go func() { got <- metrics(t.Context(), g) }()
	g.Close()
	if err := <-got; box.KindOf(err) != box.Unavailable {
		t.Errorf("a call that waited when the guest was closed: %v", err)
	}
}

func TestWhatCannotGoOnAfterAParkingSaysThatItMayBeAskedAgain(t *testing.T) {
	t.Parallel()
	g, dir := real(t)
	r, w := io.Pipe()
	defer w.Close()
	got := make(chan error, 1)
	go func() {
		_, err := g.Write(t.Context(), filepath.Join(dir, "f"), box.WriteOptions{}, r)
		r.Close()
		got <- err
	}()
	if _, err := w.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	park(t, g)
	if _, err := w.Write(make([]byte, 1<<20)); err == nil { // else it has been read to no end already
		w.Close()
	}
	var e *box.Error
	if err := <-got; !errors.As(err, &e) || e.Kind != box.Unavailable || e.Retry == 0 {
		t.Errorf("an upload that was cut: %v", err)
	}
	goOn(t, g)
	if _, err := os.Stat(filepath.Join(dir, "f")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("and left a file: %v", err)
	}
}

func TestAWatchTellsThatChangesWereLostInAParking(t *testing.T) {
	g, dir := real(t)
	var all []box.ChangeKind
	stop := errors.New("stop")
	err := g.Watch(t.Context(), dir, false, func(c box.Change) error {
		switch all = append(all, c.What); {
		case len(all) == 1:
			park(t, g)
			if err := os.WriteFile(filepath.Join(dir, "unseen"), nil, 0o600); err != nil {
				return err
			}
			goOn(t, g)
		case c.What == box.ChangeLost:
			return os.WriteFile(filepath.Join(dir, "seen"), nil, 0o600)
		case c.Path == "seen":
			return stop
		}
		return nil
	})
	if err != stop || all[0] != "" || all[1] != box.ChangeLost {
		t.Errorf("it told %q (%v)", all, err)
	}
}

// sockets counts the agent's.
func sockets(t *testing.T, g *guest.Guest, agent int) (n int) {
	t.Helper()
	dir := "/proc/" + strconv.Itoa(agent) + "/fd"
	all, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrPermission) {
		t.Skip("the agent keeps its descriptors from its own user: this needs root")
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if to, err := os.Readlink(filepath.Join(dir, f.Name())); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

func TestAfterAParkingTheAgentHasNoStream(t *testing.T) {
	g, _, b := realBox(t)
	var state struct{ PID int }
	if err := json.Unmarshal(b.State(), &state); err != nil || state.PID == 0 {
		t.Fatalf("the agent's number: %+v (%v)", state, err)
	}
	agent := state.PID
	if err := metrics(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	with := sockets(t, g, agent)
	park(t, g)
	none := sockets(t, g, agent)
	if none != with-1 {
		t.Errorf("%d sockets with a stream, %d when it was parked", with, none)
	}
	goOn(t, g)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	for range 5 {
		ref := started(t, g, sh("echo begun; exec sleep 1000"))
		ctx, cancel := context.WithCancel(t.Context())
		begun, over := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(over)
			_ = g.Follow(ctx, ref, box.Positions{}, func(e box.ProcessEvent) error {
				if e.Kind == box.EventStdout {
					close(begun)
				}
				return nil
			})
		}()
		c, err := g.Dial(t.Context(), port)
		if err != nil {
			t.Fatal(err)
		}
		<-begun
		park(t, g)
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("a dialled port goes on after a parking")
		}
		c.Close()
		for until := time.Now().Add(2 * time.Minute); sockets(t, g, agent) != none; time.Sleep(time.Millisecond) {
			// Of a port, whose end nobody waits for.
			if time.Now().After(until) {
				t.Fatalf("%d sockets after a parking, %d before", sockets(t, g, agent), none)
			}
		}
		goOn(t, g)
		cancel()
		<-over
	}
}

func TestAnAgentThatKeepsItsStreamIsNotParked(t *testing.T) {
	over := make(chan struct{})
	defer close(over)
	g := liar(t, guest.Options{}, hello(),
		unary(rpc.MachineHoldProcedure, func(*pb.HoldRequest) (*pb.HoldResponse, error) { return &pb.HoldResponse{}, nil }),
		says[pb.MetricsRequest](rpc.MachineMetricsProcedure, &pb.MetricsResponse{}))
	park(t, g) // an honest server does
	g.Unpark()
	if err := metrics(t.Context(), g); err != nil {
		t.Error(err)
	}
	g = rawLiar(t, guest.Options{}, func(net.Conn) { <-over })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := g.Park(ctx); box.KindOf(err) != box.Unavailable {
		t.Errorf("a silent agent is parked: %v", err)
	}
}

func TestAnOlderAgentCannotBeParkedNorRenewed(t *testing.T) {
	g := liar(t, guest.Options{}, hello(), says[pb.MetricsRequest](rpc.MachineMetricsProcedure, &pb.MetricsResponse{}))
	for name, err := range map[string]error{
		"park": g.Park(t.Context()), "hold": g.Hold(t.Context()), "renew": g.Renew(t.Context(), box.Renewal{Copy: true}),
	} {
		if box.KindOf(err) != box.Unsupported {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := metrics(t.Context(), g); err != nil { // it is as before
		t.Error(err)
	}
}

func TestADeadlineStandsWithTheBox(t *testing.T) {
	t.Parallel()
	g, _ := real(t)
	p := sh("exec sleep 1000")
	p.Timeout = 5 * time.Second // it is held by then
	ref := started(t, g, p)
	if err := g.Hold(t.Context()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(p.Timeout + 500*time.Millisecond)
	all, err := g.Processes(t.Context())
	if err != nil || len(all) != 1 || all[0].End != nil {
		t.Fatalf("%+v (%v)", all, err)
	}
	if err := g.Renew(t.Context(), box.Renewal{}); err != nil {
		t.Fatal(err)
	}
	if _, _, end := story(t, g, ref); end.Cause != box.Deadline {
		t.Errorf("it ended as %+v", end)
	}
}
