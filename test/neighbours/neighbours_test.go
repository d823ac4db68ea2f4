// Package neighbours holds boxes to what they promise each other: whatever runs
// in the others, a box gets on with its work, and none takes more than its own
// control group allows. It is for root, whose boxes have one.
package neighbours

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// A nuisance is a program that takes all that it can get. It says "full" when it
// has got it for the first time, and goes on. One that is ended for it is started
// again.
type nuisance struct {
	name, code string
	again      bool
}

// What each nuisance may use. Of the processors it is little, so that one comes near
// it also where twenty others want them.
const (
	cpu       = "0.2"
	memory    = 128 << 20
	processes = 32
)

var nuisances = []nuisance{ //house:const programs
	{name: "fork bomb", code: `
import os
def bomb(said):
    while True:
        try:
            if os.fork() == 0: said = True
        except BlockingIOError:
            if not said: print("full", flush=True)
            said = True
bomb(False)`},
	{name: "memory bomb", again: true, code: `
x = []
while True: x.append(bytearray(1 << 20))`},
	{name: "disk filler", code: `
import os
said = False
while True:
    with open("f", "wb", 0) as f:
        try:
            while True: f.write(bytes(1 << 20))
        except OSError:
            if not said: print("full", flush=True)
            said = True
    os.unlink("f")`},
	{name: "output flood", code: `
import os
print("full", flush=True)
while True: os.write(1, b"x" * 65536)`},
}

// args is the command line of a nuisance on a tier.
func (n nuisance) args(tier box.TierName, cpu string) []string {
	return append(on(tier), "--cpu", cpu, "--memory", fmt.Sprint(memory), "--max-processes", fmt.Sprint(processes),
		"--disk", "32m", "--max-output", "1t", "--timeout", "1500", "--lang", "python", "-e", n.code)
}

// on is the start of a command line.
func on(tier box.TierName) []string {
	args := []string{"run", "--tier", string(tier)}
	if tier == box.TierProcess {
		args = append(args, "--trust", "trusted")
	}
	return args
}

func tiers() []box.TierName { return []box.TierName{box.TierGvisor, box.TierProcess} }

// pest is a running nuisance.
type pest struct {
	nuisance
	full chan struct{} // closed when it has had all for the first time
	done chan struct{} // closed when its last run has ended
	last string        // how that was; to be read when it is done
}

// plague starts every nuisance and returns when all of them are at their limits.
// They end with the test, or when the returned function is called.
func plague(t *testing.T, tier box.TierName, cpu string) ([]*pest, func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var pests []*pest
	for _, n := range nuisances {
		p := &pest{nuisance: n, full: make(chan struct{}), done: make(chan struct{})}
		pests = append(pests, p)
		go p.run(ctx, t, tier, cpu)
	}
	stop := func() {
		cancel()
		for _, p := range pests {
			<-p.done
		}
	}
	t.Cleanup(stop)
	for _, p := range pests {
		select {
		case <-p.full:
		case <-p.done:
			t.Fatalf("the %s has ended: %s", p.name, p.last)
		case <-time.After(5 * time.Minute):
			t.Fatalf("the %s is not at its limits", p.name)
		}
	}
	return pests, stop
}

func (p *pest) run(ctx context.Context, t *testing.T, tier box.TierName, cpu string) {
	defer close(p.done)
	var once sync.Once
	full := func() { once.Do(func() { close(p.full) }) }
	for ctx.Err() == nil {
		cmd := harness.Command(ctx, t, harness.Root, p.args(tier, cpu)...)
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		cmd.WaitDelay = 20 * time.Second
		var errs strings.Builder
		cmd.Stderr = &errs
		pipe, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Error(err)
			return
		}
		out := bufio.NewReaderSize(pipe, 64<<10)
		if line, _ := out.ReadString('\n'); line == "full\n" {
			full()
		}
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
		p.last = fmt.Sprintf("%v: %.2000s", cmd.ProcessState, errs.String())
		switch code := cmd.ProcessState.ExitCode(); {
		case p.again && code == 246: // out of memory
			full()
		case p.again && code == 242 && strings.Contains(errs.String(), "was not up within"): // a busy host: it is started again
		default:
			return
		}
	}
}

// work is what the neighbour does: programs, files and arithmetic, of which each
// piece has one right result.
const work = `
import hashlib, os, subprocess
h = hashlib.sha256()
for i in range(40):
    subprocess.run(["true"], check=True)
    with open("f%d" % i, "wb") as f:
        f.write(bytes([i]) * 100000)
        f.flush()
        os.fsync(f.fileno())
    for _ in range(5):
        with open("f%d" % i, "rb") as f: h.update(f.read())
print(h.hexdigest())`

// watchTime is enough for the quota to show.
const watchTime = 4 * time.Second

func worksResult() string {
	h := sha256.New()
	for i := range 40 {
		for range 5 {
			h.Write([]byte(strings.Repeat(string(rune(i)), 100000)))
		}
	}
	return fmt.Sprintf("%x\n", h.Sum(nil))
}

func TestANeighboursWorkFinishesAndNobodyTakesMoreThanItsOwn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user's boxes have no control groups here: what they may take of each other is weak")
	}
	for _, tier := range tiers() {
		t.Run(string(tier), func(t *testing.T) {
			harness.NothingLeft(t)
			pests, stop := plague(t, tier, cpu)
			ended := make(chan struct{})
			seen := make(chan seen)
			go func() { seen <- watch(t, ended) }()
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
			defer cancel()
			rounds := 0
			for begun := time.Now(); rounds < 2 || time.Since(begun) < watchTime; rounds++ {
				cmd := harness.Command(ctx, t, harness.Root, append(on(tier), "-o", "json", "--timeout", "600", "--lang", "python", "-e", work)...)
				rep := report(t, cmd)
				if rep.Error != nil && rep.Error.Kind == box.Unavailable { // the rest of this machine is busy, too
					t.Logf("started again: %s", rep.Error.Message)
					rounds--
					continue
				}
				if rep.Cause != box.Exited || *rep.ExitCode != 0 || rep.Stdout == nil || *rep.Stdout != worksResult() {
					t.Fatalf("the neighbour's work ended by %s: %q, %s", rep.Cause, rep.StdoutClean, rep.StderrClean)
				}
			}
			for _, p := range pests {
				select {
				case <-p.done:
					t.Errorf("the %s had ended before the neighbour: %s", p.name, p.last)
				default:
				}
			}
			close(ended)
			w := <-seen
			stop()
			w.judge(t, tier)
			t.Logf("the neighbour's work was done %d times; %d boxes used at most %.2f of their processor time, %.2f of their memory, %.2f of their tasks",
				rounds, len(w.boxes), w.cpu, w.memory, w.pids)
		})
	}
}

func report(t *testing.T, cmd *exec.Cmd) (rep box.Report) {
	t.Helper()
	var errs strings.Builder
	cmd.Dir, cmd.Stderr = "/", &errs
	out, _ := cmd.Output()
	if err := json.Unmarshal(out, &rep); err != nil {
		t.Fatalf("cannot read report: %v, %s", err, errs.String())
	}
	return rep
}
