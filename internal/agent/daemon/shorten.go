package daemon

import (
	"strings"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
)

// listedArgs bounds what a list tells of all command lines together, in bytes: a
// message has its bound, and a script may be one argument.
const listedArgs = 512 << 10

// shorten cuts command lines so that each has its share.
func shorten(all []*pb.Process) {
	for _, p := range all {
		left := listedArgs / len(all)
		for i, a := range p.Argv {
			if left -= len(a) + 8; left >= 0 {
				continue
			}
			argv := append([]string(nil), p.Argv[:i]...) // the other is the record's
			p.Argv = append(argv, strings.ToValidUTF8(a[:max(len(a)+left, 0)], "")+"…")
			break
		}
	}
}
