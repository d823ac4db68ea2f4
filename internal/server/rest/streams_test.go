package rest_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/internal/server/rest"
	"github.com/sunaba-dev/sunaba/internal/server/servertest"
)

func TestForegroundRunIsTold(t *testing.T) {
	d := serve(t)
	id := d.box()
	res := d.open(t.Context(), ask{method: "POST", path: at(id, "/exec"), key: servertest.Key, body: map[string]any{"command": words("both")}})
	defer res.Body.Close()
	if got := res.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Fatalf("content type %q", got)
	}
	var s story
	s.read(t, readEvents(res.Body))
	switch {
	case s.start == nil || s.start.TimeoutSec != 60:
		t.Errorf("the start does not tell the limit that was not asked for: %+v", s.start)
	case string(s.stdout) != "to stdout\n" || string(s.stderr) != "to stderr\n":
		t.Errorf("output %q, %q", s.stdout, s.stderr)
	case s.end == nil || s.end.ExitCode == nil || *s.end.ExitCode != 0 || s.end.StdoutBytes != 10:
		t.Errorf("end %+v", s.end)
	}
}

func TestForegroundRunAsOneDocument(t *testing.T) {
	d := serve(t)
	id := d.box()
	var got rest.ExecResult
	exec := ask{method: "POST", path: at(id, "/exec"), header: map[string]string{"Accept": "application/json"}}
	exec.body = map[string]any{"shell": "cat", "stdin_data": "hello \x1b[31m"}
	d.want(200, exec, &got)
	if *got.Stdout != "hello \x1b[31m" || got.StdoutClean != `hello \x1b[31m` || *got.ExitCode != 0 || got.Truncated {
		t.Errorf("%+v", got)
	}
	exec.body = map[string]any{"command": words("bytes ff00")}
	got = rest.ExecResult{}
	d.want(200, exec, &got)
	if got.Stdout != nil || got.StdoutBase64 == nil || *got.StdoutBase64 != "/wA=" {
		t.Errorf("bytes that are not text: %+v", got)
	}
	exec.body = map[string]any{"command": words("flood 3000000")}
	got = rest.ExecResult{}
	d.want(200, exec, &got)
	if !got.StdoutTruncated || !got.Truncated || got.StdoutBytes != 3000000 || len(*got.Stdout) != 1<<20 {
		t.Errorf("a long output: truncated %t, %d bytes in all, %d kept", got.StdoutTruncated, got.StdoutBytes, len(*got.Stdout))
	}
	exec.body = map[string]any{"command": words("exit 3")}
	d.want(200, exec, &got)
	if *got.ExitCode != 3 {
		t.Errorf("exit code %d, want 3", *got.ExitCode)
	}
}

// A limit that nobody asked for is told when it strikes, with its length and
// the way to lift it; none at all is zero, not the default.
func TestTimeLimitIsNamedWhenItStrikes(t *testing.T) {
	d := serve(t)
	id := d.box()
	var got rest.ExecResult
	exec := ask{method: "POST", path: at(id, "/exec"), header: map[string]string{"Accept": "application/json"}}
	exec.body = map[string]any{"command": words("wait"), "timeout_sec": 0.2}
	d.want(200, exec, &got)
	if got.Cause != "deadline" || !got.TimedOut || got.ExitCode != nil || !strings.Contains(got.Message, "0.2 s (timeout_sec)") {
		t.Errorf("%+v", got)
	}
	var p rest.Started
	d.want(201, ask{method: "POST", path: at(id, "/processes"), body: map[string]any{"command": words("wait"), "timeout_sec": 0}}, &p)
	if p.TimeoutSec != 0 {
		t.Errorf("timeout_sec 0 became %g", p.TimeoutSec)
	}
}

