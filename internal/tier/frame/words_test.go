package frame

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/wire"
)

// The run folder is the box's user's: of what is in it nothing is read but a file of
// that user's, and of that only so much, as text.
func TestLastWordsAreAFileOfTheBoxsUserAndNothingElse(t *testing.T) {
	s := &Site{State: t.TempDir()}
	id := box.NewID()
	run := filepath.Join(s.homeOf(id), runName)
	if err := os.MkdirAll(run, 0o755); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(t.TempDir(), "secret")
	write := func(name, text string, owned bool) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if uid, gid := s.HostUser(id); owned && uid != os.Getuid() {
			if err := os.Chown(name, uid, gid); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(secret, "a secret", true)
	name := filepath.Join(run, wire.EndingFile)
	try := func(what, want string, put func() error) {
		t.Helper()
		if err := os.RemoveAll(name); err != nil {
			t.Fatal(err)
		}
		if err := put(); err != nil {
			t.Fatal(err)
		}
		if got := s.leftWords(id); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	try("nothing", "", func() error { return nil })
	try("words", `the agent ended`, func() error { write(name, "the agent ended", true); return nil })
	try("a terminal's", `a\x1b[2Jb`, func() error { write(name, "a\x1b[2Jb", true); return nil })
	try("many", strings.Repeat("x", wordsBytes), func() error { write(name, strings.Repeat("x", 9999), true); return nil })
	try("a link", "", func() error { return os.Symlink(secret, name) })
	try("a second name", "", func() error { return os.Link(secret, name) })
	try("a folder", "", func() error { return os.Mkdir(name, 0o755) })
	if uid, _ := s.HostUser(id); uid != os.Getuid() {
		try("somebody else's", "", func() error { write(name, "a secret", false); return nil })
	}
}
