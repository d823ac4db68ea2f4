package snapshot

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/blockfs"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Each way in which a snapshot can be other than it was is refused with its name,
// and no other one is the worse for it.
func TestWhatWasChangedIsRefused(t *testing.T) {
	const one, two = "the first part", "the other one!" // of one length
	for name, change := range map[string]func(t *testing.T, s *Store, id string){
		"a flipped bit":           func(t *testing.T, s *Store, _ string) { overwrite(t, s.path(digest(one)), "the fIrst part") },
		"truncated":               func(t *testing.T, s *Store, _ string) { overwrite(t, s.path(digest(one)), one[:5]) },
		"empty":                   func(t *testing.T, s *Store, _ string) { overwrite(t, s.path(digest(one)), "") },
		"longer":                  func(t *testing.T, s *Store, _ string) { overwrite(t, s.path(digest(one)), one+"!") },
		"missing":                 func(t *testing.T, s *Store, _ string) { must(t, os.Remove(s.path(digest(one)))) },
		"another part's contents": func(t *testing.T, s *Store, _ string) { overwrite(t, s.path(digest(one)), two) },
		"two parts swapped": func(t *testing.T, s *Store, _ string) {
			must(t, os.Rename(s.path(digest(one)), s.path("x")))
			must(t, os.Rename(s.path(digest(two)), s.path(digest(one))))
			must(t, os.Rename(s.path("x"), s.path(digest(two))))
		},
		"a link to the same": func(t *testing.T, s *Store, _ string) {
			must(t, os.Rename(s.path(digest(one)), s.path("x")))
			must(t, os.Symlink("x", s.path(digest(one))))
		},
		"a second name": func(t *testing.T, s *Store, _ string) { must(t, os.Link(s.path(digest(one)), s.path("x"))) },
		"a pipe": func(t *testing.T, s *Store, _ string) {
			must(t, os.Remove(s.path(digest(one))))
			must(t, syscall.Mkfifo(s.path(digest(one)), 0o600))
		},
		"a folder": func(t *testing.T, s *Store, _ string) {
			must(t, os.Remove(s.path(digest(one))))
			must(t, os.Mkdir(s.path(digest(one)), 0o700))
		},
		"writable by others": func(t *testing.T, s *Store, _ string) { must(t, os.Chmod(s.path(digest(one)), 0o422)) },
		"open for writing": func(t *testing.T, s *Store, _ string) {
			must(t, os.Chmod(s.path(digest(one)), 0o600))
			f, err := os.OpenFile(s.path(digest(one)), os.O_RDWR, 0)
			must(t, err)
			t.Cleanup(func() { f.Close() })
		},
		"no manifest":    func(t *testing.T, s *Store, id string) { must(t, os.Remove(s.path(id[7:]+".json"))) },
		"a manifest cut": func(t *testing.T, s *Store, id string) { overwrite(t, s.path(id[7:]+".json"), "{") },
		"a huge manifest": func(t *testing.T, s *Store, id string) {
			overwrite(t, s.path(id[7:]+".json"), strings.Repeat(" ", maxManifest+1))
		},
		"another's manifest": func(t *testing.T, s *Store, id string) {
			other := put(t, s, map[string]string{"a": "else"})
			must(t, os.Rename(s.path(other[7:]+".json"), s.path(id[7:]+".json")))
		},
		"a manifest that is a pipe": func(t *testing.T, s *Store, id string) {
			must(t, os.Remove(s.path(id[7:]+".json")))
			must(t, syscall.Mkfifo(s.path(id[7:]+".json"), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, leases := range []bool{true, false} {
				s := fresh1(t)
				if !leases {
					if name == "open for writing" {
						continue // who has it open cannot reach the copy
					}
					s.lease = func(*os.File) error { return syscall.EINVAL }
				}
				id, whole := put(t, s, map[string]string{"a": one, "b": two}), put(t, s, map[string]string{"a": "whole"})
				change(t, s, id)
				before := descriptors(t)
				if h, err := s.Open(t.Context(), id); box.KindOf(err) != box.Unusable || !strings.Contains(err.Error(), id) {
					t.Errorf("opened %v: %v", h, err)
				}
				good(t, s, whole, map[string]string{"a": "whole"})
				if after := descriptors(t); after != before {
					t.Errorf("%d descriptors, %d before", after, before)
				}
			}
		})
	}
}

// A manifest that has the digest of its name, and was not written here.
func TestAForeignManifestIsRefused(t *testing.T) {
	s := fresh1(t)
	id := put(t, s, map[string]string{"a": "text"})
	b, err := os.ReadFile(s.path(id[7:] + ".json"))
	must(t, err)
	was := string(b)
	for name, text := range map[string]string{
		"no JSON":        "not JSON",
		"spaces":         was + " ",
		"two":            was + was,
		"an unknown key": strings.Replace(was, `"version"`, `"more":1,"version"`, 1),
		"a later form":   strings.Replace(was, `"version":1`, `"version":2`, 1),
		"a path":         strings.Replace(was, `"name":"a"`, `"name":"../a"`, 1),
		"no size":        strings.Replace(was, `"bytes":4`, `"bytes":-4`, 1),
		"another file":   strings.Replace(was, digest("text"), "../../../etc/passwd", 1),
		"a part twice":   strings.Replace(was, `"parts":[`, `"parts":[{"name":"a","bytes":4,"sha256":"`+digest("text")+`"},`, 1),
	} {
		if text == was {
			t.Fatalf("%s: nothing was changed", name)
		}
		overwrite(t, s.path(digest(text)+".json"), text)
		if _, err := s.Open(t.Context(), "sha256:"+digest(text)); box.KindOf(err) != box.Unusable {
			t.Errorf("%s: %v", name, err)
		}
	}
	good(t, s, id, map[string]string{"a": "text"})
}

// What is swapped after the check is not what is used; what is written after it is
// told before anybody has the box.
func TestAChangeAfterTheCheckDoesNotReachTheUse(t *testing.T) {
	s := fresh1(t)
	id := put(t, s, map[string]string{"a": "text"})
	part := s.path(digest("text"))
	h, err := s.Open(t.Context(), id)
	must(t, err)
	defer h.Close()
	must(t, os.WriteFile(s.path("x"), []byte("evil"), 0o400))
	must(t, os.Rename(part, s.path("old")))
	must(t, os.Rename(s.path("x"), part))
	if got := texts(t, h); got["a"] != "text" || h.Firm() != nil {
		t.Errorf("%q, %v", got, h.Firm())
	}
	must(t, os.Chmod(s.path("old"), 0o600))
	// Not to wait for the lease: who does so waits as long as it is held.
	if _, err := os.OpenFile(s.path("old"), os.O_WRONLY|syscall.O_NONBLOCK, 0); !errors.Is(err, syscall.EWOULDBLOCK) {
		t.Errorf("it opens for writing: %v", err)
	}
	if err := h.Firm(); box.KindOf(err) != box.Unusable || !strings.Contains(err.Error(), id) {
		t.Errorf("nothing is told: %v", err)
	}
}

func TestWithoutLeasesACopyIsUsed(t *testing.T) {
	s := fresh1(t)
	s.lease = func(*os.File) error { return syscall.EINVAL }
	id := put(t, s, map[string]string{"a": "text"})
	h, err := s.Open(t.Context(), id)
	must(t, err)
	defer h.Close()
	overwrite(t, s.path(digest("text")), "evil")
	if got := texts(t, h); got["a"] != "text" || h.Firm() != nil {
		t.Errorf("%q, %v", got, h.Firm())
	}
	if _, err := h.Parts["a"].WriteAt([]byte("x"), 0); err == nil {
		t.Error("it can be written")
	}
	if left := entries(t, s); len(left) != 2 {
		t.Errorf("left: %v", left)
	}
}

func TestAFullDiskLeavesWhatThereIs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user cannot make a disk to fill")
	}
	disk, _, err := blockfs.NewStore(t.TempDir(), 32<<20, 1000, 0, 0)
	must(t, err)
	defer disk.Close()
	s := open(t, filepath.Join(host.FDPath(disk.Fd()), "snapshots"))
	parts := map[string]string{"a": "text"}
	id := put(t, s, parts)
	names := entries(t, s)
	d := s.Begin(1 << 30)
	err = d.Put("big", io.LimitReader(zeros{}, 64<<20))
	if box.KindOf(err) != box.Exhausted || !errors.Is(err, syscall.ENOSPC) || d.Err() == nil {
		t.Errorf("%v", err)
	}
	d.Drop()
	if left := entries(t, s); !slices.Equal(left, names) {
		t.Errorf("left: %v", left)
	}
	good(t, s, id, parts)
	put(t, s, map[string]string{"a": strings.Repeat("room again", 1000)})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// keeping is the argument of a child that keeps snapshots until it is killed.
