package daemon

import (
	"context"
	"fmt"
	"os"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// watch begins to watch, and returns a function that returns the next change.
func (c *client) watch(t *testing.T, p string, recursive bool) (next func() string, cancel func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(deadline(t))
	t.Cleanup(cancel)
	s, err := c.Watch(ctx, connect.NewRequest(&pb.WatchRequest{Path: []byte(p), Recursive: recursive}))
	if err != nil {
		t.Fatal(err)
	}
	next = func() string {
		for s.Receive() {
			switch e := s.Msg().Event.(type) {
			case *pb.WatchResponse_Change:
				return fmt.Sprintf("%s %s", e.Change.What, e.Change.Path)
			case *pb.WatchResponse_Lost:
				return "lost"
			case *pb.WatchResponse_Beat:
				return "beat"
			}
		}
		return s.Err().Error()
	}
	if first := next(); first != "beat" {
		t.Fatalf("it began with %q", first)
	}
	return next, cancel
}

func TestWatchTellsOfChangesBelow(t *testing.T) {
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		r := begin(t, u)
		outside := r.dir + "/outside"
		root := r.dir + "/root"
		r.write(t, root+"/old/f", nil, &pb.WriteHead{Parents: true})
		r.write(t, outside+"/deep/g", nil, &pb.WriteHead{Parents: true})
		next, _ := r.watch(t, root, true)
		last := ""
		for _, c := range []struct {
			script string
			want   []string
		}{
			{"echo x >old/f", []string{"WHAT_WRITE old/f"}},
			{"chmod 600 old/f", []string{"WHAT_CHMOD old/f"}},
			{"mv old/f old/h", []string{"WHAT_RENAME old/f", "WHAT_CREATE old/h"}},
			{"rm old/h", []string{"WHAT_REMOVE old/h"}},
			{"mkdir -p new/a", []string{"WHAT_CREATE new", "WHAT_CREATE new/a"}},
			{"echo y >>new/a/i", []string{"WHAT_CREATE new/a/i", "WHAT_WRITE new/a/i"}},
			{"mv ../outside in", []string{"WHAT_CREATE in", "WHAT_CREATE in/deep", "WHAT_CREATE in/deep/g"}},
			{"rm in/deep/g", []string{"WHAT_REMOVE in/deep/g"}},
			{"mv in ../outside; touch ../outside/deep/unseen; touch seen", []string{"WHAT_RENAME in", "WHAT_CREATE seen"}},
		} {
			pid := r.sh(c.script, func(m *pb.StartRequest) { m.Dir = root })
			for _, want := range c.want {
				got := next()
				for got == "beat" || got == last || got == "WHAT_CREATE new/a" && want != got {
					got = next() // a file that is opened anew and written; a folder that the kernel tells of and we found
				}
				last = got
				if got != want {
					t.Errorf("%s: %q, want %q", c.script, got, want)
				}
			}
			r.follow(t, pid)
		}
	})
}

func TestWatchOfOneFolderLeavesOutThoseBelow(t *testing.T) {
	r := begin(t, harness.Users()[0])
	next, cancel := r.watch(t, r.dir, false)
	r.write(t, r.dir+"/a/f", nil, &pb.WriteHead{Parents: true})
	r.write(t, r.dir+"/g", []byte("x"), nil)
	for _, want := range []string{"WHAT_CREATE a", "WHAT_CHMOD a", "WHAT_CREATE g"} {
		if got := next(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	cancel()
	_, err := r.Stat(deadline(t), connect.NewRequest(&pb.StatRequest{Path: []byte(r.dir)}))
	if err != nil {
		t.Error(err)
	}
	next, _ = r.watch(t, r.dir+"/g", false)
	if err := os.WriteFile(r.dir+"/g", []byte("y"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := next(); got != "WHAT_WRITE " {
		t.Errorf("of a file: %q", got)
	}
	if err := os.RemoveAll(r.dir); err != nil {
		t.Fatal(err)
	}
	for got := next(); ; got = next() {
		if got == "not_found: cannot watch "+r.dir+"/g any more: it is gone" {
			break
		} else if got != "WHAT_WRITE " && got != "WHAT_CHMOD " {
			t.Fatalf("of a file that is gone: %q", got)
		}
	}
	s, err := r.Watch(deadline(t), connect.NewRequest(&pb.WatchRequest{Path: []byte("/nowhere")}))
	if err == nil {
		s.Receive()
		err = s.Err()
	}
	wantError(t, err, connect.CodeNotFound, "no such file")
}

func TestWatchThatIsNotReadIsToldThatItLostSome(t *testing.T) {
	r := begin(t, harness.Users()[0])
	next, _ := r.watch(t, r.dir, true)
	r.follow(t, r.sh("seq 1 25000 | xargs -n 2000 touch",
		func(m *pb.StartRequest) { m.Dir = r.dir }))
	for got := next(); got != "lost"; got = next() {
		if len(got) < 5 || got[:5] != "WHAT_" {
			t.Fatalf("nothing was lost before %q", got)
		}
	}
}
