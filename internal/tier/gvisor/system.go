package gvisor

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"

	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/image/erofs"
)

// systemImage makes the small read-only image that every guest has at
// systemDir: its first process and the agent. It has no name on the host.
func systemImage(dir string, agent *io.SectionReader) (*os.File, error) {
	init, err := guestInit(runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	f, err := host.OpenUnlinked(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries := []erofs.Entry{
		{Path: "/", Mode: fs.ModeDir | 0o555},
		{Path: "/init", Mode: 0o555, Size: int64(len(init)), Open: erofs.Bytes(init)},
		{Path: "/agent", Mode: 0o555, Size: agent.Size(), Open: func() (io.ReadCloser, error) { return io.NopCloser(io.NewSectionReader(agent, 0, agent.Size())), nil }},
	}
	if _, err := erofs.Write(f, entries, 0); err != nil {
		return nil, fmt.Errorf("cannot make system image: %w", err)
	}
	return host.Seal(f)
}