const keeping = "keeping-until-killed"

func TestMain(m *testing.M) {
	if at := slices.Index(os.Args, keeping); at >= 0 {
		keepOn(os.Args[at+1])
	}
	os.Exit(m.Run())
}

// keepOn prints the ID of each snapshot when it is kept, and deletes each third.
func keepOn(dir string) {
	s, err := Open(dir)
	if err != nil {
		panic(err)
	}
	if _, err := s.Sweep(func(string) bool { return true }); err != nil {
		panic(err)
	}
	for n := 0; ; n++ {
		d := s.Begin(1 << 20)
		err := errors.Join(d.Put("a", strings.NewReader(strings.Repeat("a", n))), d.Put("b", strings.NewReader("same")))
		id, _, kerr := d.Keep(head(), box.NewID(), time.Now())
		if err := errors.Join(err, kerr); err != nil {
			panic(err)
		}
		d.Drop()
		if n%3 == 2 {
			if err := s.Delete(id); err != nil {
				panic(err)
			}
			continue
		}
		os.Stdout.WriteString(id + "\n")
	}
}

// toldOf is what a program has told, and whether it has told anything.
type toldOf struct {
	strings.Builder
	once  sync.Once
	first chan struct{}
}

func (w *toldOf) Write(p []byte) (int, error) {
	defer w.once.Do(func() { close(w.first) })
	return w.Builder.Write(p)
}

