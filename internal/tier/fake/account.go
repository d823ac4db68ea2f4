package fake

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// account is what was last seen of a box's use: a process that has ended cannot
// be asked any more.
type account struct {
	mu    sync.Mutex
	usage box.Usage
}

func (a *account) get() box.Usage {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.usage
}

// note looks at the agent and its children, as proc(5) shows them: ticks of a
// hundredth of a second, and the largest resident memory of the agent alone.
func (a *account) note(b *Box) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if f := statOf(b.st.PID); len(f) > 15 {
		var ticks int64
		for _, s := range f[11:15] {
			n, _ := strconv.ParseInt(s, 10, 64)
			ticks += n
		}
		a.usage.CPU = max(a.usage.CPU, time.Duration(ticks)*10*time.Millisecond)
	}
	status, _ := os.ReadFile("/proc/" + strconv.Itoa(b.st.PID) + "/status")
	if _, rest, ok := strings.Cut(string(status), "VmHWM:"); ok {
		if f := strings.Fields(rest); len(f) > 0 {
			kb, _ := strconv.ParseInt(f[0], 10, 64)
			a.usage.MemoryPeak = max(a.usage.MemoryPeak, kb<<10)
		}
	}
	a.usage.Written = 0
	_ = filepath.WalkDir(b.work(), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if st, err := d.Info(); err == nil {
				a.usage.Written += st.Size()
			}
		}
		return nil
	})
}