// A character that the program wrote in two pieces arrives as one; half of one
// is not kept back for ever; what is no text comes in base64.
func TestTextIsNotCut(t *testing.T) {
	d := serve(t)
	id := d.box()
	for _, c := range []struct{ hex, want string }{
		{"e2 82ac", "€"}, {"61e2 82 ac62", "a€b"}, {"e2", "\xe2"}, {"ff 61", "\xffa"}, {"c3 c3a9", "\xc3é"},
	} {
		pid := d.start(id, map[string]any{"command": append([]string{"bytes"}, words(c.hex)...)})
		res := d.open(t.Context(), ask{method: "GET", path: at(id, "/processes/%d/output", pid), key: servertest.Key})
		var s story
		s.read(t, readEvents(res.Body))
		res.Body.Close()
		if string(s.stdout) != c.want || s.end == nil {
			t.Errorf("%s became %q", c.hex, s.stdout)
		}
	}
}

// 30 outputs of 10 MB, side by side, arrive whole and in order.
func TestParallelOutputsArriveWhole(t *testing.T) {
	const streams, size = 30, 10_000_000 // test/field has fifty, of real boxes
	d := serve(t)
	id := d.box()
	var wg sync.WaitGroup
	begin := time.Now()
	for range streams {
		wg.Go(func() {
			res := d.open(t.Context(), ask{method: "POST", path: at(id, "/exec"), key: servertest.Key, body: map[string]any{"command": []string{"flood", strconv.Itoa(size)}, "timeout_sec": 0}})
			defer res.Body.Close()
			if n, err := checkFlood(res.Body, 0); err != nil || n != size {
				t.Errorf("%d bytes of %d arrived in order: %v", n, size, err)
			}
		})
	}
	wg.Wait()
	t.Logf("%d streams of %d bytes in %.1f s", streams, size, time.Since(begin).Seconds())
}

// checkFlood reads a stream of what flood writes from a position on, and returns
// how many bytes came in order until the end.
func checkFlood(r io.Reader, from int64) (int64, error) {
	events, want, at := readEvents(r), make([]byte, 64<<10), from
	for {
		e, err := events.next()
		if err != nil {
			return at - from, err
		}
		switch e.name {
		case "end":
			return at - from, nil
		case "stdout":
			var p rest.Piece
			if err := jsonInto(e.data, &p); err != nil {
				return at - from, err
			}
			servertest.Pattern(want[:len(p.Data)], at)
			if p.At != at || p.Lost != 0 || p.Data != string(want[:len(p.Data)]) {
				return at - from, errOutOfOrder
			}
			at += int64(len(p.Data))
		case "error":
			return at - from, errOutOfOrder
		}
	}
}

