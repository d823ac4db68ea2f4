package engine

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// full makes each change of the table fail, as a full disk does, until undone.
func (b *bench) full() (undo func()) {
	b.t.Helper()
	db, err := b.database()
	if err == nil {
		_, err = db.Exec("CREATE TRIGGER full BEFORE UPDATE ON boxes BEGIN SELECT RAISE(ABORT, 'disk is full'); END")
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return func() {
		if _, err := db.Exec("DROP TRIGGER full"); err != nil {
			b.t.Error(err)
		}
		db.Close()
	}
}

// database is the service's own, of which somebody may be writing at any moment.
func (b *bench) database() (*sql.DB, error) {
	return sql.Open("sqlite", "file:"+filepath.Join(b.dir, "sunaba.db")+"?_pragma=busy_timeout(120000)&_txlock=immediate")
}

func TestAnEndThatCannotBeWrittenDownIsWrittenLater(t *testing.T) {
	b := newBench(t, nil)
	i := b.make(box.CreateRequest{Sandbox: json.RawMessage(`{"env":{"TOKEN":"hidden"}}`)})
	undo := b.full()
	if err := b.Destroy(t.Context(), alice(), i.ID); err == nil {
		t.Error("nothing was written, and nothing is said")
	}
	if used, _ := b.conf.Gate.Used("a"); used.Boxes != 0 || b.tier.count() != 0 {
		t.Errorf("%d boxes of the share, %d on the host", used.Boxes, b.tier.count())
	}
	undo()
	b.becomes(i.ID, box.ReasonAsked)
	r, err := b.st.Box(t.Context(), "a", i.ID)
	if err != nil || strings.Contains(string(r.Spec), "hidden") || !strings.Contains(string(r.Spec), "Policy") {
		t.Errorf("%v, %s", err, r.Spec)
	}
}

func TestABoxThatCannotBeWrittenDownDoesNotStayHalfMade(t *testing.T) {
	b := newBench(t, nil)
	undo := b.full()
	if _, err := b.Create(t.Context(), alice(), box.CreateRequest{}); err == nil {
		t.Error("made")
	}
	undo()
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		all, _, err := b.List(t.Context(), alice(), box.ListRequest{Destroyed: true})
		if err != nil {
			t.Fatal(err)
		}
		if len(all) == 1 && all[0].Reason == box.ReasonFailed && b.tier.count() == 0 {
			return
		}
		if time.Since(begun) > longest {
			t.Fatalf("%+v, %d on the host", all, b.tier.count())
		}
	}
}

func TestAKeyWhoseBoxADeadDaemonNeverMadeMakesOne(t *testing.T) {
	b := newBench(t, nil)
	for key, row := range map[string]bool{"before its row": false, "after its row": true} {
		req := box.CreateRequest{Key: key}
		half := box.Record{ID: box.NewID(), Tenant: "a", Principal: "alice", Phase: box.PhaseCreated, Tier: box.TierGvisor, Created: now()}
		if _, _, err := b.st.Claim(t.Context(), "a", key, digest(req), half.ID); err != nil {
			t.Fatal(err)
		}
		if row {
			if err := b.st.Add(t.Context(), half); err != nil {
				t.Fatal(err)
			}
		}
		b.again()
		i, err := b.Create(t.Context(), alice(), req)
		if err != nil || i.Phase != box.PhaseRunning || i.ID == half.ID {
			t.Errorf("%s: %v, %+v", key, err, i)
		}
		if same, err := b.Create(t.Context(), alice(), req); err != nil || same.ID != i.ID {
			t.Errorf("%s: %v, %s is not %s", key, err, same.ID, i.ID)
		}
	}
}

func TestTheWallClockEndsNoBox(t *testing.T) {
	b := newBench(t, nil)
	i := b.make(box.CreateRequest{})
	for range 2 {
		l := b.lookup(i.ID)
		l.mu.Lock()
		if !strings.Contains(l.ends.String(), "m=+") || l.ends.Sub(i.Ends).Abs() > time.Second {
			t.Errorf("it ends at %v, and was told %v", l.ends, i.Ends)
		}
		l.mu.Unlock()
		var err error
		if i, err = b.Prolong(t.Context(), alice(), i.ID, 3*time.Hour); err != nil {
			t.Fatal(err)
		}
	}
}

// leftAgent is an agent whose caller goes away while it starts a program.
type leftAgent struct {
	Agent
	leave  func()
	killed []int
}

func (a *leftAgent) Start(ctx context.Context, _ box.ProcessSpec) (box.Process, error) {
	a.leave()
	if err := ctx.Err(); err != nil {
		return box.Process{}, err
	}
	return box.Process{PID: 7}, nil
}

func (a *leftAgent) Signal(ctx context.Context, p box.ProcessRef, _ int, _ bool) error {
	a.killed = append(a.killed, p.PID)
	return ctx.Err()
}

func TestAStartThatIsGivenUpLeavesNoProgram(t *testing.T) {
	b := newBench(t, nil)
	i := b.make(box.CreateRequest{})
	for _, detached := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		agent := &leftAgent{Agent: b.lookup(i.ID).guest, leave: cancel}
		b.lookup(i.ID).guest = agent
		p, err := b.guest(i.ID).Start(ctx, box.ProcessSpec{Command: box.Command{Argv: []string{"x"}}, Detached: detached})
		if detached && (err != nil || p.PID != 7 || len(agent.killed) != 0) {
			t.Errorf("detached: %v, %+v, killed %v", err, p, agent.killed)
		}
		if !detached && (!errors.Is(err, context.Canceled) || len(agent.killed) != 1) {
			t.Errorf("%v, killed %v", err, agent.killed)
		}
	}
}
