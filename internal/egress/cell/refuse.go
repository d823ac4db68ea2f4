package cell

import (
	"fmt"
	"net/http"
	"time"

	"github.com/sunaba-dev/sunaba/internal/egress/dial"
	"github.com/sunaba-dev/sunaba/internal/egress/event"
	"github.com/sunaba-dev/sunaba/internal/egress/rules"
)

// lingering is how long what the box still sends after a refusal is read, so
// that a reset does not take the answer away.
const lingering = time.Second

// refuse answers a request with the reason why it is not carried, and ends the
// connection: what follows could be the body of what was refused.
func (x *exchange) refuse(status int, v rules.Verdict) {
	if v.Rule == "" {
		_, entry := x.o.current()
		v.Rule = entry.Rule
	}
	x.verdict = v
	e := x.event()
	e.Decision, e.Code, e.Status, e.Reason, e.Fix = event.Deny, string(v.Code), status, v.Reason, v.Fix
	x.o.cell.emit(e)
	head := x.q != nil && x.q.Method == http.MethodHead
	if !x.write(refusal(status, e, head)) {
		return
	}
	box := x.client.box
	if box.CloseWrite() != nil {
		return
	}
	_ = box.SetReadDeadline(time.Now().Add(lingering))
	buf := make([]byte, 4<<10)
	for range 256 { // a bound in bytes, too
		if _, err := box.Read(buf); err != nil {
			return
		}
	}
}

// toldOfOutside is what a box is told of what the gateway met beyond it. The error
// itself names addresses of this host's network, of its resolvers and of names,
// which are for whoever runs the box.
func toldOfOutside(code dial.Code) (reason string, ok bool) {
	switch code {
	case dial.NameUnknown:
		return "the name has no address", true
	case dial.ResolverFailed:
		return "the name cannot be resolved now", true
	case dial.AddressDenied:
		return "the name has no address that may be reached", true
	case dial.UpstreamRefused:
		return "the host cannot be reached, or ended the connection", true
	case dial.UpstreamTimeout:
		return "the host does not answer in time", true
	}
	return "", false
}

// refusal is the answer: text that a person or a model can act on.
func refusal(status int, e event.Event, head bool) []byte {
	what, reason := "the network policy of this box does not allow this request", e.Reason
	outside, ok := toldOfOutside(dial.Code(e.Code))
	if ok {
		what, reason = "this request is allowed, and did not get an answer", outside
	}
	body := fmt.Sprintf("sunaba: %s.\n\nreason: %s (%s)\n", what, reason, e.Code)
	if e.Method != "" {
		body += fmt.Sprintf("request: %+q http://%s:%d%s\n", e.Method, e.Name, e.Port, e.Path)
	}
	if e.Rule != "" {
		body += fmt.Sprintf("rule: %s\n", e.Rule)
	}
	if ok {
		body += "whoever runs this box can see more of why.\n" // a fix has addresses, too
	} else if e.Fix != "" {
		body += fmt.Sprintf("to allow it, whoever runs this box can add to its policy: %s\n", e.Fix)
	} else {
		body += "whoever runs this box can see it as a denial, and may change its policy.\n"
	}
	out := fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nX-Sunaba-Denied: %s\r\nCache-Control: no-store\r\nContent-Length: %d\r\nConnection: close\r\n\r\n",
		status, http.StatusText(status), e.Code, len(body))
	if head {
		return out
	}
	return append(out, body...)
}

func (s *server) close() {
	if s.up != nil {
		_ = s.up.Close()
	}
	*s = server{}
}