// A client that reads a byte a second holds the program up, and costs no memory.
func TestSlowReaderCostsNoMemory(t *testing.T) {
	d := serve(t)
	id := d.box()
	conn, err := net.Dial("tcp", d.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body := `{"command":["flood","500000000"],"timeout_sec":0}`
	io.WriteString(conn, "POST "+at(id, "/exec")+" HTTP/1.1\r\nHost: "+d.addr+"\r\nX-API-Key: "+servertest.Key+"\r\nContent-Type: application/json\r\nContent-Length: 49\r\n\r\n"+body)
	one := make([]byte, 1)
	if _, err := conn.Read(one); err != nil {
		t.Fatal(err)
	}
	written := func() int64 {
		var p rest.Process
		d.want(200, ask{method: "GET", path: at(id, "/processes/11")}, &p)
		if p.End != nil {
			t.Fatalf("the program ended: %+v", p.End)
		}
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := written()
	for range 4 {
		time.Sleep(time.Second)
		if _, err := conn.Read(one); err != nil {
			t.Fatal(err)
		}
	}
	if after := written(); after-before > 2<<20 {
		t.Errorf("the heap grew from %d to %d bytes while a client read a byte a second", before, after)
	}
}

// A stream that is cut anywhere goes on from the last event: every byte comes
// once.
func TestCutStreamGoesOn(t *testing.T) {
	const size = 5_000_000
	d := serve(t)
	id := d.box()
	pid := d.start(id, map[string]any{"command": []string{"flood", "5000000"}, "timeout_sec": 0})
	var s story
	cuts := 0
	for s.end == nil {
		ctx, cut := context.WithCancel(t.Context())
		a := ask{method: "GET", path: at(id, "/processes/%d/output", pid), key: servertest.Key}
		if s.last != "" {
			a = a.with("Last-Event-ID", s.last)
		}
		res := d.open(ctx, a)
		events := readEvents(res.Body)
		for range 40 + cuts { // cut in the middle of one
			e, err := events.next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := s.take(e); err != nil {
				t.Fatal(err)
			}
		}
		cut()
		res.Body.Close()
		cuts++
	}
	want := make([]byte, size)
	servertest.Pattern(want, 0)
	if !bytes.Equal(s.stdout, want) || s.end.StdoutBytes != size {
		t.Errorf("%d bytes arrived, want %d, in order", len(s.stdout), size)
	}
	if cuts < 5 {
		t.Errorf("the stream was cut %d times only", cuts)
	}
}

// A caller that goes away ends its program, also when it had stopped reading; a
// detached one lives on.
func TestProgramEndsWithItsCaller(t *testing.T) {
	for _, c := range []struct {
		name, command, accept string
		detached, lives       bool
	}{
		{"silent", "wait", "", false, false},
		{"flooding, nobody reads", "flood 500000000", "", false, false},
		{"one document", "wait", "application/json", false, false},
		{"detached", "wait", "", true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := serve(t)
			id := d.box()
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				body := ask{body: map[string]any{"command": words(c.command), "timeout_sec": 0, "detached": c.detached}}.bytes()
				r, _ := http.NewRequestWithContext(ctx, "POST", d.url+at(id, "/exec"), bytes.NewReader(body))
				r.Header.Set("X-API-Key", servertest.Key)
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Accept", c.accept)
				if res, err := d.client.Do(r); err == nil {
					<-ctx.Done()
					res.Body.Close()
				}
			}()
			until(t, "the program runs", longest, func() bool { return d.service.Live() == 1 })
			time.Sleep(300 * time.Millisecond) // let it fill what there is between it and the caller
			leave()
			<-gone
			if c.lives {
				time.Sleep(time.Second)
				if d.service.Live() != 1 {
					t.Error("a detached program ended with its caller")
				}
				return
			}
			until(t, "the program has ended", longest, func() bool { return d.service.Live() == 0 })
		})
	}
}

// One that only follows is no caller: the program lives on.
func TestFollowerMayGo(t *testing.T) {
	d := serve(t)
	id := d.box()
	pid := d.start(id, map[string]any{"command": words("wait")})
	ctx, leave := context.WithCancel(t.Context())
	res := d.open(ctx, ask{method: "GET", path: at(id, "/processes/%d/output", pid), key: servertest.Key})
	leave()
	res.Body.Close()
	time.Sleep(300 * time.Millisecond)
	if d.service.Live() != 1 {
		t.Error("the program ended with who followed it")
	}
}

// A box that goes away while its output is followed ends the stream with an
// error, or with an end that was seen: never with a success.
func TestLostBoxIsNoSuccess(t *testing.T) {
	d := serve(t)
	id := d.box()
	res := d.open(t.Context(), ask{method: "POST", path: at(id, "/exec"), key: servertest.Key, body: map[string]any{"command": words("wait")}})
	defer res.Body.Close()
	events := readEvents(res.Body)
	if e, err := events.next(); err != nil || e.name != "start" {
		t.Fatal(e, err)
	}
	d.want(204, ask{method: "DELETE", path: at(id, "")}, nil)
	rest := events.all(t)
	last := rest[len(rest)-1]
	if last.name != "error" && !strings.Contains(string(last.data), `"lost"`) {
		t.Errorf("the last event is %s %s", last.name, last.data)
	}
}

// longest is for how long something is waited for that has to come: much more than
// it takes on a host that has other things to do.
const longest = 2 * time.Minute

func until(t *testing.T, what string, most time.Duration, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(most); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %s it is not so that %s", most, what)
		}
	}
}
