package house

import (
	"fmt"
	"slices"
	"strings"
)

// room is one line of the plan: a folder and what its code may import besides
// the standard library. What is not listed is forbidden, so a new room starts
// with no friends and gains them here, in review, with a reason.
type room struct {
	dir   string   // module-relative; "x/..." includes the folders below
	own   []string // folders of this module, same notation
	ext   []string // packages of other modules, same notation
	tests []string // further packages of other modules for its tests
	why   string
}

const (
	unixCalls = "golang.org/x/sys/unix"
	gvisor    = "gvisor.dev/gvisor/..."
	connect   = "connectrpc.com/connect"
	protobuf  = "google.golang.org/protobuf/..."
)

// rooms is the plan of the house. The first match decides.
func rooms() []room {
	// Stream handles bytes and knows no more than box; so a tier may have it.
	tierOwn := []string{"internal/tier/frame/...", "internal/tier/probe", "internal/agent/...", "box", "internal/host/...", "internal/image/...", "internal/files", "internal/agent", "internal/stream", "internal/posture", "internal/fault"}
	return []room{
		{dir: "box",
			why: "it is the vocabulary: every room speaks it, so it may depend on none"},
		{dir: "internal/policy", own: []string{"box"},
			why: "a decision is a pure function, tested by golden files"},
		{dir: "internal/stream", own: []string{"box"},
			why: "bytes from a box are handled without knowing who made it"},
		{dir: "internal/audit", own: []string{"box"},
			why: "the record must not depend on what it records"},
		{dir: "internal/tenant", own: []string{"box"},
			why: "who owns what is decided without I/O"},
		{dir: "internal/settings", own: []string{"box"}, ext: []string{"go.yaml.in/yaml/v3"},
			why: "it reads strict YAML, and knows no key"},
		{dir: "internal/config", own: []string{"box", "internal/policy", "internal/settings", "internal/egress/rules"}, ext: []string{"go.yaml.in/yaml/v3"},
			why: "configuration is a value in policy's terms"},
		{dir: "internal/host/...", own: []string{"box", "internal/host/..."}, ext: []string{unixCalls}, tests: []string{"gvisor.dev/gvisor/pkg/bpf"},
			why: "the only room with unix calls; it knows no tier. Its tests run a system-call filter in gVisor's interpreter"},
		{dir: "internal/terminal", own: []string{"box", "internal/stream"}, ext: []string{"golang.org/x/term"},
			why: "the caller's terminal is no part of a box"},
		{dir: "internal/posture",
			why: "who reads what the kernel says of a process must not know what was promised to whom"},
		{dir: "internal/procguard",
			why: "it must be initialized before every package that is not of the standard library"},
		{dir: "internal/files", own: []string{"box", "internal/host/...", "internal/agent"},
			why: "names are resolved by descriptor, with host's openat2; of agent it needs the words of its archives, and nothing higher"},
		{dir: "internal/image/erofs", tests: []string{"gvisor.dev/gvisor/pkg/..."},
			why: "a format is written without knowing what for; its tests read it back with the reader that a box will use"},
		{dir: "internal/image", own: []string{"box", "internal/host/...", "internal/files", "internal/image/erofs"},
			why: "root file systems know nothing of who will run in them"},
		{dir: "internal/agent/clock",
			why: "it is time and nothing else"},
		{dir: "internal/agent/embedded",
			why: "it is a file and knows nothing of what is in it"},
		{dir: "internal/agent/agentpb/...", own: []string{"internal/agent/agentpb"}, ext: []string{connect, protobuf},
			why: "it is generated: the agent's protocol"},
		{dir: "internal/agent/daemon", own: []string{"box", "internal/host/...", "internal/agent/agentpb/...", "internal/agent/clock", "internal/agent/contexts"}, ext: []string{unixCalls, connect, protobuf},
			why: "it runs inside a box for as long as that lives, and must stay small"},
		{dir: "internal/agent/contexts", own: []string{"box", "internal/agent/agentpb/...", "internal/agent/clock"}, ext: []string{connect, protobuf},
			why: "it runs inside a box, beside the agent's other services"},
		{dir: "internal/agent/guest", own: []string{"box", "internal/agent/agentpb/...", "internal/stream"}, ext: []string{connect, protobuf},
			why: "it is the host's end of the agent's protocol: it believes nothing, and knows a byte stream only; stream shows an agent's words as text"},
		{dir: "internal/agent/wire", own: []string{"box", "internal/host/..."},
			why: "both ends of a box's link speak it"},
		{dir: "internal/agent/cell", own: []string{"box", "internal/host/...", "internal/agent", "internal/agent/wire"}, ext: []string{unixCalls},
			why: "it is PID 1 of a box: it builds the walls from the inside with what host offers, and must stay small"},
		{dir: "internal/agent", own: []string{"box", "internal/stream"}, ext: []string{unixCalls},
			why: "it runs inside a box and must stay small"},
		{dir: "internal/tier/tiertest", own: []string{"box", "internal/host/...", "internal/files", "internal/snapshot"}, tests: []string{"gvisor.dev/gvisor/pkg/sentry/platform/systrap/sysmsg"}, // whose code slowstub_test.go makes slow
			why: "one suite judges all tiers through box.Tier, so it may know none of them"},
		{dir: "internal/tier/gvisor/...", own: append(tierOwn, "internal/tier/gvisor/..."),
			ext: []string{gvisor, "github.com/opencontainers/runtime-spec/specs-go", "github.com/google/subcommands"},
			why: "a tier makes walls and never sees pool, server, egress, secret, store or another tier; gVisor's internals stay in this room"},
		{dir: "internal/tier", own: []string{"box"},
			why: "the choice of a tier looks at names and capabilities, not at tiers"},
		{dir: "internal/tier/...", own: tierOwn,
			why: "a tier makes walls and never sees pool, server, egress, secret, store or another tier"},
		{dir: "internal/fault",
			why: "it ends this process at a named point, in test builds alone, and knows nothing"},
		{dir: "internal/snapshot", own: []string{"box", "internal/host/...", "internal/stream", "internal/fault"},
			why: "it keeps parts of boxes by their digest, and cannot read one of them"},
		{dir: "internal/volume", own: []string{"box", "internal/host/...", "internal/fault"},
			why: "it keeps file systems in files, and knows nothing of who mounts them"},
		{dir: "internal/store", own: []string{"box", "internal/host/...", "internal/fault"}, ext: []string{"modernc.org/sqlite"},
			why: "it keeps records and knows nothing of how a box is made; of host it needs the lock on a folder"},
		{dir: "internal/pool", own: []string{"box"},
			why: "it keeps boxes of any tier"},
		{dir: "internal/engine", own: []string{"box", "internal/policy", "internal/pool", "internal/tier", "internal/stream", "internal/files", "internal/host/...", "internal/audit", "internal/tenant", "internal/store", "internal/snapshot", "internal/volume", "internal/fault"},
			why: "the spine sees tiers through box.Tier only; the list of tiers is made in cmd; host is for opening what a caller named, by descriptor"},
		{dir: "internal/secret", own: []string{"box", "internal/host/..."},
			why: "it is imported by egress, gateway and cmd only"},
		{dir: "internal/hostname", ext: []string{"golang.org/x/net/idna"},
			why: "there is one parser of host names, and it depends on nobody"},
		{dir: "internal/egress/special",
			why: "it is a table of addresses"},
		{dir: "internal/egress/httppath",
			why: "it is a pure function of text"},
		{dir: "internal/egress/rules", own: []string{"box", "internal/settings", "internal/hostname", "internal/egress/special", "internal/egress/httppath"}, ext: []string{"go.yaml.in/yaml/v3", "golang.org/x/net/publicsuffix", "golang.org/x/text/unicode/norm"},
			why: "what a policy says is decided without I/O"},
		{dir: "internal/egress/link", ext: []string{unixCalls, gvisor},
			why: "it is packets on a descriptor: it knows no name and no policy, and the TCP/IP stack stays in this room"},
		{dir: "internal/egress/synth", own: []string{"internal/hostname"},
			why: "it is a table"},
		{dir: "internal/egress/ledger", own: []string{"box", "internal/host", "internal/hostname"}, ext: []string{unixCalls},
			why: "the gateway writes it, and who keeps the gateway has the file"},
		{dir: "internal/egress/dnswire", tests: []string{"golang.org/x/net/dns/dnsmessage"},
			why: "it reads hostile bytes, and does nothing else"},
		{dir: "internal/egress/peek",
			why: "it reads hostile bytes, and does nothing else"},
		{dir: "internal/egress/http1",
			why: "it reads hostile bytes, and does nothing else"},
		{dir: "internal/egress/event",
			why: "it is what is told of a decision, and everybody may read it"},
		{dir: "internal/egress/dial", own: []string{"internal/hostname", "internal/egress/rules", "internal/egress/special"}, ext: []string{unixCalls, "golang.org/x/net/dns/dnsmessage"},
			why: "it is the only door to the world, and takes an entry of a policy to open it"},
		{dir: "internal/egress/cell", own: []string{"internal/hostname", "internal/egress/..."}, tests: []string{unixCalls, gvisor, "golang.org/x/net/dns/dnsmessage"},
			why: "it judges, with what the other rooms know; its tests have a box's kernel at the other end"},
		{dir: "internal/egress/control", own: []string{"box"},
			why: "both ends of the gateway's control connection speak it"},
		{dir: "internal/egress/keeper", own: []string{"box", "internal/host/...", "internal/egress/control", "internal/egress/ledger", "internal/fault"}, tests: []string{"golang.org/x/net/dns/dnsmessage"},
			why: "it is a part of the daemon, which has no network stack and reads no packet"},
		{dir: "internal/egress/...", own: []string{"box", "internal/host/...", "internal/policy", "internal/audit", "internal/secret", "internal/hostname", "internal/egress/..."}, ext: []string{unixCalls},
			why: "it hangs beside the box and talks back only to policy and audit"},
		{dir: "internal/gateway/...", own: []string{"box", "internal/policy", "internal/audit", "internal/secret", "internal/gateway/..."},
			why: "it hangs beside the box and talks back only to policy and audit"},
		{dir: "internal/server/mcp", own: []string{"box", "internal/stream", "internal/server"}, ext: []string{"github.com/modelcontextprotocol/go-sdk/...", "github.com/google/jsonschema-go/..."},
			why: "a server translates to box.Service and sees nothing below it; a model reads cleaned text"},
		{dir: "internal/server/...", own: []string{"box", "internal/stream", "internal/server/..."}, ext: []string{"github.com/danielgtaylor/huma/v2/..."},
			why: "a server translates to box.Service and sees nothing below it"},
		{dir: "internal/client", own: []string{"box"},
			why: "it is one more client of REST, and knows what any other does"},
		{dir: "internal/house",
			why: "the judge depends on nobody"},
		{dir: "cmd/...", own: []string{"box", "internal/...", "cmd/..."}, ext: []string{"golang.org/x/term"},
			why: "wiring lives here, and only here everything is known"},
		{dir: "test/upstream", tests: []string{"golang.org/x/net/dns/dnsmessage"},
			why: "it is the world of tests that have a network, and answers DNS"},
		{dir: "tools/bench", own: []string{"box", "internal/..."},
			why: "it measures tiers from outside, and one of them through its Go interface, where no command line has it yet"},
		{dir: "tools/benchnet", own: []string{"box", "internal/egress/control", "internal/egress/ledger", "internal/egress/rules", "internal/host/..."}, ext: []string{"golang.org/x/net/dns/dnsmessage"},
			why: "it measures the network of boxes from outside, and answers for the names in its world; to the gateway it speaks as its keeper does"},
		{dir: "tools/...",
			why: "a tool of the build must run before anything else compiles"},
	}
}

