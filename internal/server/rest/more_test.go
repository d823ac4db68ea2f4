package rest_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/internal/server/rest"
	"github.com/sunaba-dev/sunaba/internal/server/servertest"
)

func TestRangesOfFiles(t *testing.T) {
	d := serve(t)
	id := d.box()
	file := at(id, "/files?path=/workspace/f")
	d.want(200, ask{method: "PUT", path: file, body: "0123456789"}, nil)
	for _, c := range []struct {
		ask    string
		status int
		body   string
		says   string
	}{
		{"bytes=0-3", 206, "0123", "bytes 0-3/10"},
		{"bytes=4-", 206, "456789", "bytes 4-9/10"},
		{"bytes=-3", 206, "789", "bytes 7-9/10"},
		{"bytes=-30", 206, "0123456789", "bytes 0-9/10"},
		{"bytes=8-100", 206, "89", "bytes 8-9/10"},
		{"bytes=9-9", 206, "9", "bytes 9-9/10"},
		{"bytes=3-2", 200, "0123456789", ""},
		{"bytes=0-1,3-4", 200, "0123456789", ""},
		{"lines=0-1", 200, "0123456789", ""},
		{"bytes=--1", 200, "0123456789", ""},
		{"bytes=99999999999999999999-", 200, "0123456789", ""},
		{"bytes=10-", 416, "", "bytes */10"},
		{"bytes=-0", 416, "", "bytes */10"},
	} {
		got := d.want(c.status, ask{method: "GET", path: file}.with("Range", c.ask), nil)
		if c.status != 416 && string(got.body) != c.body || got.header.Get("Content-Range") != c.says {
			t.Errorf("%s: %q with %q", c.ask, got.body, got.header.Get("Content-Range"))
		}
		if c.status == 416 {
			continue
		}
		h := got.header
		if h.Get("Content-Type") != "application/octet-stream" || h.Get("X-Content-Type-Options") != "nosniff" || !strings.HasPrefix(h.Get("Content-Disposition"), "attachment") || h.Get("ETag") != "" {
			t.Errorf("%s: a browser might show it: %v", c.ask, h)
		}
	}
	if got := d.want(200, ask{method: "GET", path: file}.with("Range", "bytes=0-1").with("If-Range", `"x"`), nil); len(got.body) != 10 {
		t.Errorf("If-Range with a validator that there is not: %q", got.body)
	}
}

// A file whose sending breaks off does not come to be.
func TestCutUploadLeavesNothing(t *testing.T) {
	d := serve(t)
	id := d.box()
	conn, err := net.Dial("tcp", d.addr)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: localhost\r\nX-API-Key: %s\r\nContent-Length: 100\r\n\r\nhalf", at(id, "/files?path=/workspace/f"), servertest.Key)
	conn.Close()
	time.Sleep(100 * time.Millisecond)
	d.want(404, ask{method: "GET", path: at(id, "/files/stat?path=/workspace/f")}, nil)
}

func TestNamesOfAnyBytes(t *testing.T) {
	d := serve(t)
	id := d.box()
	d.want(200, ask{method: "PUT", path: at(id, "/files?path_base64=L3dvcmtzcGFjZS__Cg"), body: "x"}, nil)
	var page rest.EntryPage
	d.want(200, ask{method: "GET", path: at(id, "/files/list?path=/workspace")}, &page)
	if len(page.Entries) != 1 || page.Entries[0].PathBase64 != "L3dvcmtzcGFjZS//Cg==" || page.Entries[0].Path != "/workspace/\uFFFD\n" {
		t.Fatalf("%+v", page)
	}
	d.want(200, ask{method: "GET", path: at(id, "/files?path=/workspace/%%ff%%0a")}, nil)
	for _, bad := range []string{"path=relative", "path=/a%00b", "path_base64=L3dv*", "", "path=/a&path_base64=L2E"} {
		d.want(422, ask{method: "GET", path: at(id, "/files?%s", bad)}, nil)
	}
}

