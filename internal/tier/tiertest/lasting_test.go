package tiertest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/guest"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// argvFront is the name of a process that makes a box, tells of it, and waits to
// be killed.
const argvFront = "tiertest-front"

// told is what it tells.
type told struct {
	ID    box.ID
	State []byte
	PID   int  // of a program in the box
	Done  bool // what it was in the midst of is over
}

func frontMain(args []string) int {
	err := func() error {
		tier, _, err := makeTier(box.TierName(args[0]), args[1])
		if err != nil {
			return err
		}
		made := spec()
		if len(args) > 3 {
			made = memorySpec()
			made.Limits.Disk = 256 << 20
		}
		b, err := tier.Create(context.Background(), made)
		if err != nil {
			return err
		}
		g := guest.New(b.(box.Lasting).Agent, unhurried)
		p, err := g.Start(context.Background(), box.ProcessSpec{
			Command: box.Command{Argv: []string{"sh", "-c", "echo before; read line; echo after $line; exit 42"}, Env: []string{"PATH=/usr/bin:/bin"}}, Stdin: true,
		})
		if err != nil {
			return err
		}
		done := false
		switch len(args) {
		case 3:
			untilCopied(b)
		case 4:
			done, err = inTheMidst(b, g, box.SnapshotKind(args[2]), args[3])
		}
		return errors.Join(err, json.NewEncoder(os.Stdout).Encode(told{b.ID(), b.State(), p.PID, done}))
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	select {}
}

// killedFront makes a box by a process that is then killed, with more in the midst
// of a snapshot of it.
func (p *place) killedFront(t *testing.T, more ...string) told {
	t.Helper()
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = append([]string{argvFront, string(p.Name()), p.state}, more...)
	cmd.Dir, cmd.Env, cmd.Stderr = "/", []string{programsEnv + "=" + dir, "PATH=/usr/bin:/bin"}, os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, rerr := bufio.NewReader(out).ReadBytes('\n')
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	var got told
	if rerr != nil || json.Unmarshal(line, &got) != nil {
		t.Fatalf("a front told %q: %v", line, rerr)
	}
	return got
}

// state is the part of a box's state that the tests look into and change.
type state map[string]any

func stateOf(t *testing.T, raw []byte) state {
	t.Helper()
	var s state
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func firstOf(t *testing.T, raw []byte) host.Identity {
	t.Helper()
	var s struct{ First host.Identity }
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	return s.First
}

// specOf is what a state says of the box's spec.
func specOf(t *testing.T, raw []byte) box.Spec {
	t.Helper()
	var s struct{ Spec box.Spec }
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	return s.Spec
}

func (p *place) recover(t *testing.T, id box.ID, raw []byte) box.Lasting {
	t.Helper()
	var b box.Box
	if err := later(func() (err error) { b, err = p.Recover(t.Context(), id, raw); return err }); err != nil {
		t.Fatal(err)
	}
	l, ok := b.(box.Lasting)
	if !ok {
		t.Fatalf("what was recovered is %T", b)
	}
	return l
}

func TestABoxOutlivesItsKilledMaker(t *testing.T) {
	eachTier(t, func(t *testing.T, p *place) {
		made := p.killedFront(t)
		b := p.recover(t, made.ID, made.State)
		if string(b.State()) != string(made.State) {
			t.Error("the state of a box has changed by recovering it")
		}
		g := use(t, b)
		if _, err := g.Input(t.Context(), box.ProcessRef{PID: made.PID}, box.Input{Data: []byte("all\n")}); err != nil {
			t.Fatal(err)
		}
		end, out := ended(t, g, made.PID)
		if end.Cause != box.Exited || end.ExitCode != 42 || out != "before\nafter all\n" {
			t.Errorf("a program from before: %+v, %q", end, out)
		}
		if out := run(t, g, "echo x > /workspace/f; cat /workspace/f"); out != "x\n" {
			t.Errorf("a program from after: %q", out)
		}
		run(t, g, "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done") // an ordinary user counts in hundredths of a second
		a, err := b.Account(t.Context())
		if err != nil || a.CPU <= 0 || a.MemoryPeak <= 0 || a.Wall <= 0 || a.MemoryKills != 0 {
			t.Errorf("account %+v, %v", a, err)
		}
		p.destroy(t, b)
		if _, err := p.Recover(t.Context(), made.ID, made.State); box.KindOf(err) != box.NotFound {
			t.Errorf("a box that was destroyed was recovered: %v", err)
		}
	})
}

func TestWhatIsNotExactlyThatBoxIsDestroyed(t *testing.T) {
	eachTier(t, func(t *testing.T, p *place) {
		for name, damage := range map[string]func(s state){
			"another start":   func(s state) { s["First"].(map[string]any)["Start"] = 4711 },
			"another boot":    func(s state) { s["First"].(map[string]any)["Boot"] = "x" },
			"another box":     func(s state) { s["Spec"].(map[string]any)["ID"] = string(box.NewID()) },
			"another tier":    func(s state) { s["Tier"] = "wasm" },
			"one of one shot": func(s state) { s["Spec"].(map[string]any)["Lasting"] = false },
			"no part of ours": func(s state) { s["Own"] = "x" },
			"nothing":         func(s state) { clear(s) },
		} {
			b := p.create(t, spec())
			s := stateOf(t, b.State())
			pid := firstOf(t, b.State()).PID
			b.Detach()
			damage(s)
			raw, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			if name == "nothing" {
				raw = raw[:1]
			}
			if _, err := p.Recover(t.Context(), b.ID(), raw); box.KindOf(err) != box.NotFound {
				t.Errorf("%s: %v", name, err)
			}
			p.gone(t, b.ID(), pid)
			p.empty(t)
		}
	})
}

// A number that was given again is somebody else's, even one of the same user.
func TestWhoHasTheNumberOfADeadBoxIsLeftAlone(t *testing.T) {
	eachTier(t, func(t *testing.T, p *place) {
		b := p.create(t, spec())
		uid, gid := p.HostUser(b.ID())
		other := exec.Command("sleep", "1000")
		other.Env, other.Dir = []string{}, "/"
		if os.Geteuid() == 0 {
			other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		}
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
		s := stateOf(t, b.State())
		first := firstOf(t, b.State())
		dead := first.PID
		s["First"].(map[string]any)["PID"] = other.Process.Pid
		first.PID = other.Process.Pid
		b.Detach()
		if err := syscall.Kill(dead, syscall.SIGKILL); err != nil { // and its number is other's from now on
			t.Fatal(err)
		}
		raw, _ := json.Marshal(first)
		if err := os.WriteFile(filepath.Join(p.state, "boxes", string(b.ID()), "first"), raw, 0o600); err != nil {
			t.Fatal(err)
		}
		raw, _ = json.Marshal(s)
		if _, err := p.Recover(t.Context(), b.ID(), raw); box.KindOf(err) != box.NotFound {
			t.Errorf("recovered: %v", err)
		}
		if !alive(other.Process.Pid) {
			t.Error("somebody else's process was ended")
		}
		p.gone(t, b.ID(), dead)
	})
}

func TestABoxThatDiesSaysSo(t *testing.T) {
	eachTier(t, func(t *testing.T, p *place) {
		b := p.create(t, spec())
		select {
		case <-b.Ended():
			t.Fatal("it has ended at once")
		default:
		}
		if err := syscall.Kill(firstOf(t, b.State()).PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		waitEnd(t, b)
		if _, err := b.Agent(t.Context()); err == nil {
			// That of the start may be left: it leads nowhere.
			if _, err = b.Agent(t.Context()); box.KindOf(err) != box.Unavailable {
				t.Errorf("a dead box has an agent: %v", err)
			}
		}
		if _, err := b.Account(t.Context()); err != nil {
			t.Errorf("a dead box has no account: %v", err)
		}
		p.destroy(t, b)
	})
}

func waitEnd(t *testing.T, b box.Lasting) {
	t.Helper()
	select {
	case <-b.Ended():
	case <-time.After(patience):
		t.Fatal("nobody noticed the end of a box")
	}
}

// The first process of a box ends with the agent: in gVisor that is the guest's,
// in a box of tier process a program of the cell.
func TestABoxEndsWithItsAgent(t *testing.T) {
	eachTier(t, func(t *testing.T, p *place) {
		b := p.create(t, spec())
		g := use(t, b)
		if p.Name() == box.TierGvisor { // whose root may
			_, err := g.Start(t.Context(), box.ProcessSpec{Command: box.Command{Argv: []string{"kill", "-9", "1"}, Env: []string{"PATH=/usr/bin:/bin"}, User: box.UserRoot}})
			if err != nil {
				t.Logf("kill: %v", err) // the answer may not have come any more
			}
		} else {
			agent := inBox(t, firstOf(t, b.State()).PID, "sunaba-agentd").PID
			if err := syscall.Kill(agent, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		waitEnd(t, b)
		p.destroy(t, b)
	})
}

func TestTheNewerFrontIsHeard(t *testing.T) {
	eachTier(t, func(t *testing.T, p *place) {
		older := p.create(t, spec())
		g := use(t, older)
		run(t, g, "true")
		newer := p.recover(t, older.ID(), older.State())
		if _, err := newer.Agent(t.Context()); err != nil {
			t.Errorf("the newer front is not heard: %v", err)
		}
		if _, err := older.Agent(t.Context()); box.KindOf(err) != box.Unavailable {
			t.Errorf("the older front is heard: %v", err)
		}
		run(t, g, "true") // its stream is the agent's, which knows no fronts
		older.Detach()
		run(t, use(t, newer), "true")
		p.destroy(t, newer)
	})
}

func TestStreamsAreIndependent(t *testing.T) {
	eachTier(t, func(t *testing.T, p *place) {
		b := p.create(t, spec())
		first := use(t, b)
		sleeper := start(t, first, "sh", "-c", "sleep 0.3; echo done")
		for range 5 {
			g := guest.New(b.Agent, unhurried)
			run(t, g, "true")
			g.Close()
		}
		if end, out := ended(t, first, sleeper.PID); end.Cause != box.Exited || out != "done\n" {
			t.Errorf("%+v, %q", end, out)
		}
		// A stream that says nothing, or nonsense, is its own concern.
		c, err := b.Agent(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, strings.Repeat("x", 1000)); err != nil {
			t.Error(err)
		}
		c.Close()
		run(t, first, "true")
		p.destroy(t, b)
	})
}

func TestSweepingKeepsWhatIsToBeKept(t *testing.T) {
	eachTier(t, func(t *testing.T, p *place) {
		kept, lost := p.killedFront(t), p.killedFront(t)
		lostPID := firstOf(t, lost.State).PID
		// What ends runs that are no more does not touch boxes that last.
		if gone, err := p.Sweep(t.Context(), func(box.ID) bool { return false }); err != nil || len(gone) > 0 {
			t.Errorf("swept %v, %v", gone, err)
		}
		gone, err := p.SweepLasting(t.Context(), func(id box.ID) bool { return id == kept.ID })
		if err != nil || len(gone) != 1 || gone[0] != lost.ID {
			t.Errorf("swept %v, %v, want %s", gone, err, lost.ID)
		}
		p.gone(t, lost.ID, lostPID)
		b := p.recover(t, kept.ID, kept.State)
		run(t, use(t, b), "true")
		p.destroy(t, b)
	})
}

// A front that dies before its box stands leaves a process that ends by itself.
func TestABoxThatWasNotMadeToItsEndIsNotThere(t *testing.T) {
	eachTier(t, func(t *testing.T, p *place) {
		s := spec()
		s.Seeds = []box.Seed{{Path: "/workspace/x", Mode: 0o644, Size: 5, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("no")), nil }}}
		if b, err := p.Create(t.Context(), s); err == nil {
			t.Errorf("a box was made of seeds that are too short: %v", b.ID())
		}
	})
}
