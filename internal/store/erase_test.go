package store

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
)

// What was in the environment of a box, or in a snapshot's row, can have been a key.
func TestWhatARowLostIsNotInTheFile(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	secret := []byte("the-canary-of-an-environment")
	holds := func() bool {
		t.Helper()
		if _, err := s.db.Exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, fileName))
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Contains(b, secret)
	}
	var ids []box.ID
	for n := range 20 {
		r := record("a")
		r.Spec = bytes.Repeat(secret, 1+20*n) // of some a page, of others several
		add(t, s, r)
		ids = append(ids, r.ID)
		snap := snapshotRow("a", "", n)
		snap.Sandbox = r.Spec
		if err := s.AddSnapshot(t.Context(), snap, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	if !holds() {
		t.Fatal("it was never there: this test would find nothing")
	}
	for n, id := range ids {
		if _, err := s.Change(t.Context(), id, func(r *box.Record) error { r.Spec = []byte("{}"); return nil }); err != nil {
			t.Fatal(err)
		}
		if _, err := s.ForgetSnapshot(t.Context(), "a", snapshotRow("a", "", n).ID); err != nil {
			t.Fatal(err)
		}
	}
	if holds() {
		t.Error("it is in the file still")
	}
}
