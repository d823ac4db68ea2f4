package guest_test

import (
	"context"
	"errors"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/sunaba-dev/sunaba/box"
	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
	rpc "github.com/sunaba-dev/sunaba/internal/agent/agentpb/agentpbconnect"
	"github.com/sunaba-dev/sunaba/internal/agent/guest"
)

// calls is one of each form: unary, stream from the agent, stream to it, both.
func calls() map[string]guestCall {
	return map[string]guestCall{
		"start": start, "processes": processes, "follow": follow, "stat": stat, "list": list, "read": read,
		"hold":  func(ctx context.Context, g *guest.Guest) error { return g.Hold(ctx) },
		"renew": func(ctx context.Context, g *guest.Guest) error { return g.Renew(ctx, box.Renewal{Copy: true}) },
		"watch": watch, "metrics": metrics, "open": open, "cell": cell, "dial": dial, "pack": pack,
		"write": func(ctx context.Context, g *guest.Guest) error {
			_, err := g.Write(ctx, "/work/f", box.WriteOptions{}, io.LimitReader(endless{}, 1<<20))
			return err
		},
	}
}

func pack(ctx context.Context, g *guest.Guest) error {
	return g.Pack(ctx, "/work", 1<<20, io.Discard)
}

// silent never answers anything but Hello.
func silent() service {
	return raw("/", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
}

func TestAnAgentThatIsSilentIsGivenUp(t *testing.T) {
	for name, call := range calls() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := liar(t, guest.Options{Call: 100 * time.Millisecond, Silence: 100 * time.Millisecond}, hello(), silent())
			if err := call(t.Context(), g); box.KindOf(err) != box.Unavailable {
				t.Errorf("the error is %v (%s)", err, box.KindOf(err))
			}
		})
	}
}

func TestAnAgentThatDoesNotEvenSayHelloIsGivenUp(t *testing.T) {
	for name, call := range calls() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := rawLiar(t, guest.Options{Call: 100 * time.Millisecond, Silence: 100 * time.Millisecond}, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
			if err := call(t.Context(), g); box.KindOf(err) != box.Unavailable {
				t.Errorf("the error is %v (%s)", err, box.KindOf(err))
			}
		})
	}
}

func TestAnAgentThatReadsNothingIsGivenUp(t *testing.T) {
	noGoroutineLeft(t)
	over := make(chan struct{})
	defer close(over)
	g := rawLiar(t, guest.Options{Call: 100 * time.Millisecond, Silence: 100 * time.Millisecond}, func(net.Conn) { <-over })
	for name, call := range calls() {
		if err := call(t.Context(), g); box.KindOf(err) != box.Unavailable {
			t.Errorf("%s: the error is %v (%s)", name, err, box.KindOf(err))
		}
	}
}

func TestTheEndOfAContextEndsACallAtOnce(t *testing.T) {
	for name, call := range calls() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			came := make(chan struct{})
			gone := make(chan struct{})
			g := liar(t, guest.Options{}, hello(), raw("/", func(_ http.ResponseWriter, r *http.Request) {
				close(came)
				<-r.Context().Done()
				close(gone)
			}))
			ctx, cancel := context.WithCancelCause(t.Context())
			why := errors.New("lose interest")
			go func() {
				<-came
				cancel(why)
			}()
			err := call(ctx, g)
			if !errors.Is(err, why) || box.KindOf(err) != box.Unavailable {
				t.Errorf("the error is %v (%s)", err, box.KindOf(err))
			}
			<-gone // the agent is told
		})
	}
}

func TestAConnectionThatIsSilentIsReplaced(t *testing.T) {
	var dials atomic.Int32
	honest := http.NewServeMux()
	h := hello()
	honest.Handle(h.path, h.http)
	honest.Handle(rpc.FilesStatProcedure, statOf(file(5)).http)
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	srv := &http.Server{Handler: honest, Protocols: &p}
	l := &oneConn{c: make(chan net.Conn, 1), done: make(chan struct{})}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { srv.Close(); l.Close() })
	g := guest.New(func(context.Context) (net.Conn, error) {
		ours, theirs := socketpair(t)
		if dials.Add(1) == 1 {
			t.Cleanup(func() { theirs.Close() }) // nobody is there
		} else {
			l.c <- theirs
		}
		return ours, nil
	}, guest.Options{Call: time.Minute})
	t.Cleanup(g.Close)
	for dials.Load() == 0 { // in a second it dials, but for a host that is busy
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := stat(short, g); box.KindOf(err) != box.Unavailable || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a dead stream gives %v", err)
		}
		cancel()
	}
	if err := stat(t.Context(), g); err != nil {
		t.Errorf("a new stream gives %v", err)
	}
	if n := dials.Load(); n != 2 {
		t.Errorf("it dialled %d times", n)
	}
}

