package volume

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/blockfs"
)

const size = 8 << 20

func newStore(t *testing.T) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "volumes"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// volume makes one that a row would know.
func volume(t *testing.T, s *Store) string {
	t.Helper()
	file := NewFile()
	if err := errors.Join(s.Make(file, size), s.Name(file)); err != nil {
		t.Fatal(err)
	}
	return file
}

func (s *Store) names(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func brief(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func TestOneWritesOrManyReadAVolume(t *testing.T) {
	s := newStore(t)
	file := volume(t, s)
	take := func(readOnly bool) *os.File {
		t.Helper()
		f, err := s.Take(t.Context(), file, size, readOnly)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	refused := func(readOnly bool) {
		t.Helper()
		if f, err := s.Take(brief(t), file, size, readOnly); err == nil {
			f.Close()
			t.Error("another got it")
		}
	}
	w := take(false)
	refused(false)
	refused(true)
	w.Close()
	one, two := take(true), take(true)
	refused(false)
	one.Close()
	refused(false)
	two.Close()
	// Whoever lets it go a moment later is waited for.
	w = take(false)
	time.AfterFunc(100*time.Millisecond, func() { w.Close() })
	take(false).Close()
}

func TestAFileThatIsNoVolumeIsNotHandedOut(t *testing.T) {
	s := newStore(t)
	for what, damage := range map[string]func(name string) error{
		"gone":    os.Remove,
		"empty":   func(name string) error { return os.Truncate(name, 0) },
		"shorter": func(name string) error { return os.Truncate(name, size) },
		"other bytes": func(name string) error {
			return os.WriteFile(name, []byte(strings.Repeat("x", 4096)), 0o600)
		},
		"a link": func(name string) error {
			return errors.Join(os.Rename(name, name+"x"), os.Symlink(name+"x", name))
		},
	} {
		file := volume(t, s)
		if err := damage(filepath.Join(s.dir, file)); err != nil {
			t.Fatal(err)
		}
		for _, readOnly := range []bool{false, true} {
			f, err := s.Take(t.Context(), file, size, readOnly)
			if err == nil {
				f.Close()
				t.Errorf("%s: it is handed out", what)
			} else if box.KindOf(err) != box.Unusable && what != "a link" {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	// The size is the row's to say, and a name is one of ours.
	if f, err := s.Take(t.Context(), volume(t, s), 2*size, false); box.KindOf(err) != box.Unusable {
		t.Error(f, err)
	}
	for _, name := range []string{"", "..", "../" + NewFile(), NewFile() + "/x", strings.Repeat("a", 5000), NewFile()[1:] + "\x00"} {
		if f, err := s.Take(t.Context(), name, size, false); err == nil {
			t.Error(f.Name())
		}
		if err := s.Make(name, size); err == nil {
			t.Errorf("%.40q is made", name)
		}
		if err := s.Remove(name); err == nil {
			t.Errorf("%.40q is removed", name)
		}
	}
}

func TestWhatCannotBeMadeLeavesNothing(t *testing.T) {
	s := newStore(t)
	for _, bytes := range []int64{-1, 0, blockfs.VolumeMin - 1, blockfs.VolumeMax + 1, blockfs.VolumeMax} {
		err := s.Make(NewFile(), bytes)
		want := box.Invalid
		if bytes == blockfs.VolumeMax {
			want = box.Exhausted // unless this disk has 8 TiB
		}
		if err == nil || box.KindOf(err) != want {
			t.Errorf("%d: %v", bytes, err)
		}
	}
	if left := s.names(t); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Every state that a crash can leave, by a row or without one.
func TestAStartPutsRightWhatACrashLeft(t *testing.T) {
	s := newStore(t)
	rows := map[string]bool{}
	var want, removed []string
	for _, suffix := range []string{made, "", gone} {
		for _, known := range []bool{true, false} {
			file := volume(t, s)
			if err := os.Rename(filepath.Join(s.dir, file), filepath.Join(s.dir, file+suffix)); err != nil {
				t.Fatal(err)
			}
			rows[file] = known
			if known || suffix == "" {
				want = append(want, file)
			} else {
				removed = append(removed, file+suffix)
			}
		}
	}
	stranger := want[2] // it has no row, and was somebody's once
	if err := os.WriteFile(filepath.Join(s.dir, "notes.new"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want = append(want, "notes.new")
	gotRemoved, strange, err := s.Sweep(func(file string) bool { return rows[file] })
	slices.Sort(want)
	slices.Sort(removed)
	slices.Sort(strange)
	if err != nil || !slices.Equal(gotRemoved, removed) || !slices.Equal(s.names(t), want) {
		t.Errorf("removed %v, want %v; there are %v, want %v; %v", gotRemoved, removed, s.names(t), want, err)
	}
	if all := []string{stranger, "notes.new"}; !slices.Contains(strange, stranger) || len(strange) != len(all) {
		t.Errorf("strange are %v", strange)
	}
	for file, known := range rows {
		if known {
			f, err := s.Take(t.Context(), file, size, false)
			if err != nil {
				t.Error(err)
				continue
			}
			f.Close()
		}
	}
}

func TestADeletionCanBeUndoneUntilItsRowIsGone(t *testing.T) {
	s := newStore(t)
	file := volume(t, s)
	if err := s.Doom(file); err != nil {
		t.Fatal(err)
	}
	if f, err := s.Take(t.Context(), file, size, false); err == nil {
		t.Error(f.Name(), "is handed out while it is being deleted")
	}
	if err := s.Spare(file); err != nil {
		t.Fatal(err)
	}
	f, err := s.Take(t.Context(), file, size, false)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := errors.Join(s.Doom(file), s.Remove(file), s.Remove(file)); err != nil {
		t.Error(err)
	}
	if left := s.names(t); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestTheFolderIsOneProcessAloneAndItsUsers(t *testing.T) {
	s := newStore(t)
	if other, err := Open(s.dir); box.KindOf(err) != box.Unusable {
		t.Error(other, err)
	}
	open := t.TempDir()
	if err := os.Chmod(open, 0o755); err != nil {
		t.Fatal(err)
	}
	if other, err := Open(open); box.KindOf(err) != box.Unusable {
		t.Error(other, err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(s.dir, link); err != nil {
		t.Fatal(err)
	}
	if other, err := Open(link); box.KindOf(err) != box.Unusable {
		t.Error(other, err)
	}
}

// takeInTime is Take for what somebody has who lets it go, however long a loaded host
// takes for that.
func takeInTime(t *testing.T, s *Store, file string, readOnly bool) (f *os.File, err error) {
	for end := time.Now().Add(time.Minute); ; {
		f, err = s.Take(t.Context(), file, size, readOnly)
		if box.KindOf(err) != box.Conflict || time.Now().After(end) {
			return f, err
		}
	}
}

func TestAVolumeOfAHostThatStoppedIsMadeWholeBeforeItIsRead(t *testing.T) {
	if !host.IsRoot() {
		t.Skip("mounting needs root")
	}
	s := newStore(t)
	file := volume(t, s)
	w, err := s.Take(t.Context(), file, size, false)
	if err != nil {
		t.Fatal(err)
	}
	mnt, _, err := blockfs.MountVolume(w, s.dir, false, 1000, 1000)
	if err != nil {
		t.Fatal(err)
	}
	// What is on the disk now is what a crash would leave.
	crashed := NewFile()
	c, err := os.OpenFile(filepath.Join(s.dir, crashed), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(c, io.NewSectionReader(w, 0, 1<<40)); err != nil {
		t.Fatal(err)
	}
	if replay, err := blockfs.CheckVolume(c, size); err != nil || !replay {
		t.Fatalf("%v, %v", replay, err)
	}
	c.Close()
	mnt.Close()
	w.Close()
	for end := time.Now().Add(time.Minute); ; {
		err := s.Settle(t.Context(), file)
		if err == nil {
			break
		}
		if box.KindOf(err) != box.Conflict || time.Now().After(end) { // a loaded host takes longer
			t.Fatal(err)
		}
	}
	// Two at once: one of them makes it whole.
	got := make(chan error, 2)
	for range 2 {
		go func() {
			f, err := takeInTime(t, s, crashed, true)
			if err == nil {
				var m *os.File
				if m, _, err = blockfs.MountVolume(f, s.dir, true, 1000, 1000); err == nil {
					m.Close()
				}
				f.Close()
			}
			got <- err
		}()
	}
	for range 2 {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
	f, err := takeInTime(t, s, crashed, false) // the readers' mounts may have to be taken down still
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if replay, err := blockfs.CheckVolume(f, size); err != nil || replay {
		t.Errorf("%v, %v", replay, err)
	}
}
