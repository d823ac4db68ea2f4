package wire

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Whoever reads a box's last words finds a panic of its first process there.
func TestAPanicIsAmongTheLastWords(t *testing.T) {
	const child = "SUNABA_TEST_WORDS"
	if dir := os.Getenv(child); dir != "" {
		s := &Server{}
		if err := s.KeepWords(dir); err != nil {
			t.Fatal(err)
		}
		go panic("oh dear") // not the test's goroutine, which would recover it
		select {}
	}
	dir := t.TempDir()
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	cmd.Env = []string{child + "=" + dir}
	if err := cmd.Run(); err == nil {
		t.Fatal("it did not panic")
	}
	b, err := os.ReadFile(filepath.Join(dir, EndingFile))
	if err != nil || !strings.HasPrefix(string(b), "panic: oh dear") || !strings.Contains(string(b), "goroutine ") {
		t.Errorf("%v: %.200q", err, b)
	}
	if err := (&Server{}).KeepWords(dir); err == nil {
		t.Error("words of another life are written over")
	}
}
