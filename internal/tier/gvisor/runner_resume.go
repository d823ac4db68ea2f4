package gvisor

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/sunaba-dev/sunaba/internal/agent/wire"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// resumeState is what a runner that was built with cgo hands to itself across
// the execution that drops its rights. Numbers are descriptors.
type resumeState struct {
	Seq     int
	Set     setup
	Sources []string
	Link    int
	Listen  int   // 0 without one
	Files   []int // root, system, store, seeds, stream, ends of the link and parts, 0 for one that is not there
}

// dropByExec replaces this process by one without rights, which goes on with
// resume. It returns only on failure.
func (r *runner) dropByExec(seq int, in inputs, sources []string) error {
	link, listen, err := r.Files()
	if err != nil {
		return fmt.Errorf("cannot keep link: %w", err)
	}
	st := resumeState{Seq: seq, Set: r.set, Sources: sources, Link: int(link.Fd())}
	files := []*os.File{link}
	if listen != nil {
		st.Listen, files = int(listen.Fd()), append(files, listen)
	}
	for _, f := range append([]*os.File{in.root, in.system, in.store, in.seeds, in.stream, in.nic, in.far}, in.parts[:]...) {
		fd := 0
		if f != nil {
			fd, files = int(f.Fd()), append(files, f)
		}
		st.Files = append(st.Files, fd)
	}
	b, err := json.Marshal(st)
	if err != nil {
		return fmt.Errorf("cannot encode state: %w", err)
	}
	mem, err := host.Memory("resume", b)
	if err != nil {
		return err
	}
	return host.DropAllByExec([]string{argvRunner, fmt.Sprint(mem.Fd())}, append(files, mem)...)
}

// resume takes over in the new image.
func resume(mem *os.File) (*runner, error) {
	defer mem.Close()
	b, err := io.ReadAll(mem)
	if err != nil {
		return nil, fmt.Errorf("cannot read state: %w", err)
	}
	var st resumeState
	if err := json.Unmarshal(b, &st); err != nil {
		return nil, fmt.Errorf("cannot parse state: %w", err)
	}
	var listen *os.File
	if st.Listen != 0 {
		listen = os.NewFile(uintptr(st.Listen), "link")
	}
	server, err := wire.Resume(os.NewFile(uintptr(st.Link), "link"), listen)
	if err != nil {
		return nil, err
	}
	r := &runner{Server: server, set: st.Set}
	r.Answer(st.Seq, func() (any, error) {
		var in inputs
		for i, to := range []**os.File{&in.root, &in.system, &in.store, &in.seeds, &in.stream, &in.nic, &in.far, &in.parts[0], &in.parts[1], &in.parts[2], &in.parts[3]} {
			if st.Files[i] != 0 {
				*to = os.NewFile(uintptr(st.Files[i]), "passed")
			}
		}
		return r.create(in, st.Sources)
	})
	return r, nil
}
