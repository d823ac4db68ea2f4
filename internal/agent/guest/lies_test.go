package guest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/sunaba-dev/sunaba/box"
	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
	rpc "github.com/sunaba-dev/sunaba/internal/agent/agentpb/agentpbconnect"
	"github.com/sunaba-dev/sunaba/internal/agent/guest"
)

type guestCall func(context.Context, *guest.Guest) error

// A lie is an answer that no honest agent gives, and what it must become.
type lie struct {
	name string
	what service
	call guestCall
	want box.Kind
}

func follow(ctx context.Context, g *guest.Guest) error {
	ended := false
	err := g.Follow(ctx, box.ProcessRef{PID: 7}, box.Positions{Stdout: 10, Stderr: 0}, func(e box.ProcessEvent) error {
		if ended {
			return errors.New("told more after the end")
		}
		ended = e.Kind == box.EventEnd
		return nil
	})
	if err != nil && ended {
		return fmt.Errorf("the end was told, and then: %v", err)
	}
	return err
}

func processes(ctx context.Context, g *guest.Guest) error {
	_, err := g.Processes(ctx)
	return err
}

func start(ctx context.Context, g *guest.Guest) error {
	_, err := g.Start(ctx, box.ProcessSpec{Command: box.Command{Argv: []string{"true"}}})
	return err
}

func stat(ctx context.Context, g *guest.Guest) error {
	_, err := g.Stat(ctx, "/work/f", true)
	return err
}

func list(ctx context.Context, g *guest.Guest) error {
	_, _, err := g.List(ctx, "/work", 2, 3)
	return err
}

func read(ctx context.Context, g *guest.Guest) error {
	_, r, err := g.Read(ctx, "/work/f", 0, 10)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(io.Discard, r)
	return err
}

func write(ctx context.Context, g *guest.Guest) error {
	_, err := g.Write(ctx, "/work/f", box.WriteOptions{}, strings.NewReader("content"))
	return err
}

func watch(ctx context.Context, g *guest.Guest) error {
	return g.Watch(ctx, "/work", true, func(box.Change) error { return nil })
}

func metrics(ctx context.Context, g *guest.Guest) error {
	_, err := g.Metrics(ctx)
	return err
}

func open(ctx context.Context, g *guest.Guest) error {
	_, err := g.OpenContext(ctx, box.ContextSpec{Language: "python"})
	return err
}

func restart(ctx context.Context, g *guest.Guest) error {
	_, err := g.RestartContext(ctx, "c1")
	return err
}

func contexts(ctx context.Context, g *guest.Guest) error {
	_, err := g.Contexts(ctx)
	return err
}

func cell(ctx context.Context, g *guest.Guest) error {
	return g.RunCell(ctx, "c1", box.Cell{ID: "x", Code: "1", From: 5, Output: 100}, func(box.CellEvent) error { return nil })
}

func dial(ctx context.Context, g *guest.Guest) error {
	_, err := g.Dial(ctx, 80)
	return err
}

// Stories, as short as they can be written.

func stdout(at uint64, data string) *pb.OutputResponse {
	return &pb.OutputResponse{Event: &pb.OutputResponse_Stdout{Stdout: &pb.Bytes{At: at, Data: []byte(data)}}}
}

func ended(e *pb.End) *pb.OutputResponse {
	return &pb.OutputResponse{Event: &pb.OutputResponse_End{End: e}}
}

func output(all ...*pb.OutputResponse) service {
	return tells[pb.OutputRequest](rpc.ProcessesOutputProcedure, all...)
}

func listing(all ...*pb.Process) service {
	return says[pb.ListProcessesRequest](rpc.ProcessesListProcedure, &pb.ListProcessesResponse{Processes: all})
}

func statOf(e *pb.Entry) service {
	return says[pb.StatRequest](rpc.FilesStatProcedure, &pb.StatResponse{Entry: e})
}

func entries(paths ...string) service {
	m := &pb.ListResponse{}
	for _, p := range paths {
		m.Entries = append(m.Entries, &pb.Entry{Path: []byte(p), Kind: pb.Kind_KIND_FILE})
	}
	return tells[pb.ListRequest](rpc.FilesListProcedure, m)
}

func file(size uint64) *pb.Entry {
	return &pb.Entry{Path: []byte("/work/f"), Kind: pb.Kind_KIND_FILE, Size: size}
}

