package daemon

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
	"github.com/sunaba-dev/sunaba/test/harness"
)

func TestFileComesBackAsItWasWritten(t *testing.T) {
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		r := begin(t, u)
		for _, name := range []string{"plain", "a\nb\xff", " ", "-rf", strings.Repeat("n", 255)} {
			p := r.dir + "/" + name
			want := bytes.Repeat([]byte("sand"), 300_000)
			if e := r.write(t, p, want, nil); e.Size != uint64(len(want)) || e.Mode != 0o644 || string(e.Path) != p || e.Kind != pb.Kind_KIND_FILE {
				t.Errorf("wrote %v", e)
			}
			if got := r.read(t, p, 0, -1); !bytes.Equal(got, want) {
				t.Errorf("read %d bytes", len(got))
			}
			for _, c := range []struct {
				offset uint64
				length int64
				want   []byte
			}{{0, 0, nil}, {1, 3, want[1:4]}, {uint64(len(want)) - 2, 100, want[len(want)-2:]}, {uint64(len(want)) + 5, -1, nil}, {100_000, 100_000, want[100_000:200_000]}} {
				if got := r.read(t, p, c.offset, c.length); !bytes.Equal(got, c.want) {
					t.Errorf("from %d, %d bytes: %d, want %d", c.offset, c.length, len(got), len(c.want))
				}
			}
		}
		entries, cut := r.list(t, r.dir, 1, 0)
		if len(entries) != 5 || cut || string(entries[0].Path) != r.dir+"/ " || string(entries[2].Path) != r.dir+"/a\nb\xff" {
			t.Errorf("list: %v, %v", entries, cut)
		}
	})
}

func (c *client) list(t testing.TB, p string, depth, most uint32) (all []*pb.Entry, cut bool) {
	t.Helper()
	s, err := c.FilesClient.List(deadline(t), connect.NewRequest(&pb.ListRequest{Path: []byte(p), Depth: depth, Most: most}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for s.Receive() {
		all, cut = append(all, s.Msg().Entries...), s.Msg().Cut
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return all, cut
}

// bad makes files of all kinds that are not what they seem.
func bad(t *testing.T, u harness.User, dir string) {
	t.Helper()
	sock, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(sock) })
	for _, err := range []error{
		unix.Mkfifo(dir+"/fifo", 0o666),
		unix.Bind(sock, &unix.SockaddrUnix{Name: dir + "/sock"}),
		os.Mkdir(dir+"/dir", 0o755),
		os.WriteFile(dir+"/file", []byte("old"), 0o640),
		os.Symlink("file", dir+"/link"),
		os.Symlink(dir+"/nothing", dir+"/dangling"),
		os.Symlink("loop", dir+"/loop"),
		os.Symlink("fifo", dir+"/tofifo"),
		os.Symlink("/proc/self/fd/0", dir+"/magic"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"fifo", "sock", "dir", "file", "link"} {
		harness.Give(t, u, dir+"/"+name)
	}
}

// TestWhatIsNoRegularFileIsNamedAndNotOpened: and so nothing can hang.
func TestWhatIsNoRegularFileIsNamedAndNotOpened(t *testing.T) {
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		r := begin(t, u)
		bad(t, u, r.dir)
		for _, c := range []struct {
			name        string
			read, write connect.Code
			words       string
		}{
			{"fifo", connect.CodeInvalidArgument, connect.CodeInvalidArgument, "a named pipe"},
			{"tofifo", connect.CodeInvalidArgument, connect.CodeInvalidArgument, "a named pipe"},
			{"sock", connect.CodeInvalidArgument, connect.CodeInvalidArgument, "a socket"},
			{"dir", connect.CodeInvalidArgument, connect.CodeInvalidArgument, "a"},
			{"loop", connect.CodeInvalidArgument, connect.CodeInvalidArgument, "too many levels of symbolic links"},
			{"magic", connect.CodeInvalidArgument, 0, ""},
			{"file/x", connect.CodeInvalidArgument, connect.CodeInvalidArgument, "not a directory"},
			{"nothing/x", connect.CodeNotFound, connect.CodeNotFound, "no such file"},
			{strings.Repeat("x", 256), connect.CodeInvalidArgument, connect.CodeInvalidArgument, "too long"},
		} {
			_, err := r.tryRead(t, r.dir+"/"+c.name, 0, -1)
			wantError(t, err, c.read, c.words)
			if c.write != 0 {
				_, err = r.tryWrite(t, r.dir+"/"+c.name, []byte("new"), nil)
				wantError(t, err, c.write, c.words)
			}
		}
		for _, p := range []string{"/dev/zero", "/dev/null", "relative", "", "/a\x00b"} {
			_, err := r.tryRead(t, p, 0, -1)
			wantError(t, err, connect.CodeInvalidArgument, "")
			_, err = r.tryWrite(t, p, []byte("new"), nil)
			wantError(t, err, connect.CodeInvalidArgument, "")
		}
		_, err := r.tryRead(t, r.dir+"/dangling", 0, -1)
		wantError(t, err, connect.CodeNotFound, "no such file")
		_, err = r.tryWrite(t, r.dir+"/dangling", []byte("new"), nil)
		wantError(t, err, connect.CodeInvalidArgument, "a link to "+r.dir+"/nothing")
		if _, err := os.Lstat(r.dir + "/nothing"); err == nil {
			t.Error("what the link leads to was made")
		}
		kinds := map[string]pb.Kind{}
		entries, _ := r.list(t, r.dir, 1, 0)
		for _, e := range entries {
			kinds[filepath.Base(string(e.Path))] = e.Kind
		}
		if kinds["fifo"] != pb.Kind_KIND_OTHER || kinds["sock"] != pb.Kind_KIND_OTHER || kinds["dir"] != pb.Kind_KIND_DIR || kinds["loop"] != pb.Kind_KIND_LINK || len(kinds) != 9 {
			t.Errorf("list: %v", kinds)
		}
	})
}

