package image

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host/hostfs"
	"github.com/sunaba-dev/sunaba/internal/image/erofs"
)

var when = time.Date(2001, 2, 3, 4, 5, 6, 7, time.UTC) //house:const a time

// sampleImage has every kind of entry that extraction treats in its own way.
func sampleImage(t *testing.T, s *Store) *Image {
	t.Helper()
	dir := fs.ModeDir
	file := func(p string, mode fs.FileMode, content string) erofs.Entry {
		return erofs.Entry{Path: p, Mode: mode, UID: 1234, MTime: when, Size: int64(len(content)), Open: erofs.Bytes([]byte(content))}
	}
	entries := []erofs.Entry{
		{Path: "/", Mode: dir | 0o755, MTime: when},
		{Path: "/tmp", Mode: dir | fs.ModeSticky | 0o777, MTime: when},
		{Path: "/secret", Mode: dir, MTime: when},
		{Path: "/a", Mode: dir | 0o755, MTime: when}, {Path: "/a/b", Mode: dir | 0o700, MTime: when},
		file("/a/b/program", fs.ModeSetuid|0o755, "#!"), file("/a/b.txt", 0o644, "text"), file("/a/z", 0o000, "closed"),
		file("/big", 0o666, strings.Repeat("big", 400_000)), file("/empty", 0o600, ""),
		{Path: "/link", Mode: fs.ModeSymlink | 0o777, Link: "/etc/passwd"},
		{Path: "/up", Mode: fs.ModeSymlink | 0o777, Link: "../../.."},
	}
	digest, err := s.put(t.Context(), "test", func(w io.Writer) error {
		_, err := erofs.Write(w, entries, 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	img, err := s.open(t.Context(), digest, &record{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		img.Close()
		removeTreeAt(s.dir) // its folders cannot be emptied by t.TempDir
	})
	return img
}

// A box's first process is started while its image is extracted: a child has the
// builder's lock from its fork to its execution.
func TestAnImageIsExtractedWhileOthersFork(t *testing.T) {
	s := newStore(t)
	img := sampleImage(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	var forks sync.WaitGroup
	for range 4 {
		forks.Go(func() {
			for ctx.Err() == nil {
				cmd := exec.Command("/bin/true")
				cmd.Env = []string{}
				_ = cmd.Run()
			}
		})
	}
	defer forks.Wait()
	defer cancel()
	for range 60 {
		f, err := s.Tree(t.Context(), img, nil)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		for end := time.Now().Add(2 * time.Minute); ; { // the same for whoever removes it
			err := s.removeTree(img.Digest)
			if err == nil {
				break
			}
			if time.Now().After(end) {
				t.Fatal(err)
			}
		}
	}
}

func extracted(t *testing.T, s *Store, img *Image) *os.File {
	t.Helper()
	f, err := s.Tree(t.Context(), img, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestATreeIsWhatItsImageHolds(t *testing.T) {
	s := newStore(t)
	img := sampleImage(t, s)
	dir := extracted(t, s, img).Name()
	if want := filepath.Join(s.dir, "trees", strings.TrimPrefix(img.Digest, prefix)); dir != want {
		t.Errorf("the tree is at %s, want %s", dir, want)
	}
	seen := 0
	err := erofs.Walk(img.File, func(e erofs.Entry, r io.Reader) error {
		seen++
		name := filepath.Join(dir, e.Path)
		info, err := os.Lstat(name)
		if err != nil {
			return err
		}
		switch {
		case info.Mode().Type() != e.Mode.Type():
			t.Errorf("%s is %v", e.Path, info.Mode())
		case e.Mode.Type() == fs.ModeSymlink:
			if to, err := os.Readlink(name); err != nil || to != e.Link {
				t.Errorf("%s leads to %q, %v", e.Path, to, err)
			}
			return nil
		case info.Mode()&(0o222|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) != 0 || info.Mode().Perm()&^0o500 != e.Mode.Perm()&^0o722 || info.Mode().Perm()&0o400 == 0:
			t.Errorf("%s has mode %v, from %v", e.Path, info.Mode(), e.Mode)
		case int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid():
			t.Errorf("%s is not ours", e.Path)
		case !info.ModTime().Equal(e.MTime):
			t.Errorf("%s is from %v", e.Path, info.ModTime())
		}
		if r == nil {
			return nil
		}
		want, _ := io.ReadAll(r)
		if got, err := os.ReadFile(name); err != nil || string(got) != string(want) {
			t.Errorf("%s has %d bytes, want %d, %v", e.Path, len(got), len(want), err)
		}
		return nil
	})
	if err != nil || seen != 12 {
		t.Errorf("%d entries, %v", seen, err)
	}
	if err := s.VerifyTree(t.Context(), img, true); err != nil {
		t.Error(err)
	}
	if err := s.VerifyTree(t.Context(), img, false); err != nil {
		t.Error(err)
	}
}

// changes are what a tree's owner can do, each followed by what hides it.
func changes(dir string) map[string]func() error {
	in := func(p string) string { return filepath.Join(dir, p) }
	// with makes a folder writable meanwhile, and its time as it was.
	with := func(folder string, do func() error) error {
		info, err := os.Stat(in(folder))
		if err != nil {
			return err
		}
		return errors.Join(os.Chmod(in(folder), 0o700), do(), os.Chmod(in(folder), info.Mode()), os.Chtimes(in(folder), when, when))
	}
	rewrite := func(p, content string) error {
		info, err := os.Stat(in(p))
		if err != nil {
			return err
		}
		return errors.Join(os.Chmod(in(p), 0o600), os.WriteFile(in(p), []byte(content), 0), os.Chmod(in(p), info.Mode()), os.Chtimes(in(p), when, when))
	}
	return map[string]func() error{
		"other contents":    func() error { return rewrite("a/b.txt", "tEXt") },
		"longer contents":   func() error { return rewrite("a/b.txt", "text and more") },
		"another mode":      func() error { return os.Chmod(in("a/b.txt"), 0o445) },
		"another time":      func() error { return os.Chtimes(in("a/b.txt"), when, when.Add(1)) },
		"an open folder":    func() error { return os.Chmod(in("a"), 0o755) },
		"an open top":       func() error { return os.Chmod(dir, 0o755) },
		"a file more":       func() error { return with("a/b", func() error { return os.WriteFile(in("a/b/more"), nil, 0o400) }) },
		"a file less":       func() error { return with("a/b", func() error { return os.Remove(in("a/b/program")) }) },
		"a file of another": func() error { return with("a", func() error { return os.Rename(in("a/z"), in("a/y")) }) },
		"a link for a file": func() error {
			return with("a", func() error { return errors.Join(os.Remove(in("a/b.txt")), os.Symlink("b/program", in("a/b.txt"))) })
		},
		"a link elsewhere": func() error {
			return with(".", func() error { return errors.Join(os.Remove(in("link")), os.Symlink("/etc/shadow", in("link"))) })
		},
		"a pipe": func() error {
			return with("a", func() error { return errors.Join(os.Remove(in("a/b.txt")), syscall.Mkfifo(in("a/b.txt"), 0o444)) })
		},
		"a folder moved out": func() error {
			return with("a", func() error {
				return errors.Join(os.Chmod(in("a/b"), 0o700), os.Rename(in("a/b"), filepath.Dir(dir)+"/moved"), os.Symlink(filepath.Dir(dir)+"/moved", in("a/b")))
			})
		},
	}
}

func TestAChangedTreeIsSeenAndMadeAgain(t *testing.T) {
	s := newStore(t)
	img := sampleImage(t, s)
	names := changes("")
	for name := range names {
		for _, full := range []bool{true, false} {
			f := extracted(t, s, img)
			dir := f.Name()
			if err := changes(dir)[name](); err != nil {
				t.Fatal(name, err)
			}
			if full { // as after a boot
				if err := os.Remove(dir + recordExt); err != nil {
					t.Fatal(err)
				}
			} else {
				age(t, s, img.Digest, scanEvery+time.Second)
			}
			if err := s.VerifyTree(t.Context(), img, full); box.KindOf(err) != box.Fault || err == nil {
				t.Errorf("%s, full %v: VerifyTree = %v", name, full, err)
			}
			// In use, it cannot be made again.
			if g, err := s.Tree(t.Context(), img, nil); err == nil {
				g.Close()
				t.Errorf("%s, full %v: used", name, full)
			}
			f.Close()
			var told []string
			g, err := s.Tree(t.Context(), img, func(_, _ int64, what string) { told = append(told, what) })
			if err != nil {
				t.Fatal(name, err)
			}
			if !strings.Contains(strings.Join(told, "\n"), "again: cannot trust") {
				t.Errorf("%s, full %v: not made again: %q", name, full, told)
			}
			g.Close()
			if err := s.VerifyTree(t.Context(), img, true); err != nil {
				t.Errorf("%s, full %v: made again, it is not right: %v", name, full, err)
			}
			removeTreeAt(filepath.Dir(dir) + "/moved")
		}
	}
}

// age makes a tree's record older.
func age(t *testing.T, s *Store, digest string, by time.Duration) {
	t.Helper()
	r, err := s.treeRecord(digest)
	if err != nil {
		t.Fatal(err)
	}
	r.Scanned = r.Scanned.Add(-by)
	if err := s.writeOwn(s.treePath(digest)+recordExt, r); err != nil {
		t.Fatal(err)
	}
}

func TestATreeIsMadeOnceAndUsedAgain(t *testing.T) {
	s := newStore(t)
	img := sampleImage(t, s)
	first := extracted(t, s, img)
	second, err := s.Tree(t.Context(), img, func(_, _ int64, what string) { t.Errorf("used again, it tells: %s", what) })
	if err != nil {
		t.Fatal(err)
	}
	second.Close()
	if s.judge(first, img.Digest) != nothing {
		t.Error("a fresh tree is not trusted")
	}
	age(t, s, img.Digest, scanEvery+time.Second)
	if s.judge(first, img.Digest) != everyInode {
		t.Error("an aged record is trusted")
	}
	extracted(t, s, img)
	if s.judge(first, img.Digest) != nothing {
		t.Error("a tree that was looked at is not trusted")
	}
	age(t, s, img.Digest, -time.Hour)
	if s.judge(first, img.Digest) != everyInode {
		t.Error("a record from the future is trusted")
	}
	other := *s
	for _, other.boot = range []string{"another", ""} {
		if other.judge(first, img.Digest) != everyByte {
			t.Errorf("a record of this boot is trusted in boot %q", other.boot)
		}
	}
	b, err := json.Marshal(treeRecord{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(first.Name()+recordExt, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if s.judge(first, img.Digest) != everyByte {
		t.Error("an empty record is trusted")
	}
}

func TestConcurrentCallersGetOneTree(t *testing.T) {
	s := newStore(t)
	img := sampleImage(t, s)
	var wg sync.WaitGroup
	var made sync.Map
	for range 8 {
		wg.Go(func() {
			own, err := OpenStore(s.dir) // locks do not know processes, only open files
			if err != nil {
				t.Error(err)
				return
			}
			f, err := own.Tree(t.Context(), img, nil)
			if err != nil {
				t.Error(err)
				return
			}
			info, _ := f.Stat()
			made.Store(info.Sys().(*syscall.Stat_t).Ino, true)
			f.Close()
		})
	}
	wg.Wait()
	n := 0
	made.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d trees", n)
	}
	onlyTree(t, s, img)
}

// onlyTree checks that nothing unfinished is left.
func onlyTree(t *testing.T, s *Store, img *Image) {
	t.Helper()
	names, err := os.ReadDir(s.treePath(""))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if !strings.HasPrefix(s.treePath(""+n.Name()), s.treePath(img.Digest)) {
			t.Errorf("%s is left over", n.Name())
		}
	}
}

func TestAnInterruptedExtractionLeavesNothing(t *testing.T) {
	s := newStore(t)
	img := sampleImage(t, s)
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("enough")
	_, err := s.Tree(ctx, img, func(done, _ int64, _ string) {
		if done > 0 { // in the middle: /big was copied
			cancel(stop)
		}
	})
	if !errors.Is(err, stop) {
		t.Errorf("Tree = %v", err)
	}
	onlyTree(t, s, img)

	// One that was killed left a folder, with files that nobody may write.
	dead, alive := s.treePath("")+"/tmp-dead", s.treePath("")+"/tmp-alive"
	for _, d := range []string{dead, alive} {
		if err := errors.Join(os.Mkdir(d, 0o700), os.WriteFile(d+"/file", nil, 0o400), os.Chmod(d, 0o500)); err != nil {
			t.Fatal(err)
		}
	}
	f, err := openDir(alive)
	if err != nil {
		t.Fatal(err)
	}
	lockDir(f, syscall.LOCK_EX)
	extracted(t, s, img)
	if _, err := os.Lstat(dead); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what a killed extraction left is still there: %v", err)
	}
	if _, err := os.Lstat(alive); err != nil {
		t.Errorf("another extraction's folder was removed: %v", err)
	}
	f.Close()
	if _, err := s.Prune(time.Hour); err != nil {
		t.Error(err)
	}
	onlyTree(t, s, img)
}

func TestATreeInUseIsNotRemoved(t *testing.T) {
	s := newStore(t)
	img := sampleImage(t, s)
	f := extracted(t, s, img)
	if err := s.Remove(img.Digest); box.KindOf(err) != box.Exhausted {
		t.Errorf("Remove = %v", err)
	}
	if gone, err := s.Prune(0); err != nil || len(gone) != 0 {
		t.Errorf("Prune = %v, %v", gone, err)
	}
	if err := s.VerifyTree(t.Context(), img, true); err != nil {
		t.Errorf("after that, %v", err)
	}
	f.Close()
	if err := s.Remove(img.Digest); err != nil {
		t.Error(err)
	}
	if err := s.VerifyTree(t.Context(), img, true); box.KindOf(err) != box.NotFound {
		t.Errorf("VerifyTree of a removed tree = %v", err)
	}
	names, err := os.ReadDir(s.treePath(""))
	if err != nil || len(names) != 0 {
		t.Errorf("%v is left, %v", names, err)
	}
}

func TestPruneRemovesTreesWithoutAnImage(t *testing.T) {
	s := newStore(t)
	img := sampleImage(t, s)
	f := extracted(t, s, img)
	if err := os.Remove(s.file(img.Digest, imageExt)); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false} { // in use, and then not
		if _, err := s.Prune(time.Hour); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(s.treePath(img.Digest)); (err == nil) != want {
			t.Errorf("%d: there %v, want %v", i, err == nil, want)
		}
		f.Close()
	}
}

func TestSomethingElseInATreesPlaceIsNotUsed(t *testing.T) {
	s := newStore(t)
	img := sampleImage(t, s)
	f := extracted(t, s, img)
	f.Close()
	name := s.treePath(img.Digest)
	moved := filepath.Join(s.dir, "moved")
	if err := errors.Join(os.Chmod(name, 0o700), os.Rename(name, moved), os.Symlink(moved, name)); err != nil {
		t.Fatal(err)
	}
	if g, err := s.Tree(t.Context(), img, nil); err == nil {
		g.Close()
		t.Error("a link was used")
	}
	if err := errors.Join(os.Remove(name), os.Mkdir(name, 0o500)); err != nil {
		t.Fatal(err)
	}
	g := extracted(t, s, img) // an empty folder is made again
	if err := s.VerifyTree(t.Context(), img, true); err != nil {
		t.Error(err)
	}
	g.Close()
}

func TestABrokenImageGivesNoTree(t *testing.T) {
	s := newStore(t)
	digest, _ := putBytes(t, s, "not an image")
	img, err := s.open(t.Context(), digest, &record{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	if f, err := s.Tree(t.Context(), img, nil); err == nil {
		f.Close()
		t.Error("extracted")
	} else if !strings.HasPrefix(err.Error(), "cannot extract image: ") || box.KindOf(err) != box.Fault {
		t.Error(err)
	}
	onlyTree(t, s, img)
}

func TestTheHostSkeletonIsExtracted(t *testing.T) {
	s := newStore(t)
	img := hostImage(t, s, HostOptions{Init: []byte("init")})
	t.Cleanup(func() { hostfs.RemoveTree(context.Background(), s.dir) })
	f := extracted(t, s, img)
	if b, err := os.ReadFile(filepath.Join(f.Name(), InitPath)); err != nil || string(b) != "init" {
		t.Errorf("init is %q, %v", b, err)
	}
	if err := s.VerifyTree(t.Context(), img, true); err != nil {
		t.Error(err)
	}
}
