package image

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// putBytes stores one image and opens it until its record is trusted.
func putBytes(t *testing.T, s *Store, content string) (digest string, name string) {
	t.Helper()
	digest, err := s.put(t.Context(), "test", func(w io.Writer) error {
		_, err := io.WriteString(w, content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	name = s.file(digest, imageExt)
	open(t, s, digest)
	return digest, name
}

func open(t *testing.T, s *Store, digest string) {
	t.Helper()
	img, err := s.open(t.Context(), digest, &record{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	img.Close()
}

// trust opens the image until it is trusted without being read.
func trust(t *testing.T, s *Store, digest string) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		open(t, s, digest)
		if r, err := s.record(digest); err != nil {
			t.Fatal(err)
		} else if r.Verified != nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the image is never trusted")
		}
	}
}

// flip changes one byte of a file in place and puts back everything that can
// be put back: mode, size, access and modification time.
func flip(t *testing.T, name string) {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, 3); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if _, err := f.WriteAt(b, 3); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := os.Chmod(name, info.Mode()); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(name, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	if after, _ := os.Stat(name); !after.ModTime().Equal(info.ModTime()) || after.Mode() != info.Mode() {
		t.Fatal("the change was not hidden well enough to test anything")
	}
}

func refused(t *testing.T, s *Store, digest, what string) {
	t.Helper()
	if img, err := s.open(t.Context(), digest, &record{}); err == nil {
		img.Close()
		t.Errorf("%s was accepted", what)
	} else if !strings.HasPrefix(err.Error(), "cannot ") {
		t.Errorf("%s: %v", what, err)
	}
}

func TestAFlippedByteIsRefused(t *testing.T) {
	s := newStore(t)
	digest, name := putBytes(t, s, "bytes of an image")
	flip(t, name)
	refused(t, s, digest, "an image changed before it was trusted")

	digest, name = putBytes(t, s, "bytes of another image")
	trust(t, s, digest)
	flip(t, name)
	refused(t, s, digest, "an image changed after it was trusted")
	if err := s.Remove(digest); err != nil {
		t.Fatal(err)
	}
	again, _ := putBytes(t, s, "bytes of another image")
	if again != digest {
		t.Error("the image cannot be made again")
	}
}

func TestAnotherFileInItsPlaceIsRefused(t *testing.T) {
	s := newStore(t)
	digest, name := putBytes(t, s, "bytes of an image")
	trust(t, s, digest)
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("bytes of an imagE"), 0o444); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, name); err != nil {
		t.Fatal(err)
	}
	refused(t, s, digest, "a link")
	if err := errors.Join(os.Remove(name), syscall.Mkfifo(name, 0o444)); err != nil {
		t.Fatal(err)
	}
	refused(t, s, digest, "a pipe")
	if err := errors.Join(os.Remove(name), os.WriteFile(name, []byte("bytes of an imagE"), 0o444)); err != nil {
		t.Fatal(err)
	}
	refused(t, s, digest, "another file")
	if err := errors.Join(os.Remove(name), os.WriteFile(name, []byte("bytes of an image"), 0o644)); err != nil {
		t.Fatal(err)
	}
	refused(t, s, digest, "a writable file")
	if err := os.Chmod(name, 0o444); err != nil {
		t.Fatal(err)
	}
	open(t, s, digest) // the right bytes in another inode are right
	if os.Geteuid() == 0 {
		if err := os.Chown(name, 1234, 0); err != nil {
			t.Fatal(err)
		}
		refused(t, s, digest, "somebody else's file")
	}
}

