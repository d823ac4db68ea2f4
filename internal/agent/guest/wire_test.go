package guest_test

import (
	"encoding/binary"
	"io"
	"net/http"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
	rpc "github.com/sunaba-dev/sunaba/internal/agent/agentpb/agentpbconnect"

	"google.golang.org/protobuf/proto"
)

// endless is an upload without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// envelope is a message of a stream, as Connect frames it.
func envelope(flags byte, message string) string {
	head := binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(message)))
	return string(head) + message
}

// rawBody answers a list of processes with a body of its own.
func rawBody(contentType, body string) service {
	return raw(rpc.ProcessesListProcedure, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, body)
	})
}

// rawStream answers a call with a stream of its own.
func rawStream(path, body string) service {
	return raw(path, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/connect+proto")
		_, _ = io.WriteString(w, body)
	})
}

// invalidUTF8 is a process whose tag is not text.
func invalidUTF8() service {
	b, err := proto.Marshal(&pb.ListProcessesResponse{Processes: []*pb.Process{{Pid: 7, User: "user", Tag: "tag"}}})
	if err != nil {
		panic(err)
	}
	for i := range b {
		if string(b[i:min(i+3, len(b))]) == "tag" {
			b[i] = 0xff
		}
	}
	return rawBody("application/proto", string(b))
}

// compressed says that its answer is.
func compressed() service {
	return raw(rpc.ProcessesListProcedure, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/proto")
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = io.WriteString(w, "\x1f\x8b")
	})
}
