package guest_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
	rpc "github.com/sunaba-dev/sunaba/internal/agent/agentpb/agentpbconnect"
	"github.com/sunaba-dev/sunaba/internal/agent/guest"
)

// breaking is an agent whose first connections break in the middle of a call.
func breaking(t *testing.T, breaks int, all ...service) *guest.Guest {
	t.Helper()
	var mu sync.Mutex
	var conns []net.Conn
	mux := http.NewServeMux()
	for _, s := range append(all, hello()) {
		mux.HandleFunc(s.path, func(w http.ResponseWriter, r *http.Request) {
			s.http.ServeHTTP(w, r)
			mu.Lock()
			defer mu.Unlock()
			if s.path != rpc.MachineHelloProcedure && breaks > 0 {
				breaks--
				conns[len(conns)-1].Close() // before the answer leaves
			}
		})
	}
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	srv := &http.Server{Handler: mux, Protocols: &p}
	l := &oneConn{c: make(chan net.Conn, 1), done: make(chan struct{})}
	go func() { _ = srv.Serve(l) }()
	g := guest.New(func(context.Context) (net.Conn, error) {
		ours, theirs := socketpair(t)
		mu.Lock()
		conns = append(conns, theirs)
		mu.Unlock()
		l.c <- theirs
		return ours, nil
	}, guest.Options{})
	t.Cleanup(func() {
		g.Close()
		srv.Close()
		l.Close()
	})
	return g
}

func TestAStartWhoseConnectionBreaksIsAskedOnceMoreForTheSameProcess(t *testing.T) {
	var numbers []uint64
	starts := unary(rpc.ProcessesStartProcedure, func(r *pb.StartRequest) (*pb.StartResponse, error) {
		numbers = append(numbers, r.Idempotency)
		return &pb.StartResponse{Pid: 7}, nil
	})
	if err := start(t.Context(), breaking(t, 1, starts)); err != nil {
		t.Error(err)
	}
	if len(numbers) != 2 || numbers[0] == 0 || numbers[0] != numbers[1] {
		t.Errorf("it was asked with the numbers %v", numbers)
	}
	if err := start(t.Context(), breaking(t, 2, starts)); box.KindOf(err) != box.Unavailable || len(numbers) != 4 || numbers[2] == numbers[0] {
		t.Errorf("when it breaks twice, %v after %v", err, numbers)
	}
}

func TestWhatMayHaveHappenedIsNotAskedAgain(t *testing.T) {
	asked := 0
	g := breaking(t, 1,
		unary(rpc.FilesMoveProcedure, func(*pb.MoveRequest) (*pb.MoveResponse, error) {
			asked++
			return &pb.MoveResponse{}, nil
		}),
		unary(rpc.ProcessesSignalProcedure, func(*pb.SignalRequest) (*pb.SignalResponse, error) {
			asked++
			return &pb.SignalResponse{}, nil
		}))
	if err := g.Move(t.Context(), "/a", "/b", true); box.KindOf(err) != box.Unavailable || asked != 1 {
		t.Errorf("Move was asked %d times: %v", asked, err)
	}
	if err := g.Signal(t.Context(), box.ProcessRef{PID: 7}, 9, false); err != nil || asked != 2 {
		t.Errorf("on a new connection Signal was asked %d times: %v", asked-1, err)
	}
}

func TestAnErrorOfTheDialIsTheCallers(t *testing.T) {
	want := box.Errorf(box.NotFound, "reach agent", "cannot reach the agent: the box is no more")
	g := guest.New(func(context.Context) (net.Conn, error) { return nil, want }, guest.Options{})
	defer g.Close()
	for name, call := range calls() {
		if err := call(t.Context(), g); !errors.Is(err, want) {
			t.Errorf("%s gives %v", name, err)
		}
	}
}

func TestAClosedGuestAnswersNothing(t *testing.T) {
	noGoroutineLeft(t)
	g := liar(t, guest.Options{}, hello(), says[pb.MetricsRequest](rpc.MachineMetricsProcedure, &pb.MetricsResponse{}))
	if err := metrics(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	g.Close()
	for name, call := range calls() {
		if err := call(t.Context(), g); box.KindOf(err) != box.Unavailable {
			t.Errorf("%s gives %v", name, err)
		}
	}
}

// packs answers with an archive of these members.
func packs(t *testing.T, all ...tar.Header) service {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range all {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return tells[pb.PackRequest](rpc.FilesPackProcedure, &pb.PackResponse{Tar: buf.Bytes()})
}

func TestAnArchiveThatLeadsOutIsNotPassedOn(t *testing.T) {
	file := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name} }
	link := func(name, to string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}
	}
	hard := func(name, to string) tar.Header { return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to} }
	for name, members := range map[string][]tar.Header{
		"up":                  {file("../x")},
		"up in the middle":    {file("a/../../x")},
		"absolute":            {file("/etc/passwd")},
		"through a link":      {link("l", "/etc"), file("l/passwd")},
		"deep through a link": {link("a/l", "/"), file("a/l/etc/passwd")},
		"hard link up":        {hard("h", "../../etc/passwd")},
		"hard link absolute":  {hard("h", "/etc/passwd")},
		"hard link over link": {link("l", "/etc"), hard("h", "l/passwd")},
		"pipe":                {{Typeflag: tar.TypeFifo, Name: "p"}},
		"device":              {{Typeflag: tar.TypeBlock, Name: "d", Devmajor: 8}},
		"dots with a link":    {link("a", ".."), file("./a/x")},
	} {
		var out bytes.Buffer
		err := liar(t, guest.Options{}, hello(), packs(t, members...)).Pack(t.Context(), "/work", 1<<20, &out)
		if box.KindOf(err) != box.Fault {
			t.Errorf("%s gives %v", name, err)
		}
	}
	for name, what := range map[string]service{
		"no archive":      tells[pb.PackRequest](rpc.FilesPackProcedure, &pb.PackResponse{Tar: bytes.Repeat([]byte("x"), 1024)}),
		"more than asked": tells[pb.PackRequest](rpc.FilesPackProcedure, &pb.PackResponse{Tar: make([]byte, 1<<20)}, &pb.PackResponse{Tar: []byte{0}}),
		"empty pieces":    tells[pb.PackRequest](rpc.FilesPackProcedure, &pb.PackResponse{}),
	} {
		err := liar(t, guest.Options{}, hello(), what).Pack(t.Context(), "/work", 1<<20, io.Discard)
		if box.KindOf(err) != box.Fault {
			t.Errorf("%s gives %v", name, err)
		}
	}
}

func TestAnArchiveKeepsWhatItMayAndNoMore(t *testing.T) {
	var out bytes.Buffer
	g := liar(t, guest.Options{}, hello(), packs(t,
		tar.Header{Typeflag: tar.TypeReg, Name: "./f\n", Mode: 0o6755, Uid: 5, Uname: "root", PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "x"}},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "/etc/passwd"}))
	if err := g.Pack(t.Context(), "/work", 1<<20, &out); err != nil {
		t.Fatal(err)
	}
	r := tar.NewReader(&out)
	f, err := r.Next()
	if err != nil || f.Name != "f\n" || f.Uname != "" || f.Uid != 0 || f.Mode != 0o755 || f.PAXRecords["SCHILY.xattr.security.capability"] != "" {
		t.Errorf("the file is %+v (%v)", f, err)
	}
	if l, err := r.Next(); err != nil || l.Linkname != "/etc/passwd" {
		t.Errorf("the link is %+v (%v)", l, err)
	}
}
