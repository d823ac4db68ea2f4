package gvisor

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"

	"github.com/sunaba-dev/sunaba/internal/agent/daemon"
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
	return writeSystem(dir, []erofs.Entry{
		{Path: "/init", Mode: 0o555, Size: int64(len(init)), Open: erofs.Bytes(init)},
		program("/agent", agent),
	})
}

// lastingSystem makes that of boxes that last, whose first process is the
// daemon. Without a separate one the agent's program serves.
func lastingSystem(dir string, agent, server *io.SectionReader) (*os.File, error) {
	if server == nil {
		server = agent
	}
	return writeSystem(dir, []erofs.Entry{program("/agent", agent), program("/"+daemon.Argv, server)})
}

func program(path string, content *io.SectionReader) erofs.Entry {
	return erofs.Entry{Path: path, Mode: 0o555, Size: content.Size(), Open: func() (io.ReadCloser, error) {
		return io.NopCloser(io.NewSectionReader(content, 0, content.Size())), nil
	}}
}

func writeSystem(dir string, entries []erofs.Entry) (*os.File, error) {
	f, err := host.OpenUnlinked(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries = append([]erofs.Entry{{Path: "/", Mode: fs.ModeDir | 0o555}}, entries...)
	if _, err := erofs.Write(f, entries, 0); err != nil {
		return nil, fmt.Errorf("cannot make system image: %w", err)
	}
	return host.Seal(f)
}