func reads(all ...*pb.ReadResponse) service {
	return tells[pb.ReadRequest](rpc.FilesReadProcedure, all...)
}

func beat() *pb.WatchResponse {
	return &pb.WatchResponse{Event: &pb.WatchResponse_Beat{Beat: &pb.Beat{}}}
}

func changed(path string, what pb.Change_What) *pb.WatchResponse {
	return &pb.WatchResponse{Event: &pb.WatchResponse_Change{Change: &pb.Change{Path: []byte(path), What: what}}}
}

func watches(all ...*pb.WatchResponse) service {
	return tells[pb.WatchRequest](rpc.FilesWatchProcedure, all...)
}

func opened(c *pb.Context) service {
	return says[pb.OpenRequest](rpc.ContextsOpenProcedure, &pb.OpenResponse{Context: c})
}

func event(n uint64, text string) *pb.RunResponse {
	return &pb.RunResponse{Number: n, Event: &pb.RunResponse_Stdout{Stdout: text}}
}

func cellEnded(n uint64, o pb.CellEnd_Outcome) *pb.RunResponse {
	return &pb.RunResponse{Number: n, Event: &pb.RunResponse_End{End: &pb.CellEnd{Outcome: o}}}
}

func value(n uint64, mime, text string) *pb.RunResponse {
	return &pb.RunResponse{Number: n, Event: &pb.RunResponse_Result{Result: &pb.Result{Forms: map[string]string{mime: text}}}}
}

func runs(all ...*pb.RunResponse) service {
	return tells[pb.RunRequest](rpc.ContextsRunProcedure, all...)
}

