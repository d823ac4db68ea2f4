package posture

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"

	"github.com/sunaba-dev/sunaba/internal/posture"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// cellBox is a box of tier process that stands, with a shell in it that waits
// for its next line.
type cellBox struct {
	user     harness.User
	state    string
	id       string
	front    *posture.Process
	janitor  *posture.Process
	cell     *posture.Process
	programs []*posture.Process // parents before children: the shell is the first

	talk
}

// programs is the shell in the box: for each line that it reads it starts a
// process and a program with four threads, and says so when they run.
const programs = `echo ready; while read l; do sleep 1000 & python3 -c '
import threading, time
for i in range(3): threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
print("more", flush=True)
time.sleep(1000)' & done`

// startCell starts a box and reads all its processes.
func startCell(t *testing.T, u harness.User, args ...string) *cellBox {
	t.Helper()
	args = append([]string{"run", "--trust", "trusted", "--disk", "100m"}, args...)
	b := &cellBox{user: u, state: harness.State(t, u), talk: begin(t, u, programs, args...)}
	b.settle(t)
	return b
}

// settle reads until the cell has put away what it started the program with, and
// the shell's children are programs of their own: who says that it runs may be
// a moment ahead of both.
func (b *cellBox) settle(t *testing.T) {
	t.Helper()
	settle(t, func() ([]*posture.Process, []string) {
		all, bad := b.read(t)
		switch {
		case len(bad) > 0:
		case !b.cell.Hidden && len(b.cell.Files) != len(cellFiles()):
			bad = append(bad, fmt.Sprintf("the cell has descriptors %v, want %q", b.cell.Files, cellFiles()))
		case slices.ContainsFunc(b.programs[1:], func(p *posture.Process) bool { return p.Args[0] == "sh" }):
			bad = append(bad, "a child of the shell is no program of its own")
		}
		return all, bad
	})
}

// more starts two more programs and reads all again.
func (b *cellBox) more(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(b.stdin, "more\n"); err != nil {
		t.Fatal(err)
	}
	b.expect(t, "more")
	b.settle(t)
}

// read finds the processes below the front by the names that they were started
// with; what is below the cell is a program. It says what is not as it has to be.
func (b *cellBox) read(t *testing.T) (all []*posture.Process, bad []string) {
	t.Helper()
	all, err := posture.Tree(b.pid)
	if err != nil {
		t.Fatal(err)
	}
	b.front, b.janitor, b.cell, b.programs = nil, nil, nil, nil
	inside := map[int]bool{}
	for _, p := range all {
		switch {
		case p.PID == b.pid:
			b.front = p
		case p.Args[0] == "sunaba-janitor" && p.Parent == b.pid && b.janitor == nil:
			b.janitor = p
		case p.Args[0] == "sunaba-cell" && p.Parent == b.pid && b.cell == nil:
			b.cell = p
			inside[p.PID] = true
		case inside[p.Parent]:
			b.programs = append(b.programs, p)
			inside[p.PID] = true
		default:
			bad = append(bad, fmt.Sprintf("process %d %q is none that a box consists of", p.PID, p.Args))
		}
	}
	if b.janitor == nil || b.cell == nil || len(b.programs) == 0 {
		return all, append(bad, fmt.Sprintf("found janitor %v, cell %v, %d programs", b.janitor != nil, b.cell != nil, len(b.programs)))
	}
	var task struct{ ID string }
	if err := json.Unmarshal([]byte(b.janitor.Args[1]), &task); err != nil || task.ID == "" {
		t.Fatalf("cannot read the box's name from its janitor: %v", err)
	}
	b.id = task.ID
	return all, bad
}

// inside are all processes that stand in the box's group.
func (b *cellBox) inside() []*posture.Process {
	return append([]*posture.Process{b.cell}, b.programs...)
}

// hostUser is who the box is on the host.
func (b *cellBox) hostUser(t *testing.T) int {
	t.Helper()
	if b.user == harness.Ordinary {
		if os.Geteuid() == 0 {
			return harness.OrdinaryID
		}
		return os.Geteuid()
	}
	id := b.cell.Threads[0].UID[0]
	if id < firstUser || id > lastUser {
		t.Errorf("host user %d is not in the range of boxes", id)
	}
	return id
}