func TestFilesOfTheKernelAreReadAsFarAsTheyGo(t *testing.T) {
	r := begin(t, harness.Users()[0])
	if got := r.read(t, "/proc/version", 0, -1); !bytes.HasPrefix(got, []byte("Linux version")) {
		t.Errorf("got %q", got)
	}
	if got := r.read(t, "/proc/version", 0, 5); string(got) != "Linux" {
		t.Errorf("got %q", got)
	}
	_, err := r.tryRead(t, "/proc/self/exe", 0, -1)
	wantError(t, err, connect.CodeInvalidArgument, "")
	_, err = r.tryWrite(t, "/proc/version", []byte("x"), nil)
	if err == nil {
		t.Error("a file of the kernel was replaced")
	}
}

func TestWriteKeepsModeAndFollowsLinks(t *testing.T) {
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		r := begin(t, u)
		bad(t, u, r.dir)
		if e := r.write(t, r.dir+"/link", []byte("new"), nil); e.Mode != 0o640 {
			t.Errorf("mode %#o", e.Mode)
		}
		if l, err := os.Readlink(r.dir + "/link"); err != nil || l != "file" {
			t.Errorf("the link is %q, %v", l, err)
		}
		if got := r.read(t, r.dir+"/file", 0, -1); string(got) != "new" {
			t.Errorf("got %q", got)
		}
		if e := r.write(t, r.dir+"/file", nil, &pb.WriteHead{Mode: 0o600}); e.Mode != 0o600 || e.Size != 0 {
			t.Errorf("got %v", e)
		}
		_, err := r.tryWrite(t, r.dir+"/file", []byte("x"), &pb.WriteHead{Exclusive: true})
		wantError(t, err, connect.CodeAlreadyExists, "exists")
		_, err = r.tryWrite(t, r.dir+"/a/b/c", []byte("x"), nil)
		wantError(t, err, connect.CodeNotFound, "no such file")
		r.write(t, r.dir+"/a/b/c", []byte("x"), &pb.WriteHead{Parents: true, Exclusive: true})
		_, err = r.tryWrite(t, r.dir+"/suid", nil, &pb.WriteHead{Mode: 0o4755})
		wantError(t, err, connect.CodeInvalidArgument, "permission bits")
		_, err = r.tryWrite(t, r.dir+"/attr", nil, &pb.WriteHead{Attributes: map[string][]byte{"security.x": nil}})
		wantError(t, err, connect.CodeInvalidArgument, "user.")
		if u == harness.Ordinary {
			if err := os.Chmod(r.dir+"/file", 0o400); err != nil {
				t.Fatal(err)
			}
			_, err = r.tryWrite(t, r.dir+"/file", []byte("x"), nil)
			wantError(t, err, connect.CodePermissionDenied, "permission denied")
		}
		r.noTemps(t)
	})
}

