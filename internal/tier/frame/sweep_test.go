package frame

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
)

func TestSweepRemovesOnlyWhatNobodyHolds(t *testing.T) {
	state := t.TempDir()
	site := &Site{State: state}
	if err := os.Mkdir(site.RunDir(), 0o711); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	add := func(age time.Time) (box.ID, string) {
		t.Helper()
		id := box.NewID()
		dir := filepath.Join(site.RunDir(), string(id))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "f"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(dir, age, age); err != nil {
			t.Fatal(err)
		}
		return id, dir
	}
	dead, deadDir := add(old)
	_, held := add(old)
	lock, err := host.Lock(held)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	_, young := add(time.Now())
	kept, keptDir := add(old)
	foreign := filepath.Join(site.RunDir(), "not-a-box")
	if err := os.Mkdir(foreign, 0o700); err != nil {
		t.Fatal(err)
	}
	gone, err := site.Sweep(context.Background(), func(id box.ID) bool { return id == kept })
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(gone, []box.ID{dead}) {
		t.Errorf("swept %v, want only %v", gone, dead)
	}
	if _, err := os.Stat(deadDir); !os.IsNotExist(err) {
		t.Error("the dead box's folder is still there")
	}
	for _, d := range []string{held, young, keptDir, foreign} {
		if _, err := os.Stat(d); err != nil {
			t.Errorf("%s was swept", d)
		}
	}
}
