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
	Files   []int // root, system, store, and seeds if there are any
}

// dropByExec replaces this process by one without rights, which goes on with
// resume. It returns only on failure.
func (r *runner) dropByExec(seq int, in inputs, sources []string) error {
	files := []*os.File{in.root, in.system, in.store}
	if in.seeds != nil {
		files = append(files, in.seeds)
	}
	link, err := r.Link().File()
	if err != nil {
		return fmt.Errorf("cannot keep link: %w", err)
	}
	st := resumeState{Seq: seq, Set: r.set, Sources: sources, Link: int(link.Fd())}
	for _, f := range files {
		st.Files = append(st.Files, int(f.Fd()))
	}
	b, err := json.Marshal(st)
	if err != nil {
		return fmt.Errorf("cannot encode state: %w", err)
	}
	mem, err := host.Memory("resume", b)
	if err != nil {
		return err
	}
	return host.DropAllByExec([]string{argvRunner, fmt.Sprint(mem.Fd())}, append(files, link, mem)...)
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
	link, err := host.NewLink(os.NewFile(uintptr(st.Link), "link"))
	if err != nil {
		return nil, err
	}
	r := &runner{Server: wire.NewServer(link), set: st.Set}
	r.Answer(st.Seq, func() (any, error) {
		var in inputs
		for i, to := range []**os.File{&in.root, &in.system, &in.store, &in.seeds}[:len(st.Files)] {
			*to = os.NewFile(uintptr(st.Files[i]), "passed")
		}
		return r.create(in, st.Sources)
	})
	return r, nil
}