func TestListsHavePages(t *testing.T) {
	d := serve(t)
	var boxes []string
	for range 5 {
		boxes = append(boxes, d.box())
	}
	for i := range 5 {
		d.want(200, ask{method: "PUT", path: at(boxes[0], "/files?path=/workspace/%d", i), body: "x"}, nil)
		d.start(boxes[0], map[string]any{"command": words("exit 0")})
		d.want(201, ask{method: "POST", path: at(boxes[0], "/contexts"), body: map[string]any{"language": "bash"}}, nil)
	}
	for _, path := range []string{"/v1/boxes?limit=2", at(boxes[0], "/processes?limit=2"), at(boxes[0], "/contexts?limit=2"), at(boxes[0], "/files/list?path=/workspace&limit=2")} {
		seen, cursor := 0, ""
		for pages := 1; ; pages++ {
			var p struct {
				Boxes     []rest.Box
				Processes []rest.Process
				Contexts  []rest.CodeContext
				Entries   []rest.Entry
				Next      string
			}
			d.want(200, ask{method: "GET", path: path + cursor}, &p)
			seen += len(p.Boxes) + len(p.Processes) + len(p.Contexts) + len(p.Entries)
			if p.Next == "" {
				if pages != 3 || seen != 5 {
					t.Errorf("%s: %d entries on %d pages", path, seen, pages)
				}
				break
			}
			cursor = "&cursor=" + p.Next
		}
		d.want(422, ask{method: "GET", path: path + "&cursor=x"}, nil)
	}
	d.want(422, ask{method: "GET", path: "/v1/boxes?limit=1001"}, nil)
	d.want(422, ask{method: "GET", path: "/v1/boxes?limit=-1"}, nil)
}

func TestSameKeyMakesOneBox(t *testing.T) {
	d := serve(t)
	create := ask{method: "POST", path: "/v1/boxes", body: map[string]any{"ttl_sec": 60}, header: map[string]string{"Idempotency-Key": "k"}}
	var one, two rest.Box
	d.want(201, create, &one)
	d.want(201, create, &two)
	if one.ID != two.ID || one.TTLSec != 60 || one.EndsAt == nil {
		t.Errorf("%s, %s; %g s until %v", one.ID, two.ID, one.TTLSec, one.EndsAt)
	}
}

// Variables live from cell to cell; each field of a report is there; a story can
// be taken up again, and runs nothing twice.
func TestCells(t *testing.T) {
	d := serve(t)
	id := d.box()
	run := ask{method: "POST", path: at(id, "/code"), header: map[string]string{"Accept": "application/json"}}
	var got rest.CellReport
	run.body = map[string]any{"language": "python", "code": "x=1\nprint \x1b[1mhi"}
	d.want(200, run, &got)
	if got.Stdout != "\x1b[1mhi\n" || got.StdoutClean != "\\x1b[1mhi\n" || got.Outcome != "ok" || got.TimeoutSec != 60 || got.Count != 1 {
		t.Errorf("%+v", got)
	}
	run.body = map[string]any{"language": "python", "code": "x\nraise Oops"}
	got = rest.CellReport{}
	d.want(200, run, &got)
	if len(got.Results) != 1 || got.Results[0].Forms["text/plain"] != "1" || got.Error == nil || got.Error.Name != "Oops" || got.Outcome != "error" || got.Count != 2 {
		t.Errorf("%+v", got)
	}
	run.body = map[string]any{"language": "python", "code": "loop", "timeout_sec": 0.2}
	got = rest.CellReport{}
	d.want(200, run, &got)
	if got.Outcome != "timeout" || !got.TimedOut || !strings.Contains(got.Message, "0.2 s (timeout_sec)") {
		t.Errorf("%+v", got)
	}
	run.body = map[string]any{"language": "python", "code": "print " + strings.Repeat("x", 600<<10) + "\nprint " + strings.Repeat("y", 300<<10), "max_output": 1 << 40}
	got = rest.CellReport{}
	d.want(200, run, &got)
	if len(got.Stdout) != 900<<10+2 || got.Truncated {
		t.Errorf("%d bytes, truncated %t", len(got.Stdout), got.Truncated)
	}
	run.body = map[string]any{"language": "python", "code": "x=" + strings.Repeat("z", 900<<10) + strings.Repeat("\nx", 12)}
	got = rest.CellReport{}
	d.want(200, run, &got)
	if len(got.Results) != 9 || !got.Truncated {
		t.Errorf("%d results, truncated %t", len(got.Results), got.Truncated)
	}
	again := ask{method: "POST", path: at(id, "/contexts/cx1/run"), body: map[string]any{"id": "cell", "code": "print a\nprint b"}}
	read := func(a ask) (names []string) {
		for _, e := range readEvents(bytes.NewReader(d.want(200, a, nil).body)).all(t) {
			names = append(names, e.id+e.name)
		}
		return names
	}
	if got := fmt.Sprint(read(again)); got != "[start 1stdout 2stdout 3end]" {
		t.Error(got)
	}
	if got := fmt.Sprint(read(again.with("Last-Event-ID", "1"))); got != "[start 2stdout 3end]" {
		t.Error(got)
	}
	var c rest.ContextPage
	d.want(200, ask{method: "GET", path: at(id, "/contexts")}, &c)
	if len(c.Contexts) != 1 || c.Contexts[0].Count != 6 {
		t.Errorf("%+v", c)
	}
}