// noTemps wants no file that was begun and not finished.
func (r *testAgent) noTemps(t testing.TB) {
	t.Helper()
	if left, _ := filepath.Glob(r.dir + "/" + tempPrefix + "*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestWriteThatBreaksOffLeavesNothing(t *testing.T) {
	r := begin(t, harness.Users()[0])
	p := r.dir + "/file"
	r.write(t, p, []byte("old"), nil)
	ctx, cancel := context.WithCancel(deadline(t))
	w := r.Write(ctx)
	if err := w.Send(&pb.WriteRequest{Head: &pb.WriteHead{Path: []byte(p)}, Data: []byte("new")}); err != nil {
		t.Fatal(err)
	}
	for {
		if left, _ := filepath.Glob(r.dir + "/" + tempPrefix + "*"); len(left) == 1 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	for end := time.Now().Add(longest); ; time.Sleep(time.Millisecond) {
		if left, _ := filepath.Glob(r.dir + "/" + tempPrefix + "*"); len(left) == 0 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("left: %v", left)
		}
	}
	if got := r.read(t, p, 0, -1); string(got) != "old" {
		t.Errorf("got %q", got)
	}
}

func TestAttributesAreKept(t *testing.T) {
	r := begin(t, harness.Users()[0])
	p := r.dir + "/file"
	want := map[string][]byte{"user.a": []byte("1\x00\xff"), "user.b": {}}
	_, err := r.tryWrite(t, p, []byte("x"), &pb.WriteHead{Attributes: want})
	if connect.CodeOf(err) == connect.CodeUnimplemented && err != nil {
		t.Skip("the file system of the temporary folder has no extended attributes; set TMPDIR to one that has")
	}
	res, err := r.Stat(deadline(t), connect.NewRequest(&pb.StatRequest{Path: []byte(p), Attributes: true}))
	if err != nil || fmt.Sprint(res.Msg.Entry.Attributes) != fmt.Sprint(want) {
		t.Errorf("got %v, %v", res, err)
	}
}

func TestFoldersAreMadeMovedAndRemoved(t *testing.T) {
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		r := begin(t, u)
		mk := func(p string, mode uint32, parents bool) (bool, error) {
			res, err := r.MakeDir(deadline(t), connect.NewRequest(&pb.MakeDirRequest{Path: []byte(r.dir + p), Mode: mode, Parents: parents}))
			if err != nil {
				return false, err
			}
			return res.Msg.Made, nil
		}
		for _, c := range []struct {
			path    string
			parents bool
			made    bool
		}{{"/a", false, true}, {"/a", false, false}, {"/b/c/d", true, true}, {"/b/c/d/", true, false}, {"/b//c/e/", true, true}, {"/.", false, false}} {
			if made, err := mk(c.path, 0o700, c.parents); made != c.made || err != nil {
				t.Errorf("%v: %v, %v", c, made, err)
			}
		}
		if st, err := os.Stat(r.dir + "/b/c"); err != nil || st.Mode().Perm() != 0o755 {
			t.Errorf("%v, %v", st, err)
		}
		if st, err := os.Stat(r.dir + "/b/c/d"); err != nil || st.Mode().Perm() != 0o700 {
			t.Errorf("%v, %v", st, err)
		}
		r.write(t, r.dir+"/f", nil, nil)
		_, err := mk("/f", 0, true)
		wantError(t, err, connect.CodeAlreadyExists, "exists")
		_, err = mk("/x/y", 0, false)
		wantError(t, err, connect.CodeNotFound, "no such file")
		move := func(from, to string, replace bool) error {
			_, err := r.Move(deadline(t), connect.NewRequest(&pb.MoveRequest{From: []byte(r.dir + from), To: []byte(r.dir + to), Replace: replace}))
			return err
		}
		r.write(t, r.dir+"/g", nil, nil)
		wantError(t, move("/f", "/g", false), connect.CodeAlreadyExists, "exists")
		if err := move("/f", "/g", true); err != nil {
			t.Error(err)
		}
		wantError(t, move("/b", "/b/c/in", false), connect.CodeInvalidArgument, "invalid")
		remove := func(p string, all bool) error {
			_, err := r.Remove(deadline(t), connect.NewRequest(&pb.RemoveRequest{Path: []byte(r.dir + p), All: all}))
			return err
		}
		wantError(t, remove("/b", false), connect.CodeAlreadyExists, "not empty")
		wantError(t, remove("/nothing", true), connect.CodeNotFound, "no such file")
		outside := harness.Dir(t, u)
		if err := os.Symlink(outside, r.dir+"/b/out"); err != nil {
			t.Fatal(err)
		}
		for _, p := range []string{"/b", "/a", "/g"} {
			if err := remove(p, true); err != nil {
				t.Error(err)
			}
		}
		if _, err := os.Stat(outside); err != nil {
			t.Error("what a link led to was removed")
		}
		if left, _ := os.ReadDir(r.dir); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
	})
}

