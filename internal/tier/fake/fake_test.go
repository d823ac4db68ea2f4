package fake_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/guest"
	"github.com/sunaba-dev/sunaba/internal/house"
	"github.com/sunaba-dev/sunaba/internal/tier/fake"
	"github.com/sunaba-dev/sunaba/test/harness"
)

func newTier(t *testing.T, cfg fake.Config) *fake.Tier {
	t.Helper()
	cfg.Agent = harness.Daemon(t)
	if cfg.State == "" {
		cfg.State = t.TempDir()
	}
	tier := fake.New(cfg)
	t.Cleanup(func() {
		if _, err := tier.Sweep(context.Background(), func(box.ID) bool { return false }); err != nil {
			t.Error(err)
		}
	})
	return tier
}

func create(t *testing.T, tier *fake.Tier, lasting bool) box.Box {
	t.Helper()
	b, err := tier.Create(t.Context(), box.Spec{ID: box.NewID(), Workdir: "/workspace", Lasting: lasting})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// run runs a program to its end over a guest.
func run(t *testing.T, g *guest.Guest, argv ...string) (stdout string, end box.End) {
	t.Helper()
	p, err := g.Start(t.Context(), box.ProcessSpec{Command: box.Command{Argv: argv, Env: []string{"PATH=/usr/bin:/bin"}}})
	if err != nil {
		t.Fatal(err)
	}
	err = g.Follow(t.Context(), box.ProcessRef{PID: p.PID}, box.Positions{Stdout: -1, Stderr: -1}, func(e box.ProcessEvent) error {
		switch e.Kind {
		case box.EventStdout:
			stdout += string(e.Data)
		case box.EventEnd:
			end = *e.End
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return stdout, end
}

func TestALastingBoxRunsProgramsThroughItsAgent(t *testing.T) {
	tier := newTier(t, fake.Config{})
	b := create(t, tier, true).(box.Lasting)
	g := guest.New(b.Agent, guest.Options{})
	defer g.Close()
	out, end := run(t, g, "sh", "-c", "pwd; exit 3")
	if want := tier.Dir(b.ID()) + "\n"; out != want || end.Cause != box.Exited || end.ExitCode != 3 {
		t.Errorf("pwd printed %q and ended as %+v, want %q and 3", out, end, want)
	}
}

func TestABoxIsTakenUpByAnotherTier(t *testing.T) {
	cfg := fake.Config{State: t.TempDir()}
	first := newTier(t, cfg)
	b := create(t, first, true).(box.Lasting)
	g := guest.New(b.Agent, guest.Options{})
	p, err := g.Start(t.Context(), box.ProcessSpec{Command: box.Command{Argv: []string{"/bin/sleep", "1000"}}})
	if err != nil {
		t.Fatal(err)
	}
	g.Close()
	state := b.State()
	b.Detach()
	if left := first.Boxes(); len(left) != 0 {
		t.Errorf("after Detach the tier has %v", left)
	}

	second := newTier(t, cfg)
	again, err := second.Recover(t.Context(), b.ID(), state)
	if err != nil {
		t.Fatal(err)
	}
	g = guest.New(again.(box.Lasting).Agent, guest.Options{})
	defer g.Close()
	all, err := g.Processes(t.Context())
	if err != nil || len(all) != 1 || all[0].PID != p.PID {
		t.Errorf("the box that was taken up has processes %v (%v), want %d", all, err, p.PID)
	}
	if err := again.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-again.(box.Lasting).Ended()
	if _, err := second.Recover(t.Context(), b.ID(), state); box.KindOf(err) != box.NotFound {
		t.Errorf("a destroyed box is recovered: %v", err)
	}
}

func TestDestroyEndsWhateverWasStarted(t *testing.T) {
	tier := newTier(t, fake.Config{})
	b := create(t, tier, true).(box.Lasting)
	g := guest.New(b.Agent, guest.Options{})
	defer g.Close()
	mark := "sunaba-fake-" + string(b.ID())
	run(t, g, "sh", "-c", "setsid sh -c 'exec -a "+mark+" sleep 1000' >/dev/null 2>&1 </dev/null & exec -a x true 2>/dev/null; sleep 0.05")
	dir := tier.Dir(b.ID())
	if err := b.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
	if left := running(dir); len(left) > 0 {
		t.Errorf("processes are still there: %v", left)
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Errorf("the second Destroy: %v", err)
	}
}

// running lists processes whose working folder was dir.
func running(dir string) []string {
	var all []string
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && strings.HasPrefix(to, dir) {
			all = append(all, l)
		}
	}
	return all
}

func TestABoxWhoseAgentDiesHasEnded(t *testing.T) {
	tier := newTier(t, fake.Config{})
	b := create(t, tier, true).(box.Lasting)
	tier.Kill(b.ID())
	select {
	case <-b.Ended():
	case <-time.After(2 * time.Minute):
		t.Fatal("nobody noticed")
	}
	if _, err := b.Agent(t.Context()); box.KindOf(err) != box.Unavailable {
		t.Errorf("a dead agent gives a stream: %v", err)
	}
}

func TestSweepKeepsWhatItIsTold(t *testing.T) {
	cfg := fake.Config{State: t.TempDir()}
	tier := newTier(t, cfg)
	kept, gone := create(t, tier, true).(box.Lasting), create(t, tier, true).(box.Lasting)
	swept, err := newTier(t, cfg).Sweep(t.Context(), func(id box.ID) bool { return id == kept.ID() })
	if err != nil || !slices.Equal(swept, []box.ID{gone.ID()}) {
		t.Errorf("Sweep destroyed %v (%v), want %s", swept, err, gone.ID())
	}
	<-gone.Ended()
	select {
	case <-kept.Ended():
		t.Error("the kept box has ended")
	default:
	}
}

func TestCreateFailsAsItIsTold(t *testing.T) {
	want := errors.New("create no box")
	cfg := fake.Config{State: t.TempDir(), Creating: func(context.Context, box.Spec) error { return want }}
	if _, err := newTier(t, cfg).Create(t.Context(), box.Spec{ID: box.NewID()}); !errors.Is(err, want) {
		t.Errorf("Create says %v", err)
	}
	if entries, _ := os.ReadDir(cfg.State); len(entries) > 0 {
		t.Errorf("it left %v", entries)
	}
}

func TestAOneShotBoxRunsACommandAndEndsItsGroup(t *testing.T) {
	tier := newTier(t, fake.Config{})
	b := create(t, tier, false)
	var out strings.Builder
	res, err := b.Run(t.Context(), box.Command{Argv: []string{"sh", "-c", "cat; pwd; exit 7"}, Dir: "/workspace"}, box.Streams{Stdin: strings.NewReader("in\n"), Stdout: &out})
	if err != nil || res.Cause != box.Exited || res.ExitCode != 7 || out.String() != "in\n"+tier.Dir(b.ID())+"\n" {
		t.Errorf("Run gave %+v, %v and %q", res, err, out.String())
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	started := make(chan struct{})
	w := writer(func(p []byte) (int, error) { close(started); return len(p), nil })
	go func() {
		<-started
		cancel(&box.Stop{Cause: box.Deadline, Limit: "timeout_sec", Source: "clock", Grace: time.Minute})
	}()
	res, err = b.Run(ctx, box.Command{Argv: []string{"sh", "-c", "echo x; exec sleep 1000"}}, box.Streams{Stdout: w})
	if err != nil || res.Cause != box.Deadline || len(res.Limits) != 1 {
		t.Errorf("the stopped Run gave %+v, %v", res, err)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func TestNoProgramIsBuiltWithBoxesWithoutWalls(t *testing.T) {
	const module = "github.com/sunaba-dev/sunaba"
	tree, err := house.Load(os.DirFS(harness.ModuleRoot()), module)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range slices.Concat(tree.Files, tree.Generated) {
		for _, spec := range f.AST.Imports {
			if strings.Trim(spec.Path.Value, `"`) != module+"/internal/tier/fake" {
				continue
			}
			seen++
			if !f.Test {
				t.Errorf("%s imports the tier without walls", f.Path)
			}
		}
	}
	if seen == 0 {
		t.Error("this file was not found: the check sees nothing")
	}
}

func TestABoxIsMadeFromASnapshotOfFiles(t *testing.T) {
	tier := newTier(t, fake.Config{})
	b := create(t, tier, true).(*fake.Lasting)
	g := guest.New(b.Agent, guest.Options{})
	defer g.Close()
	if _, end := run(t, g, "sh", "-c", "mkdir -p d/e && echo text > d/e/f && chmod 700 d && ln -s d/e/f l"); end.ExitCode != 0 {
		t.Fatalf("%+v", end)
	}
	if err := b.Snappable(box.SnapshotMemory); box.KindOf(err) != box.Unsupported {
		t.Error(err)
	}
	part, err := os.CreateTemp(t.TempDir(), "part")
	if err != nil {
		t.Fatal(err)
	}
	defer part.Close()
	head, err := b.Snapshot(t.Context(), box.SnapshotFiles, func(_ string, r io.Reader) error { _, err := io.Copy(part, r); return err })
	if err != nil {
		t.Fatal(err)
	}
	if _, end := run(t, g, "rm", "-r", "d"); end.ExitCode != 0 {
		t.Fatalf("%+v", end)
	}
	sn := &box.Snapshot{SnapshotHead: head, Parts: map[string]*os.File{"files.tar": part}}
	spec := box.Spec{ID: box.NewID(), Workdir: "/workspace", Lasting: true}
	again, err := tier.Restore(t.Context(), spec, sn)
	if err != nil {
		t.Fatal(err)
	}
	g2 := guest.New(again.(box.Lasting).Agent, guest.Options{})
	defer g2.Close()
	if out, end := run(t, g2, "sh", "-c", "cat l; stat -c %a d"); out != "text\n700\n" {
		t.Errorf("%q, %+v", out, end)
	}
	before := len(tier.Boxes())
	sn.Needs = map[string]string{"form": "0"}
	if _, err := tier.Restore(t.Context(), box.Spec{ID: box.NewID(), Workdir: "/workspace", Lasting: true}, sn); box.KindOf(err) != box.Conflict {
		t.Error(err)
	}
	sn.Needs = head.Needs
	if err := part.Truncate(700); err != nil {
		t.Fatal(err)
	}
	if _, err := tier.Restore(t.Context(), box.Spec{ID: box.NewID(), Workdir: "/workspace", Lasting: true}, sn); err == nil || len(tier.Boxes()) != before {
		t.Errorf("made of half a part: %v, %d boxes", err, len(tier.Boxes()))
	}
}
