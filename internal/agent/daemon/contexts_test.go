package daemon

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
	"github.com/sunaba-dev/sunaba/internal/agent/agentpb/agentpbconnect"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// TestContextsAreTheAgentsChildren: they run as the user that programs run as,
// are reaped by the agent, and are not in the list of processes.
func TestContextsAreTheAgentsChildren(t *testing.T) {
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		var words []string
		uid := fmt.Sprint(harness.OrdinaryID)
		switch {
		case os.Geteuid() != 0:
			uid = fmt.Sprint(os.Getuid())
		case u == harness.Root: // as a box with guest root has it
			words, uid = []string{"root"}, "1000"
		}
		dir := harness.Dir(t, u)
		r := beginIn(t, u, dir, nil, words...)
		conn := r.stream()
		var p http.Protocols
		p.SetUnencryptedHTTP2(true)
		tr := &http.Transport{Protocols: &p, DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}
		defer tr.CloseIdleConnections()
		c := agentpbconnect.NewContextsClient(&http.Client{Transport: tr}, "http://box")
		opened, err := c.Open(deadline(t), connect.NewRequest(&pb.OpenRequest{Language: "bash", Dir: "/", Env: pathEnv}))
		if err != nil {
			t.Fatal(err)
		}
		id := opened.Msg.Context.Id
		cell := func(name, code string) (out string, end *pb.CellEnd) {
			t.Helper()
			s, err := c.Run(deadline(t), connect.NewRequest(&pb.RunRequest{Context: id, Cell: name, Code: code}))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for s.Receive() {
				out += s.Msg().GetStdout()
				if e := s.Msg().GetEnd(); e != nil {
					end = e
				}
			}
			if s.Err() != nil {
				t.Fatal(s.Err())
			}
			return out, end
		}
		if out, end := cell("1", "x=kept; id -u"); strings.TrimSpace(out) != uid || end.GetOutcome() != pb.CellEnd_OUTCOME_OK {
			t.Errorf("got %q, %v, want user %s", out, end, uid)
		}
		if out, _ := cell("2", "echo $x"); out != "kept\n" {
			t.Errorf("got %q", out)
		}
		list, err := r.ProcessesClient.List(deadline(t), connect.NewRequest(&pb.ListProcessesRequest{}))
		if err != nil || len(list.Msg.Processes) != 0 {
			t.Errorf("%v, %v", list, err)
		}
		if _, end := cell("3", "kill -9 $$"); end.GetOutcome() != pb.CellEnd_OUTCOME_DIED {
			t.Errorf("got %v", end)
		}
		if _, err := c.Close(deadline(t), connect.NewRequest(&pb.CloseRequest{Context: id})); err != nil {
			t.Error(err)
		}
	})
}
