package fake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// Lasting implements box.Lasting.
type Lasting struct{ *Box }

// state is what Recover needs of a lasting box.
type state struct {
	ID      box.ID
	Workdir string
	PID     int
	Start   string // of the process, as proc_pid_stat(5) has it: a number may be used again
	Link    string // socket at which the agent takes streams
	Created time.Time
}

// State implements box.Box. It is empty for a box that does not last.
func (b *Box) State() []byte {
	if b.st.PID == 0 {
		return nil
	}
	s, err := json.Marshal(b.st)
	if err != nil {
		return nil
	}
	return s
}

// start starts the agent as the first process of a PID namespace, so that
// nothing outlives it. An ordinary user needs a user namespace for that.
func (b *Box) start() error {
	// A socket's path has 107 bytes: unix(7).
	dir, err := os.MkdirTemp("", "sunaba-fake-")
	if err != nil {
		return err
	}
	b.st.Link, b.st.Workdir, b.st.Created = filepath.Join(dir, "link"), b.spec.Workdir, time.Now()
	ours, theirs, err := pair()
	if err != nil {
		return err
	}
	defer ours.Close()
	defer theirs.Close()
	args := []string{"serve", b.work()}
	if b.tier.cfg.Root {
		args = append(args, "root")
	}
	cmd := exec.Command(b.tier.cfg.Agent, append(args, "--socket", b.st.Link)...)
	cmd.Env = []string{}
	cmd.Dir = b.work()
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWPID}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	b.st.PID = cmd.Process.Pid
	b.st.Start = startOf(b.st.PID)
	go func() {
		_ = cmd.Wait()
		b.endedOnce.Do(func() { close(b.ended) })
	}()
	// It listens when it has begun to serve.
	if err := b.await(); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(b.home(), stateFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write(b.State())
	return err
}

// await waits until the agent takes streams.
func (b *Box) await() error {
	every := time.NewTicker(time.Millisecond)
	defer every.Stop()
	late := time.NewTimer(10 * time.Second)
	defer late.Stop()
	for {
		c, err := knock(b.st.Link)
		if err == nil {
			return c.Close()
		}
		select {
		case <-b.ended:
			return errors.New("the agent ended at once")
		case <-late.C:
			return fmt.Errorf("the agent does not listen: %w", err)
		case <-every.C:
		}
	}
}

// adopt takes up a box whose agent another Tier has started.
func (b *Box) adopt(id box.ID, state []byte) error {
	if err := json.Unmarshal(state, &b.st); err != nil {
		return fmt.Errorf("its state is damaged: %w", err)
	}
	switch {
	case b.st.ID != id || !id.Valid():
		return errors.New("its state is that of another box")
	case b.st.PID < 2 || b.st.Start == "" || startOf(b.st.PID) != b.st.Start:
		b.st.PID = 0
		return errors.New("its agent has ended")
	}
	b.spec = box.Spec{ID: id, Workdir: b.st.Workdir, Lasting: true}
	go func() {
		every := time.NewTicker(10 * time.Millisecond)
		defer every.Stop()
		for startOf(b.st.PID) == b.st.Start {
			<-every.C
		}
		b.endedOnce.Do(func() { close(b.ended) })
	}()
	return nil
}

// kill ends the agent, and the kernel everything else of its PID namespace.
func (b *Box) kill() {
	if b.st.PID == 0 || startOf(b.st.PID) != b.st.Start {
		return
	}
	b.last.note(b)
	_ = syscall.Kill(b.st.PID, syscall.SIGKILL)
	<-b.ended
}

// startOf is when a process was started, in the kernel's clock ticks, or empty
// if there is none or it waits to be reaped.
func startOf(pid int) string {
	f := statOf(pid)
	if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return ""
	}
	return f[19]
}

// statOf is /proc/PID/stat from the third field on: names may have spaces.
func statOf(pid int) []string {
	s, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil
	}
	text := string(s)
	return strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
}

// Agent implements box.Lasting.
func (l *Lasting) Agent(ctx context.Context) (net.Conn, error) {
	c, err := l.handOver(ctx)
	if err != nil {
		return nil, box.Errorf(box.Unavailable, "reach agent", "cannot reach the agent of box %s: %w", l.st.ID, err)
	}
	return c, nil
}

// Ended implements box.Lasting.
func (l *Lasting) Ended() <-chan struct{} { return l.ended }

// Account implements box.Lasting.
func (l *Lasting) Account(context.Context) (box.Account, error) {
	l.last.note(l.Box)
	u := l.last.get()
	u.Wall = time.Since(l.st.Created)
	return box.Account{Usage: u}, nil
}

// Detach implements box.Lasting.
func (l *Lasting) Detach() {
	l.tier.mu.Lock()
	defer l.tier.mu.Unlock()
	delete(l.tier.boxes, l.st.ID)
}
