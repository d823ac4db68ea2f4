package daemon

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
)

func TestAListOfLongCommandLinesFitsIntoAMessage(t *testing.T) {
	long := []string{"sh", "-c", strings.Repeat("ö", 100_000), "x"}
	m := &pb.ListProcessesResponse{}
	for range maxLive + maxEnded {
		m.Processes = append(m.Processes, &pb.Process{Pid: 1, User: userOrdinary, Argv: long}, &pb.Process{Pid: 2, Argv: []string{"true"}})
	}
	shorten(m.Processes)
	if n := proto.Size(m); n > maxMessage {
		t.Errorf("it has %d bytes", n)
	}
	if a := m.Processes[0].Argv; len(a) != 3 || a[1] != "-c" || !strings.HasSuffix(a[2], "ö…") || len(long[2]) != 200_000 {
		t.Errorf("the command line became %.100q", a)
	}
	if a := m.Processes[1].Argv; len(a) != 1 || a[0] != "true" {
		t.Errorf("a short one became %q", a)
	}
}
