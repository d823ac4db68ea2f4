package tiertest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
)

// greedy has some of each thing, and takes all that it gets of what it is told.
const greedy = `
import os, signal, sys
heap = bytearray(b'greedy!!' * (1 << 20))
def child():
    while True: signal.pause()
def fds(n): return os.open('/dev/null', 0)
def procs(n): return os.fork() or child()
def files(n): open('f%d' % n, 'w').close()
def disk(n): os.write(big, b'x' * 65536)
big = os.open('big', os.O_CREAT | os.O_WRONLY)
kept = [(fds(n), procs(-n)) for n in range(10)]
for n in range(100): files(-n - 1); disk(n)
print('ready', flush=True)
for line in sys.stdin:
    got, n, take = [], 0, globals()[line.strip()]
    try:
        while n < 100000: got.append(take(n)); n += 1
    except OSError as e: print(n, e.errno, heap.count(b'greedy!!') >> 20, line.strip(), flush=True)
    for g in got:
        if take is fds: os.close(g)
        if take is procs: os.kill(g, signal.SIGKILL); os.waitpid(g, 0)
`

// What a box may have, its copies may have: what it had counts in them, and no more
// is theirs.
func TestTheLimitsHoldInCopies(t *testing.T) {
	p := newPlace(t, box.TierGvisor)
	made := spec()
	made.Image, made.Limits.Processes = box.ImageBase, 40
	b := p.create(t, made)
	g := use(t, b)
	env := []string{"PATH=/usr/bin:/bin"}
	pr, err := g.Start(t.Context(), box.ProcessSpec{Stdin: true, Command: box.Command{Argv: []string{"python3", "-c", greedy}, Env: env}})
	if err != nil {
		t.Fatal(err)
	}
	says(t, g, pr.PID, "ready")
	talker, err := g.Start(t.Context(), box.ProcessSpec{Stdin: true, Output: 1000, Command: box.Command{
		Argv: []string{"sh", "-c", "printf %0600d 0; read x; printf %0600d 1; sleep 1000"}, Env: env,
	}})
	if err != nil {
		t.Fatal(err)
	}
	says(t, g, talker.PID, strings.Repeat("0", 600))
	leave(t, g)
	s := p.copyMemory(t, b)
	fork := [2]box.Lasting{p.restore(t, made, s), p.restore(t, made, s)}
	g = use(t, fork[1])
	run(t, g, "true")
	leave(t, g)
	child := p.restore(t, made, p.copyMemory(t, fork[1]))
	want := ""
	for name, c := range map[string]box.Lasting{"the box": b, "a copy": fork[0], "another": fork[1], "a copy of a copy": child} {
		got := p.greed(t, c, pr.PID, talker.PID)
		t.Logf("%s: %s", name, got)
		if want == "" {
			want = got
		}
		if got != want {
			t.Errorf("%s: %s, and another: %s", name, got, want)
		}
		p.destroy(t, c)
	}
	p.empty(t)
}

// greed says what a greedy program got in a box.
func (p *place) greed(t *testing.T, b box.Lasting, greedy, talker int) string {
	t.Helper()
	g := use(t, b)
	var said []string
	at := int64(0)
	for _, what := range []struct {
		word  string
		errno int
	}{{"fds", 24}, {"procs", 11}, {"files", 28}, {"disk", 28}} {
		if _, err := g.Input(t.Context(), box.ProcessRef{PID: greedy}, box.Input{At: at, Data: []byte(what.word + "\n")}); err != nil {
			t.Fatal(err)
		}
		at += int64(len(what.word)) + 1
		lines := strings.Split(says(t, g, greedy, fmt.Sprintf(" %d 1 %s\n", what.errno, what.word)), "\n")
		said = append(said, lines[len(lines)-2])
	}
	if _, err := g.Input(t.Context(), box.ProcessRef{PID: talker}, box.Input{Data: []byte("\n")}); err != nil {
		t.Fatal(err)
	}
	end, out := ended(t, g, talker)
	said = append(said, fmt.Sprintf("talked %d %s", len(out), end.Cause))
	end, _ = ended(t, g, start(t, g, "python3", "-c", "x = bytearray(1 << 30); import time; time.sleep(60)").PID)
	said = append(said, string(end.Cause))
	a := counted(t, b, 0)
	var names []string
	for _, l := range a.Limits {
		names = append(names, l.Limit)
	}
	slices.Sort(names)
	all, err := g.Processes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range all {
		if q.PID == greedy && q.End != nil {
			t.Errorf("it has ended: %+v", q.End)
		}
	}
	t.Logf("its peak: %d MiB", a.MemoryPeak>>20)
	return fmt.Sprint(said, names, a.MemoryKills)
}
