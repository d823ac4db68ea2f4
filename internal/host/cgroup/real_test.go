package cgroup

import (
	"context"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// realManager returns a manager of this host's trees, or skips with the reason.
func realManager(t *testing.T) *Manager {
	t.Helper()
	m, err := Detect(Root, MountInfo, SelfCgroup)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range controllers {
		if _, err := m.find(c); err != nil {
			t.Skipf("this host lets us use no %s controller: %v", c, err)
		}
	}
	return m
}

func list(t *testing.T, m *Manager) []string {
	t.Helper()
	names, err := m.List()
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// realGroup makes a group that is killed, removed and looked for at the end.
func realGroup(t *testing.T, m *Manager, l Limits) *Group {
	t.Helper()
	g, err := m.Create(string(box.NewID()), l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { finish(t, g) })
	return g
}

func finish(t *testing.T, g *Group) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := g.Kill(ctx); err != nil {
		t.Error(err)
	}
	if err := g.Remove(ctx); err != nil {
		t.Error(err)
	}
	for _, d := range g.dirs {
		if _, err := os.Stat(d.path); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", d.path, err)
		}
	}
}

// shell starts a script that waits for a line before it does anything, adds it
// to the group, and lets it go.
func shell(t *testing.T, g *Group, script string, args ...string) *exec.Cmd {
	t.Helper()
	argv := append([]string{"-c", "read go; " + script, "sh"}, args...)
	cmd := exec.Command("/bin/sh", argv...)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("no shell here: %v", err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if err := g.Add(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	in.Write([]byte("\n"))
	return cmd
}

func stats(t *testing.T, g *Group) Stats {
	t.Helper()
	s, err := g.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// eventually polls a condition for up to two minutes.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("never happened: %s", what)
}

// Somebody who was killed while it tried leaves a group.
func TestWhatWasLeftByATryIsCleared(t *testing.T) {
	m := realManager(t)
	g := realGroup(t, m, Limits{Memory: 64 << 20}) // so that the parent stays
	var left []string
	for _, tr := range m.trees {
		dir := tr.parent() + "/" + tryPrefix + "left"
		if err := os.Mkdir(dir, 0o755); err == nil {
			left = append(left, dir)
		}
	}
	if len(left) == 0 {
		t.Fatal("nothing could be left")
	}
	m.Tidy()
	for _, dir := range left {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s is still there", dir)
		}
	}
	if _, err := m.Open(g.Name()); err != nil {
		t.Errorf("a group that is in use went, too: %v", err)
	}
}

func intoGroup(f *os.File) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())}
}
