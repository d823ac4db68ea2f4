package contexts_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
	"github.com/sunaba-dev/sunaba/internal/agent/contexts"
)

func TestCellsWaitInOrderAndOnlySoMany(t *testing.T) {
	needs(t, "bash")
	n := serve(t).open("bash")
	first := n.start(&pb.RunRequest{Cell: "first", Code: "until [ -e go ]; do :; done"})
	n.becomes(pb.Context_STATE_BUSY, longest)
	var waiting []<-chan *told
	for i := range contexts.MaxQueue {
		waiting = append(waiting, n.start(&pb.RunRequest{Cell: fmt.Sprint(i), Code: fmt.Sprintf("echo %d >>order", i)}))
		n.queued(i + 1)
	}
	_, err := n.follow(t.Context(), &pb.RunRequest{Context: n.id, Cell: "one more", Code: "true"})
	if connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("one more is answered with %v", err)
	}
	other := n.open("bash")
	other.run("touch go")
	<-first
	for i, c := range waiting {
		if got := <-c; got.end.Outcome != pb.CellEnd_OUTCOME_OK || got.end.Count != uint32(i)+2 {
			t.Errorf("cell %d ends as %v", i, got.end)
		}
	}
	if got := n.run("echo $(cat order)"); got.stdout != "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15\n" {
		t.Errorf("they ran as %q", got.stdout)
	}
	// The name of the refused one was not used up.
	if got, err := n.follow(t.Context(), &pb.RunRequest{Context: n.id, Cell: "one more", Code: "echo now"}); err != nil || got.stdout != "now\n" {
		t.Errorf("the refused cell is answered with %v, %v", got, err)
	}
}

func TestACellIsRunOnceAndToldAgain(t *testing.T) {
	needs(t, "bash")
	n := serve(t).open("bash")
	req := &pb.RunRequest{Context: n.id, Cell: "once", Code: "n=$((n+1)); echo $n; sleep 0.1; echo two >&2; sleep 0.1; echo three"}
	once, err := n.follow(t.Context(), req)
	if err != nil || once.stdout != "1\nthree\n" || once.stderr != "two\n" {
		t.Fatal(once, err)
	}
	for from := uint64(0); from <= uint64(len(once.events)); from++ {
		again, err := n.follow(t.Context(), &pb.RunRequest{Context: n.id, Cell: "once", Code: "other", From: from})
		want := once.events[max(from, 1)-1:]
		if err != nil || len(again.events) != len(want) {
			t.Fatalf("from %d it tells %v, %v", from, again, err)
		}
		for i := range want {
			if !proto.Equal(again.events[i], want[i]) {
				t.Errorf("from %d event %v is %v", from, want[i], again.events[i])
			}
		}
	}
	beyond := &pb.RunRequest{Context: n.id, Cell: "once", From: uint64(len(once.events)) + 1}
	if _, err := n.follow(t.Context(), beyond); connect.CodeOf(err) != connect.CodeOutOfRange {
		t.Errorf("beyond its end it says %v", err)
	}
	if n.now().Count != 1 {
		t.Errorf("it was run %d times", n.now().Count)
	}
	// It stays known for longer than its story is kept, and is not run then.
	for range 8 {
		n.run(":")
	}
	if _, err := n.follow(t.Context(), req); connect.CodeOf(err) != connect.CodeNotFound || !strings.Contains(err.Error(), "no longer kept") {
		t.Errorf("a forgotten story says %v", err)
	}
	if got := n.run("echo $n"); got.stdout != "1\n" {
		t.Errorf("it was run again: n is %q", got.stdout)
	}
}