// testOnly lists what test files may import beyond their room: any room of this
// module, and these modules.
func testOnly() []string {
	return []string{
		"github.com/santhosh-tekuri/jsonschema/v6/...", // docs/result.schema.json against real results
		"pgregory.net/rapid/...",                       // property tests
		"github.com/rogpeppe/go-internal/...",          // testscript: what a person types
		"golang.org/x/tools/txtar/...",
	}
}

// children is where child processes are started: by walls, by the wiring, and
// by what measures other programs. Test files may start them too.
var children = []string{"internal/host/...", "internal/agent/...", "internal/tier/...", "cmd/...", "tools/..."} //house:const a table

func checkImports(t *Tree) []Finding {
	var out []Finding
	for _, f := range slices.Concat(t.Files, t.Generated) {
		r, known := roomOf(f.Dir)
		if !known && !f.Test {
			out = append(out, Finding{f.Path, fmt.Sprintf("folder %s has no line in the plan (internal/house/rooms.go): say what it may import, and why", f.Dir)})
			continue
		}
		for _, spec := range f.AST.Imports {
			p := strings.Trim(spec.Path.Value, `"`)
			own, isOwn := strings.CutPrefix(p, t.Module+"/")
			switch {
			case p == "os/exec" && !f.Test && !within(f.Dir, children...):
				out = append(out, Finding{t.pos(spec), fmt.Sprintf("%s may not import os/exec: only host, agent, tiers, cmd and tools start a child", f.Dir)})
			case isOwn && (f.Test || within(own, r.own...)):
			case isOwn:
				out = append(out, Finding{t.pos(spec), fmt.Sprintf("%s may not import %s: %s", f.Dir, own, r.why)})
			case isStandard(p) || within(p, r.ext...) || f.Test && within(p, append(testOnly(), r.tests...)...):
			default:
				out = append(out, Finding{t.pos(spec), fmt.Sprintf("%s may not import %s: %s", f.Dir, p, r.why)})
			}
		}
	}
	return out
}

func roomOf(dir string) (room, bool) {
	for _, r := range rooms() {
		if within(dir, r.dir) {
			return r, true
		}
	}
	return room{why: "this folder has no line in the plan"}, false
}

// isStandard reports whether p is a package of the standard library: its first
// element has no dot. "C" is judged by its own rule.
func isStandard(p string) bool {
	first, _, _ := strings.Cut(p, "/")
	return !strings.Contains(first, ".")
}