// A caller that goes away interrupts its cell, unless that is detached.
func TestCellEndsWithItsCaller(t *testing.T) {
	for _, detached := range []bool{false, true} {
		d := serve(t)
		id := d.box()
		var c rest.CodeContext
		d.want(201, ask{method: "POST", path: at(id, "/contexts"), body: map[string]any{"language": "bash"}}, &c)
		run := at(id, "/contexts/%s/run", c.ID)
		timeout := map[bool]int{false: 600, true: 3}[detached]
		body := fmt.Sprintf(`{"id":"one","code":"loop","timeout_sec":%d,"detached":%t}`, timeout, detached)
		conn, err := net.Dial("tcp", d.addr)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nX-API-Key: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", run, servertest.Key, len(body), body)
		if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		conn.Close()
		var got rest.CellReport
		d.want(200, ask{method: "POST", path: run, body: map[string]any{"id": "one", "code": ""}, header: map[string]string{"Accept": "application/json"}}, &got)
		if want := map[bool]string{false: "interrupted", true: "timeout"}[detached]; string(got.Outcome) != want {
			t.Errorf("detached %t: the cell's outcome is %s, want %s", detached, got.Outcome, want)
		}
	}
}

func TestInputIsWrittenOnce(t *testing.T) {
	d := serve(t)
	id := d.box()
	pid := d.start(id, map[string]any{"command": words("cat"), "stdin": true, "tag": "c"})
	in := at(id, "/processes/tag:c/input")
	d.want(200, ask{method: "POST", path: in + "?at=0", body: "abc"}, nil)
	var next rest.InputTaken
	d.want(200, ask{method: "POST", path: in + "?at=0", body: "abcd"}, &next)
	if next.Next != 4 {
		t.Errorf("next is %d", next.Next)
	}
	// Without a position it would be taken for the first four bytes, and dropped.
	for _, nowhere := range []any{map[string]any{"data": "lost"}, map[string]any{"at": nil, "data": "lost"}, map[string]any{"at": -1, "data": "lost"}, "lost"} {
		if p := d.want(422, ask{method: "POST", path: in, body: nowhere}, nil).problem(t); p.ErrorCode != "invalid" || !strings.Contains(p.Message, " at") {
			t.Errorf("%v: %+v", nowhere, p)
		}
	}
	d.want(200, ask{method: "POST", path: in, body: map[string]any{"at": 4, "data_base64": []byte("\xff"), "end": true}}, nil)
	var s story
	s.read(t, readEvents(bytes.NewReader(d.want(200, ask{method: "GET", path: at(id, "/processes/%d/output", pid)}, nil).body)))
	if string(s.stdout) != "abcd\xff" {
		t.Errorf("%q", s.stdout)
	}
	d.want(422, ask{method: "GET", path: at(id, "/processes/-1")}, nil)
	d.want(422, ask{method: "POST", path: at(id, "/processes/%d/signal", pid), body: map[string]any{"signal": "SIGNONE"}}, nil)
}

func TestSignedURLEndsWithTheBox(t *testing.T) {
	d := serve(t)
	s := d.stage()
	if got := d.do(ask{method: "GET", path: s.signed["GET"]}); got.status != 200 || string(got.body) != "hello" {
		t.Fatalf("%d %s", got.status, got.body)
	}
	d.do(ask{method: "PUT", path: s.signed["PUT"], body: "changed"})
	if got := d.do(ask{method: "GET", path: s.signed["GET"]}); string(got.body) != "changed" {
		t.Errorf("%s", got.body)
	}
	var short rest.Signed
	d.want(200, ask{method: "POST", path: at(s.id, "/files/sign"), body: map[string]any{"path": "/workspace/a", "method": "GET", "expires_sec": 1}}, &short)
	time.Sleep(1100 * time.Millisecond)
	if got := d.do(ask{method: "GET", path: short.URL}); got.status != 403 {
		t.Errorf("a URL that expired: %d", got.status)
	}
	d.want(422, ask{method: "POST", path: at(s.id, "/files/sign"), body: map[string]any{"path": "/a", "method": "GET", "expires_sec": 86401}}, nil)
	d.want(204, ask{method: "DELETE", path: at(s.id, "")}, nil)
	if got := d.do(ask{method: "GET", path: s.signed["GET"]}); got.status != 404 {
		t.Errorf("the box is gone: %d", got.status)
	}
	none := serve(t, func(c *rest.Config) { c.SignKey = nil })
	id := none.box()
	none.want(501, ask{method: "POST", path: at(id, "/files/sign"), body: map[string]any{"path": "/a", "method": "GET"}}, nil)
}

