package cgroup

import (
	"context"
	"testing"
	"time"
)

func TestWatchTellsOfOutOfMemory(t *testing.T) {
	g := realGroup(t, realManager(t), Limits{Memory: 20 << 20})
	ctx, cancel := context.WithCancel(t.Context())
	events, err := g.WatchOOM(ctx)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-events:
		t.Error("an event before anything happened")
	default:
	}
	shell(t, g, hog)
	select {
	case <-events:
	case <-time.After(2 * time.Minute):
		t.Fatal("no event")
	}
	eventually(t, "kill counted", func() bool { return stats(t, g).OOMKills.N > 0 })
	cancel()
	for end := time.After(2 * time.Minute); ; {
		select {
		case _, ok := <-events:
			if !ok {
				return
			}
		case <-end:
			t.Fatal("the channel stays open after the context ended")
		}
	}
}

func TestWatchOnV2SeesTheEventFileChange(t *testing.T) {
	f := newFakeV2(t, allThree)
	g, err := f.manager("0::/\n").Create("bx1", Limits{Memory: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	events, err := g.WatchOOM(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.put(f.top+"/sunaba/bx1/memory.events", "oom_kill 2")
	select {
	case <-events:
	case <-time.After(2 * time.Minute):
		t.Error("no event")
	}
}