func TestARecordIsTrustedOnlyIfItIsOursAndOfThisBoot(t *testing.T) {
	s := newStore(t)
	digest, name := putBytes(t, s, "bytes of an image")
	trust(t, s, digest)
	flip(t, name)
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	forged, _, err := s.stat(f)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	forge := func(mode os.FileMode) {
		b, err := json.Marshal(record{Verified: &forged})
		if err != nil {
			t.Fatal(err)
		}
		path := s.file(digest, recordExt)
		if err := errors.Join(os.WriteFile(path, b, mode), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
	}
	// This is what the store's owner can do, and shows that the record is
	// what decides in the cases below.
	forge(0o600)
	open(t, s, digest)

	forge(0o640)
	refused(t, s, digest, "a record that others can read")
	forge(0o600)
	other := *s
	other.boot = "another boot"
	refused(t, &other, digest, "a record of another boot")
	other.boot = ""
	refused(t, &other, digest, "a record where the boot is not known")
}

func TestTheDescriptorStartsAtTheBeginning(t *testing.T) {
	s := newStore(t)
	digest, _ := putBytes(t, s, "bytes of an image")
	for range 2 { // verified in full, then by its record
		img, err := s.open(t.Context(), digest, &record{})
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(img.File)
		if err != nil || string(b) != "bytes of an image" {
			t.Errorf("%q, %v", b, err)
		}
		if _, err := img.File.Write([]byte("x")); err == nil {
			t.Error("the image can be written through its descriptor")
		}
		img.Close()
		trust(t, s, digest)
	}
}

func TestConcurrentBuildersGiveOneImage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	opts := someFiles(t)
	var wg sync.WaitGroup
	digests := make([]string, 8)
	for i := range digests {
		wg.Go(func() {
			s, err := OpenStore(dir) // as another process would: locks are per open file
			if err != nil {
				t.Error(err)
				return
			}
			host, err := s.Host(t.Context(), HostOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			host.Close()
			base, err := s.Base(t.Context(), opts, nil)
			if err != nil {
				t.Error(err)
				return
			}
			base.Close()
			digests[i] = host.Digest + base.Digest
		})
	}
	wg.Wait()
	if slices.Sort(digests); digests[0] != digests[len(digests)-1] {
		t.Errorf("different images: %q", digests)
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if strings.HasPrefix(n.Name(), "tmp-") {
			t.Errorf("%s was left behind", n.Name())
		}
	}
}

func TestAFailedOrKilledBuildLeavesNothing(t *testing.T) {
	s := newStore(t)
	stale := filepath.Join(s.dir, "tmp-test-123")
	if err := os.WriteFile(stale, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	if _, err := s.put(t.Context(), "test", func(w io.Writer) error {
		io.WriteString(w, "half")
		return broken
	}); !errors.Is(err, broken) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := s.put(ctx, "test", func(w io.Writer) error {
		cancel()
		_, err := io.WriteString(w, "half")
		return err
	}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	names, err := os.ReadDir(s.dir)
	if err != nil || len(names) != 0 {
		t.Errorf("left behind: %v, %v", names, err)
	}
}

func TestWaitingForABuilderEndsWithTheContext(t *testing.T) {
	s := newStore(t)
	unlock, err := s.lock(t.Context(), "base")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waiting := func(done, total int64, what string) { cancel() }
	if _, err := s.Base(ctx, someFiles(t), waiting); !errors.Is(err, context.Canceled) {
		t.Errorf("Base = %v", err)
	}
	unlock()
	baseImage(t, s, someFiles(t))
}

func TestAStoreOthersCanWriteToIsRefused(t *testing.T) {
	dir := t.TempDir()
	store := filepath.Join(dir, "a", "b")
	if _, err := OpenStore(store); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(store); err != nil || info.Mode().Perm() != 0o711 {
		t.Errorf("made with %v, %v", info.Mode(), err)
	}
	if _, err := OpenStore("relative"); err == nil {
		t.Error("a relative path was accepted")
	}
	for _, mode := range []os.FileMode{0o777, 0o775, 0o722} {
		if err := os.Chmod(store, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenStore(store); err == nil {
			t.Errorf("mode %o was accepted", mode)
		}
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "a"), link); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenStore(link); err == nil {
		t.Error("a link was accepted")
	}
}

func TestImagesAreListedRemovedAndPruned(t *testing.T) {
	s := newStore(t)
	a, _ := putBytes(t, s, "image a")
	b, _ := putBytes(t, s, "image b")
	infos, err := s.Images()
	if err != nil || len(infos) != 2 || infos[0].Size != 7 || infos[0].Name != "test" {
		t.Fatalf("%+v, %v", infos, err)
	}
	if err := s.Remove(a); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(a); box.KindOf(err) != box.NotFound {
		t.Errorf("removed twice: %v", err)
	}
	if _, err := s.Open(t.Context(), a); box.KindOf(err) != box.NotFound {
		t.Errorf("a removed image opens: %v", err)
	}
	for _, bad := range []string{"", "sha256:", "sha256:../../etc/passwd", "sha256:" + strings.Repeat("A", 64), a[len(prefix):], a + "00"} {
		if err := s.Remove(bad); box.KindOf(err) != box.Invalid {
			t.Errorf("removing %q: %v", bad, err)
		}
		if _, err := s.Open(t.Context(), bad); box.KindOf(err) != box.Invalid {
			t.Errorf("opening %q: %v", bad, err)
		}
	}
	if gone, err := s.Prune(time.Hour); err != nil || len(gone) != 0 {
		t.Errorf("pruned %v, %v", gone, err)
	}
	trust(t, s, b)
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(s.file(b, recordExt), old, old); err != nil {
		t.Fatal(err)
	}
	open(t, s, b) // it is in use again
	if gone, err := s.Prune(time.Hour); err != nil || len(gone) != 0 {
		t.Errorf("pruned an image in use: %v, %v", gone, err)
	}
	if err := os.Chtimes(s.file(b, recordExt), old, old); err != nil {
		t.Fatal(err)
	}
	if gone, err := s.Prune(time.Hour); err != nil || !slices.Equal(gone, []string{b}) {
		t.Errorf("pruned %v, %v", gone, err)
	}
}
