package daemon

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
	"github.com/sunaba-dev/sunaba/internal/agent/clock"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// numbers is a program whose output shows at each place what it has to be:
// lines of 8 bytes that count.
func numbers(n int) string { return fmt.Sprintf("seq -w 1000000 %d", 1000000+n/8-1) }

// checkNumbers wants bytes of that output from a position on.
func checkNumbers(t testing.TB, at int, b []byte) {
	t.Helper()
	for i, c := range b {
		p := at + i
		if want := fmt.Sprintf("%d\n", 1000000+p/8)[p%8]; c != want {
			t.Fatalf("at %d: %q, want %q", p, c, want)
		}
	}
}

func TestThirtyOutputsArriveWhole(t *testing.T) {
	const each, many = 50_000_000, 30
	r := begin(t, harness.Users()[0])
	var all sync.WaitGroup
	want := crc32.NewIEEE()
	zeros := make([]byte, each/100)
	for range 100 {
		want.Write(zeros)
	}
	for i := range many {
		pid := r.sh(fmt.Sprintf("head -c %d /dev/zero", each))
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
			defer cancel()
			s, err := r.Output(ctx, connect.NewRequest(&pb.OutputRequest{Pid: pid}))
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			sum, pos, ended := crc32.NewIEEE(), uint64(0), false
			for s.Receive() {
				if b := s.Msg().GetStdout(); b != nil {
					if b.At != pos {
						t.Errorf("output %d: a gap at %d", i, pos)
					}
					pos += uint64(len(b.Data))
					sum.Write(b.Data)
				}
				ended = ended || s.Msg().GetEnd() != nil
			}
			if s.Err() != nil || !ended || pos != each || sum.Sum32() != want.Sum32() {
				t.Errorf("output %d: %d bytes, end %v, %v", i, pos, ended, s.Err())
			}
		})
	}
	all.Wait()
	if peak := statusKB(t, r.cmd.Process.Pid, "VmHWM"); peak > 64<<10 {
		t.Errorf("the agent took %d KiB", peak)
	} else {
		t.Logf("the agent took %d KiB", peak)
	}
}

