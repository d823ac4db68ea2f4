package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/client"
	"github.com/sunaba-dev/sunaba/internal/server"
	"github.com/sunaba-dev/sunaba/internal/server/rest"
	"github.com/sunaba-dev/sunaba/internal/server/servertest"
)

// daemon serves boxes in memory, and returns where.
func daemon(t *testing.T) (*servertest.Service, string) {
	t.Helper()
	s := servertest.New()
	api := rest.New(rest.Config{Service: s, SignKey: make([]byte, 32)})
	h := httptest.NewServer(server.New(server.Config{Auth: s.Auth, Mounts: api.Mounts(), Loopback: true}))
	t.Cleanup(h.Close)
	return s, h.URL
}

func dial(t *testing.T, url, key string) *client.Client {
	t.Helper()
	c, err := client.New(url, key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// made makes a box, and opens it.
func made(t *testing.T, c *client.Client) (box.Info, *client.Guest) {
	t.Helper()
	i, err := c.Create(t.Context(), box.Caller{}, box.CreateRequest{TTL: time.Hour, Metadata: map[string]string{"a": "b c"}})
	if err != nil {
		t.Fatal(err)
	}
	g, err := c.Guest(t.Context(), box.Caller{}, i.ID, box.ScopeExec)
	if err != nil {
		t.Fatal(err)
	}
	return i, g.(*client.Guest)
}

func TestBoxesAreWhatTheDaemonSays(t *testing.T) {
	_, url := daemon(t)
	c, ctx := dial(t, url, servertest.Key), t.Context()
	i, _ := made(t, c)
	if i.Phase != box.PhaseRunning || i.Metadata["a"] != "b c" || i.Ends.IsZero() {
		t.Errorf("made %+v", i)
	}
	again, err := c.Inspect(ctx, box.Caller{}, i.ID)
	if err != nil || again.ID != i.ID {
		t.Errorf("inspect: %+v, %v", again, err)
	}
	for range 4 {
		made(t, c)
	}
	var all []box.ID
	for r := (box.ListRequest{Limit: 2}); ; {
		page, next, err := c.List(ctx, box.Caller{}, r)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range page {
			all = append(all, b.ID)
		}
		if r.Cursor = next; next == "" {
			break
		}
	}
	if len(all) != 5 || all[0] != i.ID {
		t.Errorf("list is %v", all)
	}
	longer, err := c.Prolong(ctx, box.Caller{}, i.ID, 5*time.Hour)
	if err != nil || !longer.Ends.After(i.Ends) {
		t.Errorf("prolong: %v, %v", longer.Ends, err)
	}
	if p, err := c.Pause(ctx, box.Caller{}, i.ID); err != nil || p.Phase != box.PhasePaused || p.Paused.IsZero() || p.OnIdle != box.IdleDestroy {
		t.Errorf("pause: %+v, %v", p, err)
	}
	if p, err := c.Resume(ctx, box.Caller{}, i.ID); err != nil || p.Phase != box.PhaseRunning || !p.Paused.IsZero() {
		t.Errorf("resume: %+v, %v", p, err)
	}
	if err := c.Destroy(ctx, box.Caller{}, i.ID); err != nil {
		t.Error(err)
	}
	me, err := c.Whoami(ctx, box.Caller{})
	if err != nil || me.Tenant != "alice" || me.Boxes.Most != 10 {
		t.Errorf("whoami: %+v, %v", me, err)
	}
}

func TestErrorsKeepTheirKindAndHint(t *testing.T) {
	s, url := daemon(t)
	ctx := t.Context()
	i, _ := made(t, dial(t, url, servertest.Key))
	_, err := dial(t, url, servertest.OtherKey).Inspect(ctx, box.Caller{}, i.ID)
	if box.KindOf(err) != box.NotFound {
		t.Errorf("another tenant's box: %v", err)
	}
	if _, err := dial(t, url, "wrong").Whoami(ctx, box.Caller{}); box.KindOf(err) != box.Denied {
		t.Errorf("a wrong key: %v", err)
	}
	full := box.Errorf(box.Exhausted, "x", "cannot make a box: all are taken").WithHint("later")
	full.Retry = 7 * time.Second
	s.Refuse(full)
	_, err = dial(t, url, servertest.Key).Inspect(ctx, box.Caller{}, i.ID)
	var be *box.Error
	if !errors.As(err, &be) || be.Kind != box.Exhausted || be.Hint != "later" || be.Retry != 7*time.Second || be.Message != full.Message {
		t.Errorf("a full daemon: %+v", be)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	_, err = dial(t, "http://"+l.Addr().String(), "k").Whoami(ctx, box.Caller{})
	if box.KindOf(err) != box.Unavailable || !strings.Contains(err.Error(), "cannot reach the daemon at http://127.0.0.1") {
		t.Errorf("no daemon: %v", err)
	}
	for _, bad := range []string{"", "127.0.0.1:7462", "ftp://x", "http://u:p@x", "http://x/?q"} {
		if _, err := client.New(bad, "k"); box.KindOf(err) != box.Invalid {
			t.Errorf("server %q: %v", bad, err)
		}
	}
}

func TestFilesGoBothWaysByteForByte(t *testing.T) {
	_, url := daemon(t)
	_, g := made(t, dial(t, url, servertest.Key))
	ctx := t.Context()
	data := bytes.Repeat([]byte{0, 1, 0xff, '\n'}, 100_000)
	const name = "/workspace/we\nird/\xffname"
	e, err := g.Write(ctx, name, box.WriteOptions{Parents: true, Mode: 0o600}, bytes.NewReader(data))
	if err != nil || e.Size != int64(len(data)) || e.Path != name || e.Mode != 0o600 {
		t.Fatalf("write: %+v, %v", e, err)
	}
	if _, err := g.Write(ctx, name, box.WriteOptions{Exclusive: true}, strings.NewReader("")); box.KindOf(err) != box.Conflict {
		t.Errorf("write what is there: %v", err)
	}
	for _, c := range []struct{ offset, length, from, to int64 }{{0, -1, 0, 400_000}, {10, 5, 10, 15}, {399_990, 100, 399_990, 400_000}, {400_000, -1, 0, 0}, {7, 0, 0, 0}, {0, 3, 0, 3}} {
		_, r, err := g.Read(ctx, name, c.offset, c.length)
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		got, err := io.ReadAll(r)
		r.Close()
		if err != nil || !bytes.Equal(got, data[c.from:c.to]) {
			t.Errorf("%+v: %d bytes, %v", c, len(got), err)
		}
	}
	list, cut, err := g.List(ctx, "/workspace", 3, 100)
	if err != nil || cut || len(list) == 0 || list[len(list)-1].Path != name {
		t.Errorf("list: %+v, %v, %v", list, cut, err)
	}
	var archive bytes.Buffer
	if err := g.Pack(ctx, "/workspace", 1<<30, &archive); err != nil || archive.Len() < len(data) {
		t.Errorf("pack: %d bytes, %v", archive.Len(), err)
	}
	mine := errors.New("mine")
	r, w := io.Pipe()
	r.CloseWithError(mine)
	if err := g.Pack(ctx, "/workspace", 1<<30, w); !errors.Is(err, mine) || box.KindOf(err) != box.Fault {
		t.Errorf("pack into what is closed: %v", err)
	}
	if err := g.Move(ctx, name, "/workspace/plain", false); err != nil {
		t.Error(err)
	}
	if st, err := g.Stat(ctx, "/workspace/plain", true); err != nil || st.Size != int64(len(data)) {
		t.Errorf("stat: %+v, %v", st, err)
	}
	if err := g.Remove(ctx, "/workspace/plain", false); err != nil {
		t.Error(err)
	}
	if _, err := g.Stat(ctx, "/workspace/plain", true); box.KindOf(err) != box.NotFound {
		t.Errorf("what was removed: %v", err)
	}
}

// cutter stands between a client and a daemon, and cuts every connection after
// so many bytes of answer.
func cutter(t *testing.T, url string, after int) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				d, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
				if err != nil {
					return
				}
				defer d.Close()
				defer context.AfterFunc(t.Context(), func() { c.Close(); d.Close() })()
				go io.Copy(d, c)
				io.CopyN(c, d, int64(after))
			})
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return "http://" + l.Addr().String()
}