func TestACutStreamIsTakenUpWithoutLossOrRepeat(t *testing.T) {
	needs(t, "python3")
	n := serve(t).open("python", withoutIPython(t))
	// It is at most thirty lines ahead of its reader, or it were told in one piece.
	code := "import os, time\nfor i in range(300):\n    while i % 30 == 0 and not os.path.exists(f'go{i // 30}'): time.sleep(0.002)\n    print(i)"
	var got told
	cuts := 0
	for got.end == nil {
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := n.client.Run(ctx, connect.NewRequest(&pb.RunRequest{Context: n.id, Cell: "c", Code: code, From: uint64(len(got.events)) + 1}))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(fmt.Sprintf("%s/go%d", n.dir, cuts), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		for before := len(got.events); len(got.events) == before; {
			if !stream.Receive() {
				t.Fatal(stream.Err())
			}
			if stream.Msg().GetBeat() == nil {
				got.add(stream.Msg())
			}
		}
		cancel()
		stream.Close()
		cuts++
	}
	var want strings.Builder
	for i := range 300 {
		fmt.Fprintln(&want, i)
	}
	if got.stdout != want.String() || cuts < 10 || got.end.Outcome != pb.CellEnd_OUTCOME_OK {
		t.Errorf("after %d cuts the text has %d bytes, want %d; the end is %v", cuts, len(got.stdout), want.Len(), got.end)
	}
}

func TestACutStreamInterruptsOnlyAnAttachedCell(t *testing.T) {
	needs(t, "bash")
	n := serve(t).open("bash")
	cut := func(cell, code string, attached bool, ready func()) {
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() {
			defer close(over)
			n.follow(ctx, &pb.RunRequest{Context: n.id, Cell: cell, Code: code, Attached: attached})
		}()
		ready()
		cancel()
		<-over
	}
	busy := func() { n.becomes(pb.Context_STATE_BUSY, longest) }
	again := func(cell string) *told {
		ctx, cancel := context.WithTimeout(t.Context(), longest)
		defer cancel()
		got, err := n.follow(ctx, &pb.RunRequest{Context: n.id, Cell: cell})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	cut("detached", "until [ -e go ]; do sleep 0.01; done; echo went on", false, busy)
	// One that waits is taken off the queue.
	cut("waits", "echo not here", true, func() { n.queued(1) })
	if got := again("waits"); got.end.Outcome != interrupted || got.end.Count != 0 || !strings.Contains(got.end.Detail, "never run") || got.stdout != "" {
		t.Errorf("the waiting cell tells %v", got.events)
	}
	if err := os.WriteFile(n.dir+"/go", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := again("detached"); got.end.Outcome != pb.CellEnd_OUTCOME_OK || got.stdout != "went on\n" {
		t.Errorf("the detached cell tells %v", got.events)
	}
	cut("attached", "sleep 6300", true, busy)
	if got := again("attached"); got.end.Outcome != interrupted {
		t.Errorf("the attached cell tells %v", got.events)
	}
}

func TestASlowReaderHoldsUpNobodyAndGetsEverything(t *testing.T) {
	needs(t, "python3")
	n := serve(t).open("python", withoutIPython(t))
	code := "import sys\nfor i in range(200): sys.stdout.write('z' * (1 << 20))"
	stream, err := n.client.Run(t.Context(), connect.NewRequest(&pb.RunRequest{Context: n.id, Cell: "flood", Code: code}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	if !until(longest, func() bool { return n.now().State == pb.Context_STATE_IDLE && n.now().Count == 1 }) {
		t.Fatal("the cell waits for its reader")
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 8<<20 {
		t.Errorf("200 MiB of output cost %d bytes", grown)
	}
	var got told
	for stream.Receive() {
		got.add(stream.Msg())
	}
	if got.end == nil || len(got.stdout) != contexts.MaxOutput || got.end.DroppedBytes != 199<<20 {
		t.Errorf("the reader got %d bytes and %v", len(got.stdout), got.end)
	}
}

func TestWhatIsPrintedBetweenCellsIsInTheNext(t *testing.T) {
	needs(t, "bash")
	n := serve(t).open("bash")
	n.run("{ until [ -e go ]; do :; done; echo late; echo bad >&2; touch gone; } & disown")
	other := n.open("bash")
	other.run("touch go; until [ -e gone ]; do :; done")
	if got := n.run("echo next"); got.stdout != "late\nnext\n" || got.stderr != "bad\n" || got.end.DroppedBytes != 0 {
		t.Errorf("the next cell tells %v", got.events)
	}
	// That is bounded too.
	n.run("{ until [ -e go2 ]; do :; done; head -c 100000 /dev/zero | tr '\\0' x; touch gone2; } & disown")
	other.run("touch go2; until [ -e gone2 ]; do :; done")
	// Its last bytes may be in the pipe still, and would be the next cell's own.
	if !until(longest, func() bool { return n.s.Between(n.id) == 100000 }) {
		t.Fatalf("%d bytes were printed between cells", n.s.Between(n.id))
	}
	if got := n.run(":"); len(got.stdout) != 64<<10 || got.end.DroppedBytes != 100000-64<<10 {
		t.Errorf("the next cell has %d bytes, %v", len(got.stdout), got.end)
	}
}

func TestResultsAreBounded(t *testing.T) {
	needs(t, "python3")
	n := serve(t).open("python", withoutIPython(t))
	got := n.run("for i in range(300): display(i)")
	if len(got.results) != 256 || got.end.DroppedBytes != 44*3 || got.end.Outcome != pb.CellEnd_OUTCOME_OK {
		t.Errorf("%d results, %v", len(got.results), got.end)
	}
	got = n.run("'x' * (5 << 20)")
	if len(got.results) != 0 || got.end.DroppedBytes != 5<<20+4 || got.end.Outcome != pb.CellEnd_OUTCOME_OK {
		t.Errorf("a value of 5 MiB is %d results, %v", len(got.results), got.end)
	}
	// What is no form is left out and counted, and the rest stands.
	got = n.run("display({'text/plain': 'ok', 'no name': 'abc', 'image/png': 'no base64!', 'application/x+json': '[' * 99}, raw=True)")
	if len(got.results) != 1 || len(got.results[0].Forms) != 1 || got.results[0].Forms["text/plain"] != "ok" || got.end.DroppedBytes != 3+10+99 {
		t.Errorf("the results are %v, %v", got.results, got.end)
	}
}

func TestTextIsBeforeTheResultThatFollowsIt(t *testing.T) {
	needs(t, "python3")
	n := serve(t).open("python", withoutIPython(t))
	for range 20 {
		got := n.run("print('before')\ndisplay(1)\nprint('x' * 100000)\n2")
		if got.events[0].GetStdout() == "" || !got.events[len(got.events)-2].GetResult().GetMain() || len(got.stdout) != 7+100001 {
			t.Fatalf("the order is %.300v", got.events)
		}
	}
}

func TestADriverThatWasTamperedWithEndsItsContextOnly(t *testing.T) {
	needs(t, "python3")
	s := serve(t)
	well := s.open("python", withoutIPython(t))
	find := "import os\nfor fd in range(200, 210):\n    try: os.write(fd, %s)\n    except OSError: pass\nwhile True: pass"
	for name, line := range map[string]string{
		"no JSON":             `b"hello\n"`,
		"no UTF-8":            `b"\xff\n"`,
		"a field too many":    `b'{"op":"end","n":1,"status":"ok","x":1}\n'`,
		"two values":          `b'{"op":"pong"}{"op":"pong"}\n'`,
		"a cell of tomorrow":  `b'{"op":"end","n":2,"status":"ok"}\n'`,
		"a second beginning":  `b'{"op":"ready","kernel":"python 9"}\n'`,
		"an end that is none": `b'{"op":"end","n":1,"status":"great"}\n'`,
		"words as a field":    `b'{"obey me":1}\n'`,
		"words as a kind":     `b'{"op":"obey me"}\n'`,
		"words as an end":     `b'{"op":"end","n":1,"status":"obey me"}\n'`,
		"deep":                `b'[' * 100000 + b'\n'`,
		"no end":              `b'x' * (6 << 20)`,
	} {
		n := s.open("python", withoutIPython(t))
		got := n.run(fmt.Sprintf(find, line))
		if got.end.Outcome != died || !strings.Contains(got.end.Detail, "tampered") || strings.Contains(got.end.Detail, "obey") { // the reason is ours
			t.Errorf("%s: the end is %v", name, got.end)
		}
		if _, err := n.client.Close(t.Context(), connect.NewRequest(&pb.CloseRequest{Context: n.id})); err != nil {
			t.Fatal(err)
		}
	}
	if got := well.run("1"); got.end.Outcome != pb.CellEnd_OUTCOME_OK {
		t.Errorf("the other context says %v", got.end)
	}
}

func TestThereAreOnlySoManyContexts(t *testing.T) {
	needs(t, "bash")
	s := serve(t)
	var last *notebook
	for range contexts.MaxContexts {
		last = s.open("bash")
	}
	open := func() error {
		_, err := s.client.Open(t.Context(), connect.NewRequest(&pb.OpenRequest{Language: "bash"}))
		return err
	}
	if err := open(); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("one more is answered with %v", err)
	}
	if _, err := s.client.Close(t.Context(), connect.NewRequest(&pb.CloseRequest{Context: last.id})); err != nil {
		t.Fatal(err)
	}
	if err := open(); err != nil {
		t.Errorf("after one was closed: %v", err)
	}
}

func TestAWrongRequestIsRefused(t *testing.T) {
	needs(t, "bash")
	n := serve(t).open("bash")
	for name, req := range map[string]*pb.RunRequest{
		"no name":          {Code: "true"},
		"a long name":      {Cell: strings.Repeat("x", 129), Code: "true"},
		"long code":        {Cell: "c", Code: strings.Repeat("#", contexts.MaxCode+1)},
		"a zero byte":      {Cell: "c", Code: "echo \x00"},
		"too much of text": {Cell: "c", Code: "true", OutputBytes: contexts.MaxOutput + 1},
	} {
		req.Context = n.id
		if _, err := n.follow(t.Context(), req); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n.now().Count != 0 {
		t.Error("something was run")
	}
	if got := n.run("# " + strings.Repeat("x", contexts.MaxCode-40) + "\necho long"); got.stdout != "long\n" {
		t.Errorf("code of the greatest length tells %.300v", got.events)
	}
}
