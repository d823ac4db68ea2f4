package image

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// An answer is given again only while everything that decided it is the same
// inode, unchanged.
func TestWhatAnImageWasMadeOfIsLookedAtAgain(t *testing.T) {
	s := newStore(t)
	img, err := s.Host(t.Context(), HostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	img.Close()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) { t.Helper(); must(os.WriteFile(name, []byte(text), 0o644)) }
	for what, change := range map[string]func(dir string){
		"contents":     func(d string) { write(d+"/file", "other") },
		"another file": func(d string) { write(d+"/new", "first"); must(os.Rename(d+"/new", d+"/file")) },
		"mode":         func(d string) { must(os.Chmod(d+"/file", 0o600)) },
		"times set back": func(d string) {
			write(d+"/file", "third")
			must(os.Chtimes(d+"/file", time.Unix(1, 0), time.Unix(1, 0)))
		},
		"a link's target":  func(d string) { write(d+"/target", "yy") },
		"a link elsewhere": func(d string) { must(os.Remove(d + "/link")); must(os.Symlink("file", d+"/link")) },
		"a name that ends": func(d string) { must(os.Remove(d + "/link")) },
		"a new name":       func(d string) { write(d+"/absent", "") },
		"a new name aside": func(d string) { write(d+"/unwatched", "") },
	} {
		dir := t.TempDir()
		write(dir+"/target", "x")
		write(dir+"/file", "first")
		must(os.Symlink("target", dir+"/link"))
		later := time.Now().Add(time.Hour) // all that is there changed long before
		s.remember(box.ImageHost, later, []string{dir, dir + "/file", dir + "/link", dir + "/absent"}, img.Digest)
		got, ok := s.again(t.Context(), box.ImageHost)
		if !ok {
			t.Fatalf("%s: nothing changed, and the answer is not given again", what)
		}
		got.Close()
		time.Sleep(20 * time.Millisecond) // more than the grain of a file's times
		change(dir)
		if got, ok := s.again(t.Context(), box.ImageHost); ok {
			got.Close()
			t.Errorf("%s: the change was not seen", what)
		}
	}
}

func TestAFreshChangeIsNotRemembered(t *testing.T) {
	s := newStore(t)
	img, err := s.Host(t.Context(), HostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	img.Close()
	if err := os.Remove(s.memoryFile(box.ImageHost)); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	looked := time.Now() // and no moment later, however slow the host is
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.remember(box.ImageHost, looked, []string{file}, img.Digest)
	if img, ok := s.again(t.Context(), box.ImageHost); ok {
		img.Close()
		t.Error("a file that changed this very moment was remembered")
	}
}

func TestWhatAnotherBootRememberedIsNotUsed(t *testing.T) {
	s := newStore(t)
	img, err := s.Host(t.Context(), HostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	img.Close()
	s.remember(box.ImageHost, time.Now().Add(time.Hour), []string{"/usr"}, img.Digest)
	other := &Store{dir: s.dir, boot: "another"}
	if img, ok := other.again(t.Context(), box.ImageHost); ok {
		img.Close()
		t.Error("it was used after a boot")
	}
	if img, ok := s.again(t.Context(), box.ImageBase); ok {
		img.Close()
		t.Error("it was used for another image")
	}
	if err := os.Chmod(s.memoryFile(box.ImageHost), 0o644); err != nil {
		t.Fatal(err)
	}
	if img, ok := s.again(t.Context(), box.ImageHost); ok {
		img.Close()
		t.Error("a memory that others can read was trusted")
	}
}