func TestCutStreamGivesEveryByteOnce(t *testing.T) {
	_, url := daemon(t)
	c := dial(t, url, servertest.Key)
	i, g := made(t, c)
	ctx := t.Context()
	p, err := g.Start(ctx, box.ProcessSpec{Command: box.Command{Argv: []string{"cat"}}, Stdin: true, Keep: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	for n := range 20_000 {
		fmt.Fprintf(&want, "line %d\n", n)
	}
	go func() {
		for at := int64(0); at < int64(want.Len()); {
			next, err := g.Input(ctx, box.ProcessRef{PID: p.PID}, box.Input{At: at, Data: want.Bytes()[at:], End: true})
			if err != nil {
				t.Error(err)
				return
			}
			at = next
		}
	}()
	shaky := dial(t, cutter(t, url, 40_000), servertest.Key)
	sg, err := shaky.Guest(ctx, box.Caller{}, i.ID, box.ScopeExec)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	var end *box.End
	err = sg.Follow(ctx, box.ProcessRef{PID: p.PID}, box.Positions{}, func(e box.ProcessEvent) error {
		switch e.Kind {
		case box.EventStdout:
			if e.At != int64(got.Len()) {
				return fmt.Errorf("byte %d came when %d was due", e.At, got.Len())
			}
			got.Write(e.Data)
		case box.EventEnd:
			end = e.End
		}
		return nil
	})
	if err != nil || end == nil || !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Errorf("%d of %d bytes, end %+v, %v", got.Len(), want.Len(), end, err)
	}
}

func TestProgramsEndsAndErrorsOfTheReaderAreTold(t *testing.T) {
	_, url := daemon(t)
	_, g := made(t, dial(t, url, servertest.Key))
	ctx := t.Context()
	var pid int
	var end *box.End
	spec := box.ProcessSpec{Command: box.Command{Argv: []string{"cat"}}, Stdin: true}
	err := g.Attached(ctx, spec, func(p box.Process) {
		pid = p.PID
		if _, err := g.Input(ctx, box.ProcessRef{PID: pid}, box.Input{Data: []byte("x"), End: true}); err != nil {
			t.Error(err)
		}
	}, func(e box.ProcessEvent) error { end = e.End; return nil })
	if err != nil || pid == 0 || end == nil || end.Cause != box.Exited {
		t.Errorf("attached: pid %d, end %+v, %v", pid, end, err)
	}
	mine := errors.New("mine")
	err = g.Follow(ctx, box.ProcessRef{PID: pid}, box.Positions{}, func(box.ProcessEvent) error { return mine })
	if !errors.Is(err, mine) {
		t.Errorf("the reader's error is told as %v", err)
	}
	if err := g.Follow(ctx, box.ProcessRef{PID: 99999}, box.Positions{}, nil); box.KindOf(err) != box.NotFound {
		t.Errorf("a process that never was: %v", err)
	}
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if err := g.Attached(short, spec, func(box.Process) {}, func(box.ProcessEvent) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("canceled: %v", err)
	}
}

// A daemon is a stranger.
func TestWhatIsNotUnderstoodIsAnError(t *testing.T) {
	var answer http.HandlerFunc
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the key was sent elsewhere") }))
	defer elsewhere.Close()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w, r) }))
	defer h.Close()
	c := dial(t, h.URL, "k")
	_, err := c.Guest(t.Context(), box.Caller{}, box.NewID(), box.ScopeExec)
	if err != nil {
		t.Fatal(err)
	}
	g, _ := c.Guest(t.Context(), box.Caller{}, box.NewID(), box.ScopeExec)
	stream := func(s string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, s)
		}
	}
	follow := func() error {
		return g.Follow(t.Context(), box.ProcessRef{PID: 1}, box.Positions{}, func(box.ProcessEvent) error { return nil })
	}
	inspect := func() error { _, err := c.Inspect(t.Context(), box.Caller{}, box.NewID()); return err }
	for name, k := range map[string]struct {
		answer http.HandlerFunc
		call   func() error
	}{
		"no JSON":              {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") }, inspect},
		"no box":               {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"id":"../x"}`) }, inspect},
		"a page as an error":   {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) }, inspect},
		"a redirect":           {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) }, inspect},
		"no stream":            {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") }, follow},
		"an end without code":  {stream("event: end\ndata: {\"cause\":\"exited\"}\n\n"), follow},
		"an event that is not": {stream("event: stdout\ndata: [\n\n"), follow},
		"an endless line":      {stream("data: " + strings.Repeat("x", 33<<20)), follow},
	} {
		answer = k.answer
		if err := k.call(); err == nil || box.KindOf(err) != box.Fault || !strings.HasPrefix(err.Error(), "cannot understand the daemon") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