// Killed at any moment, it leaves each snapshot that was told as kept whole, and
// after the next start nothing else.
func TestAKillAtAnyMomentLeavesNoHalf(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "snapshots")
	told := map[string]bool{}
	for round := range 8 {
		out := &toldOf{first: make(chan struct{})}
		cmd := exec.Command("/proc/self/exe", keeping, dir)
		cmd.Env, cmd.Stdout, cmd.Stderr = []string{}, out, os.Stderr
		must(t, cmd.Start())
		if round >= 2 { // in the first two there may be none
			select {
			case <-out.first:
			case <-time.After(2 * time.Minute):
				t.Error("nothing is kept")
			}
		}
		time.Sleep(time.Duration(30+17*round) * time.Millisecond) // any moment will do
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()
		for id := range strings.Lines(out.String()) {
			if strings.HasSuffix(id, "\n") {
				told[strings.TrimSpace(id)] = true
			}
		}
		s := open(t, dir)
		if _, err := s.Sweep(func(id string) bool { return told[id] }); err != nil {
			t.Fatal(err)
		}
		needed := map[string]bool{}
		for id := range told {
			h, err := s.Open(t.Context(), id)
			must(t, err)
			for _, text := range texts(t, h) {
				needed[digest(text)] = true
			}
			h.Close()
		}
		if n := len(entries(t, s)); n != len(told)+len(needed) {
			t.Fatalf("round %d: %d files for %d snapshots of %d parts", round, n, len(told), len(needed))
		}
		s.Close()
	}
	t.Logf("%d snapshots kept in 8 rounds", len(told))
	if len(told) == 0 {
		t.Error("none was kept before the kill: this test judges nothing")
	}
}