func TestGarbageInPlaceOfAProtocolIsAnError(t *testing.T) {
	noGoroutineLeft(t)
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		garbage := make([]byte, r.IntN(2000))
		for i := range garbage {
			garbage[i] = byte(r.Uint32())
		}
		g := rawLiar(t, guest.Options{Call: time.Minute, Silence: time.Minute}, func(c net.Conn) {
			go func() { _, _ = io.Copy(io.Discard, c) }()
			_, _ = c.Write(garbage)
		})
		if err := stat(t.Context(), g); box.KindOf(err) != box.Unavailable && box.KindOf(err) != box.Fault {
			t.Fatalf("%q gives %v", garbage, err)
		}
		g.Close()
	}
}

// cut is a connection that breaks after some bytes from the agent.
type cut struct {
	net.Conn
	left int
}

func (c *cut) Read(p []byte) (int, error) {
	if c.left == 0 {
		c.Conn.Close()
		return 0, io.EOF
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

func TestAConnectionThatIsCutAnywhereIsAnError(t *testing.T) {
	noGoroutineLeft(t)
	mux := http.NewServeMux()
	for _, s := range []service{hello(), output(stdout(10, "some output"), ended(&pb.End{StdoutBytes: 21}))} {
		mux.Handle(s.path, s.http)
	}
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	srv := &http.Server{Handler: mux, Protocols: &p, ErrorLog: log.New(io.Discard, "", 0)}
	l := &oneConn{c: make(chan net.Conn, 1), done: make(chan struct{})}
	go func() { _ = srv.Serve(l) }()
	defer srv.Close()
	defer l.Close()
	told := func(after int) error {
		g := guest.New(func(context.Context) (net.Conn, error) {
			ours, theirs := socketpair(t)
			l.c <- theirs
			return &cut{ours, after}, nil
		}, guest.Options{Call: time.Minute, Silence: time.Minute})
		defer g.Close()
		return follow(t.Context(), g)
	}
	const all = 10_000
	if err := told(all); err != nil {
		t.Fatalf("uncut it gives %v", err)
	}
	n := 0
	for ; n < all; n++ {
		err := told(n)
		if err == nil {
			break // the rest acknowledges what we say afterwards
		}
		if k := box.KindOf(err); k != box.Unavailable && k != box.Fault {
			t.Errorf("cut after %d bytes: %v", n, err)
		}
	}
	if n < 100 || n == all {
		t.Errorf("the story is whole after %d bytes", n)
	}
}

func TestASlowReaderHoldsLittle(t *testing.T) {
	noGoroutineLeft(t)
	var sent atomic.Int64
	g := liar(t, guest.Options{}, hello(), streams[pb.OutputRequest](rpc.ProcessesOutputProcedure, func(_ context.Context, send func(*pb.OutputResponse) error) error {
		at, data := uint64(10), make([]byte, 32<<10)
		for {
			if err := send(&pb.OutputResponse{Event: &pb.OutputResponse_Stdout{Stdout: &pb.Bytes{At: at, Data: data}}}); err != nil {
				return err
			}
			at += uint64(len(data))
			sent.Store(int64(at))
		}
	}))
	enough := errors.New("have seen enough")
	err := g.Follow(t.Context(), box.ProcessRef{PID: 7}, box.Positions{Stdout: 10}, func(box.ProcessEvent) error {
		// It goes on until the window is full, and then it waits for us.
		for before := int64(-1); before != sent.Load(); time.Sleep(50 * time.Millisecond) {
			before = sent.Load()
		}
		if n := sent.Load(); n > 2<<20 {
			t.Errorf("%d bytes were taken from the agent while nobody read", n)
		}
		return enough
	})
	if err != enough {
		t.Errorf("the caller's error came back as %v", err)
	}
}

func TestFramesWithoutEndThatCarryNothingEndTheConnection(t *testing.T) {
	noGoroutineLeft(t)
	var sent atomic.Int64
	g := rawLiar(t, guest.Options{Call: time.Minute}, func(c net.Conn) {
		go func() { _, _ = io.Copy(io.Discard, c) }()
		// An empty SETTINGS, and then PING after PING (RFC 9113 6.7), all of them
		// answers: those need none.
		_, _ = c.Write([]byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
		pings := []byte(strings.Repeat("\x00\x00\x08\x06\x01\x00\x00\x00\x0012345678", 1000))
		for {
			n, err := c.Write(pings)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	if err := stat(t.Context(), g); box.KindOf(err) != box.Unavailable {
		t.Errorf("the error is %v (%s)", err, box.KindOf(err))
	}
	if n := sent.Load(); n > 100<<20 {
		t.Errorf("%d MiB were listened to", n>>20)
	}
}

// TestNoFrameWritesToTheLog is not parallel: it looks at the process's log.
func TestNoFrameWritesToTheLog(t *testing.T) {
	var text lockedText
	log.SetOutput(&text)
	defer log.SetOutput(os.Stderr)
	for kind := range 256 {
		g := rawLiar(t, guest.Options{Call: time.Minute}, func(c net.Conn) {
			go func() { _, _ = io.Copy(io.Discard, c) }()
			_, _ = c.Write([]byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
			_, _ = c.Write([]byte(strings.Repeat("\x00\x00\x04"+string([]byte{byte(kind)})+"\x00\x00\x00\x00\x000000", 1000)))
		})
		if err := stat(t.Context(), g); box.KindOf(err) != box.Unavailable {
			t.Errorf("frames of type %d give %v", kind, err)
		}
		g.Close()
	}
	if n := strings.Count(text.String(), "\n"); n > 5 {
		t.Errorf("%d lines were logged:\n%.500s", n, text.String())
	}
}

type lockedText struct {
	mu sync.Mutex
	strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Builder.Write(p)
}

func TestAFloodOfAnswersTakesLittleMemory(t *testing.T) {
	body := envelope(0, strings.Repeat("\x0a\x00", 500_000))
	g := liar(t, guest.Options{}, hello(), raw(rpc.FilesListProcedure, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/connect+proto")
		for {
			if _, err := io.WriteString(w, body); err != nil {
				return
			}
		}
	}))
	if err := list(t.Context(), g); box.KindOf(err) != box.Fault { // connects
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const times = 10
	for range times {
		if err := list(t.Context(), g); box.KindOf(err) != box.Fault {
			t.Errorf("the error is %v", err)
		}
	}
	runtime.ReadMemStats(&after)
	// The message itself, what it is read into as it grows, and the other end.
	if n := (after.TotalAlloc - before.TotalAlloc) / times; n > 8<<20 {
		t.Errorf("a call took %d KiB", n>>10)
	}
}

func TestTooManyCallsAtOnceAreRefused(t *testing.T) {
	noGoroutineLeft(t)
	came := make(chan struct{})
	g := liar(t, guest.Options{Calls: 3}, hello(), watches(beat()), raw("/", func(_ http.ResponseWriter, r *http.Request) {
		came <- struct{}{}
		<-r.Context().Done()
	}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	for range 3 {
		go func() { done <- stat(ctx, g) }()
	}
	for range 3 {
		<-came
	}
	for name, call := range calls() {
		if err := call(t.Context(), g); box.KindOf(err) != box.Exhausted {
			t.Errorf("%s beside them gives %v", name, err)
		}
	}
	cancel()
	for range 3 {
		<-done
	}
	if err := watch(t.Context(), g); box.KindOf(err) != box.NotFound {
		t.Errorf("when they are over, the next gives %v", err)
	}
}

func TestWhatTheAgentRefusesHasItsKindAndItsWords(t *testing.T) {
	for code, want := range map[connect.Code]box.Kind{
		connect.CodeNotFound: box.NotFound, connect.CodeAlreadyExists: box.Conflict, connect.CodePermissionDenied: box.Denied,
		connect.CodeInvalidArgument: box.Invalid, connect.CodeResourceExhausted: box.Exhausted, connect.CodeUnimplemented: box.Unsupported,
		connect.CodeUnavailable: box.Unavailable, connect.CodeDeadlineExceeded: box.Unavailable, connect.CodeInternal: box.Fault,
		connect.CodeUnknown: box.Fault, connect.CodeCanceled: box.Fault, connect.CodeDataLoss: box.Fault, connect.CodeUnauthenticated: box.Fault,
	} {
		text := "no\x1b]0;x\x07 \u202e" + strings.Repeat("\n", 5000)
		g := liar(t, guest.Options{}, hello(),
			unary(rpc.FilesStatProcedure, func(*pb.StatRequest) (*pb.StatResponse, error) {
				return nil, connect.NewError(code, errors.New(text))
			}),
			streams[pb.ListRequest](rpc.FilesListProcedure, func(context.Context, func(*pb.ListResponse) error) error {
				return connect.NewError(code, errors.New(text))
			}))
		for name, call := range map[string]guestCall{"unary": stat, "stream": list} {
			err := call(t.Context(), g)
			if box.KindOf(err) != want {
				t.Errorf("%s %s is %v (%s), want %s", name, code, err, box.KindOf(err), want)
			}
			if s := err.Error(); len(s) > 1200 || strings.ContainsAny(s, "\x1b\x07\n\u202e") || !strings.Contains(s, `the box says: no\x1b]0;x\x07 \u{202e}\n`) {
				if want != box.Unavailable || code != connect.CodeDeadlineExceeded || name != "unary" {
					t.Errorf("%s %s says %.200q (%d bytes)", name, code, s, len(s))
				}
			}
		}
	}
}