func lies() []lie {
	user := "user"
	many := make([]*pb.Process, 10_001)
	for i := range many {
		many[i] = &pb.Process{Pid: uint32(i + 1), User: user}
	}
	beats := make([]*pb.OutputResponse, 1000)
	for i := range beats {
		beats[i] = &pb.OutputResponse{Event: &pb.OutputResponse_Beat{Beat: &pb.Beat{}}}
	}
	huge := strings.Repeat("x", 2<<20)
	live := &pb.Context{Id: "c1", Language: "python", State: pb.Context_STATE_IDLE}
	return []lie{
		{"another protocol", says[pb.HelloRequest](rpc.MachineHelloProcedure, &pb.HelloResponse{Protocol: 2, Dir: "/"}), stat, box.Unsupported},
		{"a working folder that is none", says[pb.HelloRequest](rpc.MachineHelloProcedure, &pb.HelloResponse{Protocol: 1, Dir: "work"}), stat, box.Fault},

		{"process 0", says[pb.StartRequest](rpc.ProcessesStartProcedure, &pb.StartResponse{}), start, box.Fault},
		{"a process beyond all numbers", says[pb.StartRequest](rpc.ProcessesStartProcedure, &pb.StartResponse{Pid: 1<<22 + 1}), start, box.Fault},
		{"an answer of 2 MiB", says[pb.StartRequest](rpc.ProcessesStartProcedure, &pb.ListProcessesResponse{Processes: []*pb.Process{{Tag: huge}}}), start, box.Fault},

		{"output before what was asked for", output(stdout(9, "x"), ended(&pb.End{StdoutBytes: 20})), follow, box.Fault},
		{"output twice", output(stdout(10, "xx"), stdout(11, "x")), follow, box.Fault},
		{"output at the end of numbers", output(stdout(math.MaxInt64, "x")), follow, box.Fault},
		{"output beyond the end of numbers", output(stdout(math.MaxUint64, "x")), follow, box.Fault},
		{"output of nothing", output(stdout(10, "")), follow, box.Fault},
		{"a piece of 2 MiB", output(stdout(10, huge)), follow, box.Fault},
		{"an event that is none", output(&pb.OutputResponse{}), follow, box.Fault},
		{"beats without a pause", output(beats...), follow, box.Fault},
		{"no end", output(stdout(10, "x")), follow, box.Fault},
		{"nothing at all", output(), follow, box.Fault},
		{"two ends", output(ended(&pb.End{StdoutBytes: 10}), ended(&pb.End{StdoutBytes: 10})), follow, box.Fault},
		{"output after the end", output(ended(&pb.End{StdoutBytes: 10}), stdout(10, "x")), follow, box.Fault},
		{"an end with less than was told", output(stdout(10, "xxx"), ended(&pb.End{StdoutBytes: 12})), follow, box.Fault},
		{"an end with more than can be", output(ended(&pb.End{StdoutBytes: math.MaxUint64})), follow, box.Fault},
		{"the end of a process that is stopped", output(ended(&pb.End{StdoutBytes: 10, Status: 0x137f})), follow, box.Fault},
		{"the end of a process that goes on", output(ended(&pb.End{StdoutBytes: 10, Status: 0xffff})), follow, box.Fault},
		{"a status of 32 bits", output(ended(&pb.End{StdoutBytes: 10, Status: 0x10000})), follow, box.Fault},
		{"an end by somebody unknown", output(ended(&pb.End{StdoutBytes: 10, By: 9})), follow, box.Fault},
		{"an end with an error behind it", streams[pb.OutputRequest](rpc.ProcessesOutputProcedure, func(_ context.Context, send func(*pb.OutputResponse) error) error {
			return errors.Join(send(ended(&pb.End{StdoutBytes: 10})), connect.NewError(connect.CodeInternal, errors.New("x")))
		}), follow, box.Fault},

		{"10,001 processes", listing(many...), processes, box.Fault},
		{"a living process twice", listing(&pb.Process{Pid: 7, User: user}, &pb.Process{Pid: 7, User: user}), processes, box.Fault},
		{"process 0 in a list", listing(&pb.Process{User: user}), processes, box.Fault},
		{"a tag with a NUL", listing(&pb.Process{Pid: 7, User: user, Tag: "a\x00b"}), processes, box.Fault},
		{"a long tag", listing(&pb.Process{Pid: 7, User: user, Tag: strings.Repeat("x", 257)}), processes, box.Fault},
		{"an argument with a NUL", listing(&pb.Process{Pid: 7, User: user, Argv: []string{"\x00"}}), processes, box.Fault},
		{"a user of its own", listing(&pb.Process{Pid: 7, User: "daemon"}), processes, box.Fault},
		{"a folder that is not absolute", listing(&pb.Process{Pid: 7, User: user, Dir: "../x"}), processes, box.Fault},
		{"an end that is none in a list", listing(&pb.Process{Pid: 7, User: user, End: &pb.End{Status: 0x7f}}), processes, box.Fault},
		{"input that shrinks", says[pb.InputRequest](rpc.ProcessesInputProcedure, &pb.InputResponse{Taken: 4}), func(ctx context.Context, g *guest.Guest) error {
			_, err := g.Input(ctx, box.ProcessRef{PID: 7}, box.Input{At: 5, Data: []byte("x")})
			return err
		}, box.Fault},

		{"no entry", statOf(nil), stat, box.Fault},
		{"a kind of file that is none", statOf(&pb.Entry{Kind: 9}), stat, box.Fault},
		{"a link where one was followed", statOf(&pb.Entry{Kind: pb.Kind_KIND_LINK}), stat, box.Fault},
		{"a file that leads somewhere", statOf(&pb.Entry{Kind: pb.Kind_KIND_FILE, Link: []byte("/etc")}), stat, box.Fault},
		{"a size beyond the end of numbers", statOf(&pb.Entry{Kind: pb.Kind_KIND_FILE, Size: math.MaxUint64}), stat, box.Fault},
		{"an attribute of the system", statOf(&pb.Entry{Kind: pb.Kind_KIND_FILE, Attributes: map[string][]byte{"security.capability": nil}}), stat, box.Fault},
		{"a huge attribute", statOf(&pb.Entry{Kind: pb.Kind_KIND_FILE, Attributes: map[string][]byte{"user.x": make([]byte, 65<<10)}}), stat, box.Fault},

		{"an entry elsewhere", entries("/etc/shadow"), list, box.Fault},
		{"an entry above", entries("/work/../etc"), list, box.Fault},
		{"an entry that is the folder", entries("/work"), list, box.Fault},
		{"an entry beside it", entries("/workshop"), list, box.Fault},
		{"an entry without a name", entries("/work/a//b"), list, box.Fault},
		{"an entry with a NUL", entries("/work/a\x00b"), list, box.Fault},
		{"an entry too deep", entries("/work/a/b/c"), list, box.Fault},
		{"an endless name", entries("/work/" + strings.Repeat("x", 21_000)), list, box.Fault},
		{"more entries than were asked for", entries("/work/a", "/work/b", "/work/c", "/work/d"), list, box.Fault},
		{"messages of nothing for ever", streams[pb.ListRequest](rpc.FilesListProcedure, func(_ context.Context, send func(*pb.ListResponse) error) error {
			for {
				if err := send(&pb.ListResponse{}); err != nil {
					return err
				}
			}
		}), list, box.Fault},

		{"no file", reads(), read, box.Fault},
		{"a file without an entry", reads(&pb.ReadResponse{Data: []byte("x")}), read, box.Fault},
		{"a folder to be read", reads(&pb.ReadResponse{Entry: &pb.Entry{Kind: pb.Kind_KIND_DIR}}), read, box.Fault},
		{"more of a file than was asked for", reads(&pb.ReadResponse{Entry: file(100)}, &pb.ReadResponse{Data: make([]byte, 6)}, &pb.ReadResponse{Data: make([]byte, 6)}), read, box.Fault},
		{"more of a file at once", reads(&pb.ReadResponse{Entry: file(100), Data: make([]byte, 11)}), read, box.Fault},
		{"less of a file than it has", reads(&pb.ReadResponse{Entry: file(100)}, &pb.ReadResponse{Data: make([]byte, 6)}), read, box.Conflict},
		{"a second entry", reads(&pb.ReadResponse{Entry: file(100)}, &pb.ReadResponse{Entry: file(100), Data: []byte("x")}), read, box.Fault},
		{"a piece of no file", reads(&pb.ReadResponse{Entry: file(100)}, &pb.ReadResponse{}), read, box.Fault},

		{"a folder that was written", service{rpc.FilesWriteProcedure, connect.NewClientStreamHandler(rpc.FilesWriteProcedure, func(_ context.Context, s *connect.ClientStream[pb.WriteRequest]) (*connect.Response[pb.WriteResponse], error) {
			for s.Receive() {
			}
			return connect.NewResponse(&pb.WriteResponse{Entry: &pb.Entry{Kind: pb.Kind_KIND_DIR}}), nil
		})}, write, box.Fault},
		{"success before everything was sent", service{rpc.FilesWriteProcedure, connect.NewClientStreamHandler(rpc.FilesWriteProcedure, func(_ context.Context, s *connect.ClientStream[pb.WriteRequest]) (*connect.Response[pb.WriteResponse], error) {
			return connect.NewResponse(&pb.WriteResponse{Entry: file(1)}), nil
		})}, func(ctx context.Context, g *guest.Guest) error {
			_, err := g.Write(ctx, "/work/f", box.WriteOptions{}, endless{})
			return err
		}, box.Fault},

		{"a change before the watch stood", watches(changed("a", pb.Change_WHAT_CREATE)), watch, box.Fault},
		{"a change above", watches(beat(), changed("../a", pb.Change_WHAT_CREATE)), watch, box.Fault},
		{"an absolute change", watches(beat(), changed("/a", pb.Change_WHAT_CREATE)), watch, box.Fault},
		{"a change with a NUL", watches(beat(), changed("a\x00", pb.Change_WHAT_CREATE)), watch, box.Fault},
		{"an unknown change", watches(beat(), changed("a", 0)), watch, box.Fault},
		{"an unknown event of a watch", watches(beat(), &pb.WatchResponse{}), watch, box.Fault},
		{"a watch that ends", watches(beat()), watch, box.NotFound},

		{"memory beyond the end of numbers", says[pb.MetricsRequest](rpc.MachineMetricsProcedure, &pb.MetricsResponse{MemoryUsedBytes: math.MaxUint64}), metrics, box.Fault},
		{"more processes than there can be", says[pb.MetricsRequest](rpc.MachineMetricsProcedure, &pb.MetricsResponse{Processes: math.MaxUint32}), metrics, box.Fault},

		{"no context", opened(nil), open, box.Fault},
		{"a context named like a path", opened(&pb.Context{Id: "../x", State: pb.Context_STATE_IDLE}), open, box.Fault},
		{"a context without a state", opened(&pb.Context{Id: "c1"}), open, box.Fault},
		{"a context with too many cells", opened(&pb.Context{Id: "c1", State: pb.Context_STATE_IDLE, Count: math.MaxUint32}), open, box.Fault},
		{"another context", says[pb.RestartRequest](rpc.ContextsRestartProcedure, &pb.RestartResponse{Context: &pb.Context{Id: "c2", State: pb.Context_STATE_IDLE}}), restart, box.Fault},
		{"a context twice", says[pb.ListContextsRequest](rpc.ContextsListProcedure, &pb.ListContextsResponse{Contexts: []*pb.Context{live, live}}), contexts, box.Fault},

		{"a cell from before", runs(event(4, "x")), cell, box.Fault},
		{"a cell with a gap", runs(event(5, "x"), event(7, "x")), cell, box.Fault},
		{"an event twice", runs(event(5, "x"), event(5, "x")), cell, box.Fault},
		{"a beat with a number", runs(&pb.RunResponse{Number: 5, Event: &pb.RunResponse_Beat{Beat: &pb.Beat{}}}), cell, box.Fault},
		{"a cell without an end", runs(event(5, "x")), cell, box.Fault},
		{"a cell with two ends", runs(cellEnded(5, pb.CellEnd_OUTCOME_OK), cellEnded(6, pb.CellEnd_OUTCOME_OK)), cell, box.Fault},
		{"a cell with an unknown outcome", runs(cellEnded(5, 0)), cell, box.Fault},
		{"an empty event of a cell", runs(&pb.RunResponse{Number: 5}), cell, box.Fault},
		{"more text than was asked for", runs(event(5, strings.Repeat("x", 200<<10))), cell, box.Fault},
		{"a result without a form", runs(&pb.RunResponse{Number: 5, Event: &pb.RunResponse_Result{Result: &pb.Result{}}}), cell, box.Fault},
		{"a MIME type that is none", runs(value(5, "text/html\r\nX: y", "")), cell, box.Fault},
		{"JSON that is none", runs(value(5, "application/json", "{")), cell, box.Fault},
		{"an image that is none", runs(value(5, "image/png", "<script>")), cell, box.Fault},

		{"data before the connection stood", service{rpc.MachineDialProcedure, connect.NewBidiStreamHandler(rpc.MachineDialProcedure, func(_ context.Context, s *connect.BidiStream[pb.DialRequest, pb.DialResponse]) error {
			return s.Send(&pb.DialResponse{Data: []byte("x")})
		})}, dial, box.Fault},
		{"a connection that never stood", service{rpc.MachineDialProcedure, connect.NewBidiStreamHandler(rpc.MachineDialProcedure, func(context.Context, *connect.BidiStream[pb.DialRequest, pb.DialResponse]) error {
			return nil
		})}, dial, box.Fault},

		{"text that is not UTF-8", invalidUTF8(), processes, box.Fault},
		{"another content type", rawBody("text/html", "<html>"), processes, box.Fault},
		{"bytes that are no message", rawBody("application/proto", "\xff\xff\xff"), processes, box.Fault},
		{"compressed bytes", compressed(), processes, box.Fault},
		{"500,000 empty entries", rawStream(rpc.FilesListProcedure, envelope(0, strings.Repeat("\x0a\x00", 500_000))), list, box.Fault},
		{"a message of 4 GiB", rawStream(rpc.FilesListProcedure, "\x00\xff\xff\xff\xff"), list, box.Fault},
		{"a stream without its end", rawStream(rpc.FilesListProcedure, envelope(0, "")), list, box.Fault},
		{"an end that is not JSON", rawStream(rpc.FilesListProcedure, envelope(2, "x")), list, box.Fault},
	}
}

func TestALieBecomesAnErrorOfItsBox(t *testing.T) {
	for _, l := range lies() {
		t.Run(l.name, func(t *testing.T) {
			noGoroutineLeft(t)
			all := []service{l.what}
			if l.what.path != rpc.MachineHelloProcedure {
				all = append(all, hello())
			}
			g := liar(t, guest.Options{}, all...)
			err := l.call(t.Context(), g)
			var e *box.Error
			if !errors.As(err, &e) || e.Kind != l.want {
				t.Errorf("the error is %v (%s), want %s", err, box.KindOf(err), l.want)
			}
			// The next call is as good as the first.
			if err := l.call(t.Context(), g); box.KindOf(err) != l.want {
				t.Errorf("the second time the error is %v (%s), want %s", err, box.KindOf(err), l.want)
			}
		})
	}
}