func TestUnknownPathsAndMethods(t *testing.T) {
	d := serve(t)
	d.want(404, ask{method: "GET", path: "/v1/nothing"}, nil).problem(t)
	d.want(404, ask{method: "GET", path: "/nothing"}, nil).problem(t)
	got := d.want(405, ask{method: "PATCH", path: "/v1/boxes"}, nil)
	if got.problem(t); got.header.Get("Allow") != "GET, POST" {
		t.Errorf("Allow: %q", got.header.Get("Allow"))
	}
	for _, path := range []string{"/v1/nothing", "/nothing", "/metrics"} {
		if got := d.do(ask{method: "GET", path: path}); got.status != 401 {
			t.Errorf("%s without a key: %d", path, got.status)
		}
	}
}

// The tunnel carries bytes both ways, and nothing of the request.
func TestTunnel(t *testing.T) {
	d := serve(t)
	id := d.box()
	conn, err := net.Dial("tcp", d.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nX-API-Key: %s\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\nearly", at(id, "/ports/7"), servertest.Key)
	r := bufio.NewReader(conn)
	res, err := http.ReadResponse(r, nil)
	if err != nil || res.StatusCode != 101 || res.Header.Get("Upgrade") != "tcp" {
		t.Fatal(res, err)
	}
	io.WriteString(conn, " late")
	got := make([]byte, 10)
	if _, err := io.ReadFull(r, got); err != nil || string(got) != "early late" {
		t.Errorf("%q, %v", got, err)
	}
	d.want(503, ask{method: "GET", path: at(id, "/ports/8"), header: map[string]string{"Connection": "Upgrade", "Upgrade": "tcp"}}, nil)
	d.want(426, ask{method: "GET", path: at(id, "/ports/7"), header: map[string]string{"Upgrade": "tcp"}}, nil)
	d.want(422, ask{method: "GET", path: at(id, "/ports/7"), body: "early", header: map[string]string{"Connection": "keep-alive, upgrade", "Upgrade": "tcp"}}, nil)
}

// What two readers could understand in two ways is refused.
func TestNothingIsUnderstoodInTwoWays(t *testing.T) {
	d := serve(t)
	id := d.box()
	for _, query := range []string{"path=/a&path=/b", "path=/a%zz", "path=/a;x=1"} {
		d.want(422, ask{method: "GET", path: at(id, "/files?%s", query)}, nil).problem(t)
	}
	d.want(200, ask{method: "GET", path: "/v1/boxes?metadata=a%3Db&metadata=c%3Dd"}, nil)
	start := ask{method: "POST", path: at(id, "/processes")}
	for _, body := range []string{
		`{"command":["wait"],"command":["echo"]}`,
		`{"command":["wait"],"env":{"A":"1","B":"2","A":"3"}}`,
		`{"command":["wait"],"\u0063ommand":["echo"]}`,
		"{\"command\":[\"\xff\"]}",
		`{"command":["wait"]} {}`,
		`{"Command":["wait"]}`,
		`{"command":["wait"],"Command":["echo"]}`,
		`["wait"`,
	} {
		start.body = []byte(body)
		if got := d.want(400, start, nil).problem(t); got.ErrorCode != "malformed" {
			t.Errorf("%s: %+v", body, got)
		}
	}
	for _, body := range []string{`{"command":[]}`, `{"command":[1]}`, `{"command":null}`, `[]`, `null`, `{"command":["wait"],"timeout_sec":-1}`, `{"command":["wait"],"timeout_sec":"1"}`, `{"command":["wait"],"tty":{"rows":0,"cols":1}}`} {
		start.body = []byte(body)
		d.want(422, start, nil).problem(t)
	}
	start.body = []byte(`{"command":["echo","a","a"],"env":{"a":"a"},"tag":"a"}`)
	d.want(201, start, nil)
	d.want(405, ask{method: "HEAD", path: at(id, "/files?path=/workspace")}, nil)
}

func TestKeysComeInPages(t *testing.T) {
	d := serve(t)
	var ids []string
	cursor := ""
	for range 5 {
		var page rest.KeyPage
		d.want(200, ask{method: "GET", path: "/v1/keys?limit=2&cursor=" + cursor, key: servertest.AdminKey}, &page)
		for _, k := range page.Keys {
			ids = append(ids, k.ID)
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if got := strings.Join(ids, " "); got != "0123456789ab 1123456789ab 2123456789ab" {
		t.Errorf("keys %s", got)
	}
}