func TestSlowReaderMakesTheProgramWait(t *testing.T) {
	r := begin(t, harness.Users()[0])
	pid := r.sh("yes | head -c 100000000; echo over >&2")
	ctx, cancel := context.WithCancel(deadline(t))
	defer cancel()
	s, err := r.Output(ctx, connect.NewRequest(&pb.OutputRequest{Pid: pid}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got := 0
	for range 3 {
		if !s.Receive() {
			t.Fatal(s.Err())
		}
		got += len(s.Msg().GetStdout().GetData())
	}
	// Others are served meanwhile, by the same stream, and it is not over.
	for range 10 {
		if other := r.follow(t, r.sh("echo hello")); string(other.out) != "hello\n" {
			t.Errorf("got %q", other.out)
		}
	}
	list, err := r.ProcessesClient.List(deadline(t), connect.NewRequest(&pb.ListProcessesRequest{}))
	if err != nil || list.Msg.Processes[0].End != nil {
		t.Errorf("%v, %v", list, err)
	}
	if peak := statusKB(t, r.cmd.Process.Pid, "VmHWM"); peak > 32<<10 {
		t.Errorf("the agent took %d KiB", peak)
	}
	for s.Receive() {
		got += len(s.Msg().GetStdout().GetData())
	}
	if got != 100_000_000 {
		t.Errorf("got %d bytes, %v", got, s.Err())
	}
}

func TestCutOutputGoesOnWithEveryByteOnce(t *testing.T) {
	const size = 16_000_000
	r := begin(t, harness.Users()[0])
	pid := r.sh(numbers(size))
	pos, cuts := uint64(0), 0
	dice := rand.New(rand.NewPCG(1, 2))
	c := r.client
	for end := false; !end; cuts++ {
		ctx, cancel := context.WithCancel(deadline(t))
		s, err := c.Output(ctx, connect.NewRequest(&pb.OutputRequest{Pid: pid, StdoutFrom: int64(pos)}))
		if err != nil {
			t.Fatal(err)
		}
		for stop := pos + uint64(dice.IntN(1_000_000)); pos < stop && !end && s.Receive(); {
			if b := s.Msg().GetStdout(); b != nil {
				if b.At != pos {
					t.Fatalf("after %d cuts: at %d, want %d", cuts, b.At, pos)
				}
				checkNumbers(t, int(pos), b.Data)
				pos += uint64(len(b.Data))
			}
			end = s.Msg().GetEnd() != nil
		}
		cancel()
		s.Close()
		if cuts%2 == 1 { // the stream itself is lost, with what was in it
			c.transport.CloseIdleConnections()
			c = r.dial()
		}
	}
	if pos != size || cuts < 10 {
		t.Errorf("%d bytes after %d cuts", pos, cuts)
	}
}

func TestWithoutReaderTheOldestBytesGo(t *testing.T) {
	const size = 8_000_000
	r := begin(t, harness.Users()[0])
	pid := r.sh(numbers(size), func(m *pb.StartRequest) { m.KeepBytes, m.Detached = 1<<20, true })
	r.waitEnd(t, pid)
	s, err := r.Output(deadline(t), connect.NewRequest(&pb.OutputRequest{Pid: pid, StdoutFrom: -1, StderrFrom: -1}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	first, pos := uint64(0), uint64(0)
	for s.Receive() {
		if b := s.Msg().GetStdout(); b != nil {
			if first == 0 {
				first, pos = b.At, b.At
			}
			checkNumbers(t, int(pos), b.Data)
			pos += uint64(len(b.Data))
		}
	}
	if kept := pos - first; pos != size || kept < 1<<20-64<<10 || kept > 1<<20 {
		t.Errorf("from %d to %d, %v", first, pos, s.Err())
	}
	_, err = r.Output(deadline(t), connect.NewRequest(&pb.OutputRequest{Pid: pid, StdoutFrom: size}))
	if err != nil {
		t.Error(err)
	}
	s, err = r.Output(deadline(t), connect.NewRequest(&pb.OutputRequest{Pid: pid, StdoutFrom: size + 1}))
	if err == nil {
		s.Receive()
		err = s.Err()
	}
	wantError(t, err, connect.CodeInvalidArgument, "8000000 bytes were written")
}

// waitEnd waits until the list tells a process's end.
func (c *client) waitEnd(t testing.TB, pid uint32) *pb.End {
	t.Helper()
	for ctx := deadline(t); ; time.Sleep(5 * time.Millisecond) {
		list, err := c.ProcessesClient.List(ctx, connect.NewRequest(&pb.ListProcessesRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list.Msg.Processes {
			if p.Pid == pid && p.End != nil {
				return p.End
			}
		}
	}
}

// TestPlaceOfAReaderIsKeptForAWhile goes by the clock that it is given.
func TestPlaceOfAReaderIsKeptForAWhile(t *testing.T) {
	o := newOutput(0, false, clock.New())
	f, err := o.follow([2]int64{0, 0})
	if err != nil {
		t.Fatal(err)
	}
	fill := func(n int) { o.rings[stdout].append(make([]byte, n), false) }
	fill(minRing)
	now := o.clock.Now()
	if n, _ := o.roomFor(stdout, now); n != 0 {
		t.Errorf("room for %d bytes before the first was sent", n)
	}
	buf := make([]byte, most)
	for range minRing / most {
		if _, n, _ := o.next(f, stdout, buf); n != most {
			t.Fatalf("%d bytes", n)
		}
	}
	fill(ahead) // which is all that it may lose
	if n, _ := o.roomFor(stdout, now); n != 0 || o.rings[stdout].start != ahead {
		t.Errorf("room for %d bytes of what may be on the way", n)
	}
	if n, _ := o.roomFor(stderr, now); n != most {
		t.Errorf("the other stream has room for %d bytes", n)
	}
	o.leave(f, true)
	n, again := o.roomFor(stdout, o.clock.Now())
	if n != 0 || again < leaseTime/2 || again > leaseTime {
		t.Errorf("just cut: room for %d bytes, again in %v", n, again)
	}
	if n, _ = o.roomFor(stdout, o.clock.Now()+leaseTime); n != most {
		t.Errorf("cut long ago: room for %d bytes", n)
	}
	o.ended = true
	if n, _ = o.roomFor(stdout, o.clock.Now()); n != most {
		t.Errorf("after the process's end: room for %d bytes", n)
	}
}

func TestRecordsOfEndedProcessesAreBounded(t *testing.T) {
	r := begin(t, harness.Users()[0])
	alive := r.sh("sleep 600")
	var first, last uint32
	for i := range maxEnded + 5 {
		last = r.sh("true")
		if i == 0 {
			first = last
		}
	}
	r.waitEnd(t, last)
	var large []uint32
	for range maxEndedBytes/maxRing + 1 {
		last = r.sh("head -c 4194304 /dev/zero", func(m *pb.StartRequest) { m.KeepBytes, m.Detached = maxRing, true })
		r.waitEnd(t, last)
		large = append(large, last)
	}
	// The small ones have ended, and it may take a moment until all of them are told of.
	var list []*pb.Process
	listed := func() []*pb.Process {
		res, err := r.ProcessesClient.List(deadline(t), connect.NewRequest(&pb.ListProcessesRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		return res.Msg.Processes
	}
	until(func() bool {
		list = listed()
		running := 0
		for _, p := range list {
			if p.End == nil {
				running++
			}
		}
		return running == 1 && len(list) <= maxEnded+1
	})
	var pids []string
	for _, p := range list {
		pids = append(pids, fmt.Sprint(p.Pid))
	}
	kept := " " + strings.Join(pids, " ") + " "
	for pid, want := range map[uint32]bool{alive: true, first: false, large[0]: false, large[1]: true, last: true} {
		if strings.Contains(kept, fmt.Sprintf(" %d ", pid)) != want {
			t.Errorf("process %d: want %v, of %s", pid, want, kept)
		}
	}
	if len(pids) > maxEnded+1 {
		t.Errorf("%d records", len(pids))
	}
	_, err := r.Signal(deadline(t), connect.NewRequest(&pb.SignalRequest{Pid: first, Signal: 9}))
	wantError(t, err, connect.CodeNotFound, "is forgotten")
	r.signal(t, alive, syscall.SIGKILL, false)
}

// TestRingsOfAllProcessesAreBounded: those that come when there is no more keep
// less, and go on.
func TestRingsOfAllProcessesAreBounded(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	var held atomic.Int64
	var all []*output
	scratch := make([]byte, most)
	for range 2 * maxHeld / maxRing {
		o := newOutput(maxRing, false, clock.New())
		o.held = &held
		all = append(all, o)
		for range maxRing/most + 1 {
			if _, err := w.Write(scratch); err != nil {
				t.Fatal(err)
			}
			if n, err := o.readInto(stdout, int(r.Fd()), scratch); n != most || err != nil {
				t.Fatalf("took %d bytes, %v", n, err)
			}
		}
	}
	if n := held.Load(); n > maxHeld+maxRing+int64(len(all))*lowRing || n < maxHeld {
		t.Errorf("%d processes hold %d bytes", len(all), n)
	}
	if first, last := all[0].rings[stdout].size, all[len(all)-1].rings[stdout].size; first != maxRing || last != lowRing {
		t.Errorf("the first has %d bytes, the last %d", first, last)
	}
	for _, o := range all {
		o.finish()
	}
	if n := held.Load(); n != 0 {
		t.Errorf("after all have ended: %d bytes", n)
	}
}

func TestRingKeepsTheTail(t *testing.T) {
	dice := rand.New(rand.NewPCG(3, 4))
	r := ring{size: 1000}
	var all []byte
	for range 2000 {
		b := make([]byte, dice.IntN(300))
		for i := range b {
			b[i] = byte(dice.Int())
		}
		all = append(all, b...)
		r.append(b, false)
		if dice.IntN(50) == 0 && len(r.buf) > 0 {
			r.resize(max(int(r.end-r.start), 1))
		}
		var got []byte
		for p := r.start; p < r.end; p = r.start + uint64(len(got)) {
			got = append(got, r.at(p, 1+dice.IntN(400))...)
		}
		if r.end != uint64(len(all)) || !bytes.Equal(got, all[r.start:]) || len(r.buf) > r.size || r.start > 0 && len(got) < min(len(all), len(r.buf)) {
			t.Fatalf("kept %d of %d bytes from %d, buffer %d", len(got), len(all), r.start, len(r.buf))
		}
	}
}
