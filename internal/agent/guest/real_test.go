package guest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/guest"
	"github.com/sunaba-dev/sunaba/internal/tier/fake"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// real is a guest with the real agent, and the agent's working folder, which is
// on this host.
func real(t *testing.T) (*guest.Guest, string) {
	t.Helper()
	g, dir, _ := realBox(t)
	return g, dir
}

func realBox(t *testing.T) (*guest.Guest, string, box.Box) {
	t.Helper()
	tier := fake.New(fake.Config{Agent: harness.Daemon(t), State: t.TempDir()})
	b, err := tier.Create(t.Context(), box.Spec{ID: box.NewID(), Lasting: true})
	if err != nil {
		t.Fatal(err)
	}
	g := guest.New(b.(box.Lasting).Agent, guest.Options{})
	t.Cleanup(func() {
		g.Close()
		if err := b.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return g, tier.Dir(b.ID()), b
}

func sh(script string) box.ProcessSpec {
	return box.ProcessSpec{Command: box.Command{Argv: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}}}
}

func started(t *testing.T, g *guest.Guest, p box.ProcessSpec) box.ProcessRef {
	t.Helper()
	made, err := g.Start(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return box.ProcessRef{PID: made.PID}
}

// story follows a process to its end.
func story(t *testing.T, g *guest.Guest, p box.ProcessRef) (stdout, stderr []byte, end *box.End) {
	t.Helper()
	err := g.Follow(t.Context(), p, box.Positions{Stdout: -1, Stderr: -1}, func(e box.ProcessEvent) error {
		switch e.Kind {
		case box.EventStdout:
			stdout = append(stdout, e.Data...)
		case box.EventStderr:
			stderr = append(stderr, e.Data...)
		case box.EventEnd:
			end = e.End
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return stdout, stderr, end
}

func TestAProgramIsFollowedToItsEnd(t *testing.T) {
	g, dir := real(t)
	out, errs, end := story(t, g, started(t, g, sh("pwd; echo oops >&2; exit 3")))
	if string(out) != dir+"\n" || string(errs) != "oops\n" || end == nil || end.Cause != box.Exited || end.ExitCode != 3 || end.Stdout != int64(len(out)) || end.Stderr != 5 {
		t.Errorf("it told %q, %q and %+v", out, errs, end)
	}
	if _, _, end := story(t, g, started(t, g, sh("kill -9 $$"))); end.Cause != box.Signaled || end.Signal != 9 {
		t.Errorf("it ended as %+v", end)
	}
	p := sh("exec sleep 1000")
	p.Timeout = time.Millisecond
	if _, _, end := story(t, g, started(t, g, p)); end.Cause != box.Deadline {
		t.Errorf("it ended as %+v", end)
	}
	p = sh("exec cat /dev/zero")
	p.Output = 100_000
	if _, _, end := story(t, g, started(t, g, p)); end.Cause != box.OutputLimit {
		t.Errorf("it ended as %+v", end)
	}
}

func TestInputSignalsTagsAndForgetting(t *testing.T) {
	g, _ := real(t)
	p := sh("cat; exec sleep 1000")
	p.Stdin, p.Tag = true, "cat"
	started(t, g, p)
	ref := box.ProcessRef{Tag: "cat"}
	next, err := g.Input(t.Context(), ref, box.Input{Data: []byte("hello ")})
	if err != nil || next != 6 {
		t.Fatalf("input went to %d (%v)", next, err)
	}
	// Some of it twice, and the end.
	if next, err = g.Input(t.Context(), ref, box.Input{At: 3, Data: []byte("lo you"), End: true}); err != nil || next != 9 {
		t.Fatalf("input went to %d (%v)", next, err)
	}
	var got strings.Builder
	have := errors.New("have it")
	err = g.Follow(t.Context(), ref, box.Positions{}, func(e box.ProcessEvent) error {
		got.Write(e.Data)
		if got.Len() >= 9 {
			return have
		}
		return nil
	})
	if err != have || got.String() != "hello you" {
		t.Errorf("it printed %q (%v)", got.String(), err)
	}
	if err := g.Forget(t.Context(), ref); box.KindOf(err) != box.Invalid && box.KindOf(err) != box.Conflict {
		t.Errorf("a live process is forgotten: %v", err)
	}
	if err := g.Signal(t.Context(), ref, 15, true); err != nil {
		t.Fatal(err)
	}
	if _, _, end := story(t, g, ref); end.Cause != box.Signaled || end.Signal != 15 {
		t.Errorf("it ended as %+v", end)
	}
	if err := g.Forget(t.Context(), ref); err != nil {
		t.Error(err)
	}
	if err := g.Signal(t.Context(), ref, 15, true); box.KindOf(err) != box.NotFound {
		t.Errorf("a forgotten process: %v", err)
	}
}

func TestATerminalHasItsSize(t *testing.T) {
	g, _ := real(t)
	p := sh("stty size; read x; stty size")
	p.TTY = &box.WindowSize{Rows: 11, Cols: 22}
	p.Stdin = true
	ref := started(t, g, p)
	var got strings.Builder
	resized := false
	err := g.Follow(t.Context(), ref, box.Positions{}, func(e box.ProcessEvent) error {
		got.Write(e.Data)
		if resized || !strings.Contains(got.String(), "\n") {
			return nil
		}
		resized = true
		if err := g.Resize(t.Context(), ref, box.WindowSize{Rows: 33, Cols: 44}); err != nil {
			return err
		}
		_, err := g.Input(t.Context(), ref, box.Input{Data: []byte("\n")})
		return err
	})
	if err != nil || !strings.HasPrefix(got.String(), "11 22\r\n") || !strings.HasSuffix(got.String(), "33 44\r\n") {
		t.Errorf("it printed %q (%v)", got.String(), err)
	}
}

func TestAStoryThatIsCutAndResumedHasEveryByteOnce(t *testing.T) {
	g, _ := real(t)
	ref := started(t, g, sh("i=0; while [ $i -lt 200000 ]; do echo line $i; i=$((i+1)); done"))
	var want, got bytes.Buffer
	for i := range 200000 {
		want.WriteString("line ")
		want.WriteString(itoa(i))
		want.WriteByte('\n')
	}
	cut := errors.New("cut")
	over := false
	for cuts := 0; !over; cuts++ {
		from, n := int64(got.Len()), 0
		err := g.Follow(t.Context(), ref, box.Positions{Stdout: from}, func(e box.ProcessEvent) error {
			if e.Kind == box.EventEnd {
				over = true
				return nil
			}
			if e.At != int64(got.Len()) {
				t.Fatalf("a gap from %d to %d", got.Len(), e.At)
			}
			got.Write(e.Data)
			if n++; n == 2 && cuts < 30 {
				return cut
			}
			return nil
		})
		if err != nil && err != cut {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Errorf("%d bytes came, %d were written, or they differ", got.Len(), want.Len())
	}
}

func itoa(n int) string {
	var b [20]byte
	i := len(b)
	for {
		i--
		b[i] = byte('0' + n%10)
		if n /= 10; n == 0 {
			return string(b[i:])
		}
	}
}

func TestManyLargeOutputsArriveWhole(t *testing.T) {
	g, _ := real(t)
	const each = 8 << 20
	var all sync.WaitGroup
	for range 30 {
		all.Go(func() {
			p, err := g.Start(t.Context(), sh("exec head -c 8388608 /dev/zero"))
			if err != nil {
				t.Error(err)
				return
			}
			n := int64(0)
			err = g.Follow(t.Context(), box.ProcessRef{PID: p.PID}, box.Positions{}, func(e box.ProcessEvent) error {
				if e.Kind == box.EventStdout && e.At != n {
					return errors.New("find a gap")
				}
				n += int64(len(e.Data))
				return nil
			})
			if err != nil || n != each {
				t.Errorf("%d bytes came (%v)", n, err)
			}
		})
	}
	all.Wait()
}

func TestAPortOfTheBoxIsDialled(t *testing.T) {
	g, _ := real(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	c, err := g.Dial(t.Context(), port)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sent := bytes.Repeat([]byte("0123456789"), 300_000)
	go func() {
		_, _ = c.Write(sent)
		_ = c.(interface{ CloseWrite() error }).CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes came back of %d (%v)", len(got), len(sent), err)
	}
	if _, err := g.Dial(t.Context(), silentPort(t)); box.KindOf(err) != box.Invalid && box.KindOf(err) != box.Unavailable {
		t.Errorf("a port that nobody listens at: %v", err)
	}
}

// silentPort is a port that nobody listens at, nor can begin to while the test lasts.
func silentPort(t *testing.T) uint16 {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return uint16(at.(*syscall.SockaddrInet4).Port)
}

func TestADialledPortKeepsDeadlines(t *testing.T) {
	noGoroutineLeft(t)
	g, _ := real(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := g.Dial(t.Context(), uint16(l.Addr().(*net.TCPAddr).Port))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Read says %v", err)
	}
	_ = c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
	for err = nil; err == nil; {
		_, err = c.Write(make([]byte, 1<<20)) // nobody reads
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Write says %v", err)
	}
	blocked := make(chan error)
	_ = c.SetReadDeadline(time.Time{})
	go func() {
		_, err := c.Read(make([]byte, 1))
		blocked <- err
	}()
	c.Close()
	if err := <-blocked; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Read of a closed connection says %v", err)
	}
}

func TestTheBoxMeasuresItself(t *testing.T) {
	g, _ := real(t)
	m, err := g.Metrics(t.Context())
	if err != nil || m.MemoryTotal != 0 || m.DiskTotal <= 0 || m.MemoryUsed <= 0 { // the kernel is the host's
		t.Errorf("Metrics gave %+v (%v)", m, err)
	}
}

func TestAContextKeepsItsVariables(t *testing.T) {
	g, _ := real(t)
	c, err := g.OpenContext(t.Context(), box.ContextSpec{Language: "bash", Env: []string{"PATH=/usr/bin:/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/bin/bash"); err != nil {
		t.Fatalf("this test needs bash: %v", err)
	}
	text := ""
	for i, code := range []string{"x=41", "echo $((x+1)); echo oops >&2"} {
		var end *box.CellEnd
		err := g.RunCell(t.Context(), c.ID, box.Cell{ID: itoa(i), Code: code}, func(e box.CellEvent) error {
			text += e.Text
			if e.End != nil {
				end = e.End
			}
			return nil
		})
		if err != nil || end == nil || end.Outcome != box.CellOK {
			t.Fatalf("%s gave %+v (%v)", code, end, err)
		}
	}
	if !strings.Contains(text, "42\n") || !strings.Contains(text, "oops\n") {
		t.Errorf("it printed %q", text)
	}
	all, err := g.Contexts(t.Context())
	if err != nil || len(all) != 1 || all[0].ID != c.ID || all[0].State != box.ContextIdle || all[0].Count != 2 {
		t.Errorf("Contexts gave %+v (%v)", all, err)
	}
	if _, err := g.RestartContext(t.Context(), c.ID); err != nil {
		t.Error(err)
	}
	if err := g.CloseContext(t.Context(), c.ID); err != nil {
		t.Error(err)
	}
	if err := g.Interrupt(t.Context(), c.ID); box.KindOf(err) != box.NotFound {
		t.Errorf("a closed context: %v", err)
	}
}

func TestProcessesWithLongCommandLinesAreListed(t *testing.T) {
	g, _ := real(t)
	long := strings.Repeat("x", 100_000)
	for range 20 {
		story(t, g, started(t, g, box.ProcessSpec{Command: box.Command{Argv: []string{"/bin/true", long}}}))
	}
	all, err := g.Processes(t.Context())
	if err != nil || len(all) != 20 {
		t.Errorf("%d processes are listed (%v)", len(all), err)
	}
}