func TestListGoesAsDeepAndFarAsItWasAsked(t *testing.T) {
	r := begin(t, harness.Users()[0])
	deep := r.dir + strings.Repeat("/d", maxDepth+10)
	r.write(t, deep+"/f", nil, &pb.WriteHead{Parents: true})
	for i := range 1000 {
		if err := os.WriteFile(fmt.Sprintf("%s/f%03d", r.dir, i), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		depth, most uint32
		n           int
		cut         bool
	}{{1, 0, 1001, false}, {2, 0, 1002, false}, {0, 0, 1001, false}, {1, 1001, 1001, false}, {1, 1000, 1000, true}, {1, 1, 1, true}, {1000, 0, 1000 + maxDepth, true}} {
		entries, cut := r.list(t, r.dir, c.depth, c.most)
		if len(entries) != c.n || cut != c.cut {
			t.Errorf("%v: %d entries, cut %v", c, len(entries), cut)
		}
	}
	s, err := r.FilesClient.List(deadline(t), connect.NewRequest(&pb.ListRequest{Path: []byte(r.dir + "/f000")}))
	if err == nil {
		s.Receive()
		err = s.Err()
	}
	wantError(t, err, connect.CodeInvalidArgument, "not a directory")
}

// TestUsersOfABoxWithRoot runs as the host's root, which is what guest root is in
// its box: programs and files are the ordinary user's unless it is said.
func TestUsersOfABoxWithRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, as a box with a guest root has; run the tests as root")
	}
	dir := harness.Dir(t, harness.Root)
	harness.Give(t, harness.Root, dir)
	r := beginIn(t, harness.Root, dir, nil, "root")
	const script = "id -u; id -g; id -G; grep -E 'Cap(Prm|Eff|Amb)' /proc/self/status; echo again >/dev/stderr"
	got := r.follow(t, r.sh(script))
	none := "0000000000000000"
	if want := "1000\n1000\n1000\nCapPrm:\t" + none + "\nCapEff:\t" + none + "\nCapAmb:\t" + none + "\n"; string(got.out) != want || string(got.err) != "again\n" {
		t.Errorf("got %q, %q", got.out, got.err)
	}
	if got := r.follow(t, r.sh("id -u", func(m *pb.StartRequest) { m.User = "root" })); string(got.out) != "0\n" {
		t.Errorf("got %q, %q", got.out, got.err)
	}
	for user, uid := range map[string]uint32{"": 1000, "user": 1000, "root": 0} {
		p := dir + "/of" + user + "/file"
		e := r.write(t, p, nil, &pb.WriteHead{Parents: true, User: user})
		st, err := os.Stat(filepath.Dir(p))
		if err != nil || e.Uid != uid || e.Gid != uid || st.Sys().(*syscall.Stat_t).Uid != uid {
			t.Errorf("%q: %v, %v, %v", user, e, st, err)
		}
		if e := r.write(t, p, []byte("x"), &pb.WriteHead{User: "root"}); e.Uid != uid { // it stays whose it is
			t.Errorf("%q: %v", user, e)
		}
	}
	_, err := r.tryWrite(t, dir+"/f", nil, &pb.WriteHead{User: "alice"})
	wantError(t, err, connect.CodeInvalidArgument, "alice")
	pid := r.sh("tty; echo hi >$(tty)", func(m *pb.StartRequest) { m.Terminal = &pb.Size{Rows: 1, Cols: 1} })
	if got := r.follow(t, pid); !strings.HasPrefix(string(got.out), "/dev/pts/") || !strings.HasSuffix(string(got.out), "hi\r\n") {
		t.Errorf("got %q", got.out)
	}
}

// What cannot be opened for want of descriptors is no folder to be left out.
func TestWithoutDescriptorsFoldersAreNotLeftOut(t *testing.T) {
	r := begin(t, harness.Users()[0])
	r.write(t, r.dir+strings.Repeat("/d", 60)+"/f", nil, &pb.WriteHead{Parents: true})
	if all, _ := r.list(t, r.dir, 64, 0); len(all) != 61 {
		t.Fatalf("%d entries", len(all))
	}
	pid := r.cmd.Process.Pid
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Skipf("cannot count the agent's descriptors: %v", err)
	}
	few := unix.Rlimit{Cur: uint64(len(open) + 20), Max: uint64(len(open) + 20)}
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &few, nil); err != nil {
		t.Fatal(err)
	}
	s, err := r.FilesClient.List(deadline(t), connect.NewRequest(&pb.ListRequest{Path: []byte(r.dir), Depth: 64}))
	if err == nil {
		for s.Receive() {
		}
		err = s.Err()
	}
	wantError(t, err, connect.CodeResourceExhausted, "too many open files")
	_, _, err = r.pack(t, r.dir, 1<<20)
	wantError(t, err, connect.CodeResourceExhausted, "too many open files")
	w, err := r.FilesClient.Watch(deadline(t), connect.NewRequest(&pb.WatchRequest{Path: []byte(r.dir), Recursive: true}))
	if err == nil {
		w.Receive()
		err = w.Err()
	}
	wantError(t, err, connect.CodeResourceExhausted, "too many open files")
}
