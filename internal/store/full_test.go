package store

import (
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
)

func TestAFullDiskIsNobodysFaultAndPasses(t *testing.T) {
	s := open(t, t.TempDir())
	s.db.SetMaxOpenConns(1) // the bound is a connection's own
	if _, err := s.db.Exec("PRAGMA max_page_count = 1"); err != nil {
		t.Fatal(err)
	}
	big := record("a")
	big.Spec = []byte(strings.Repeat("x", 1<<20))
	if err := s.Add(t.Context(), big); box.KindOf(err) != box.Unavailable || !strings.Contains(err.Error(), "disk") {
		t.Errorf("%v", err)
	}
	if _, err := s.db.Exec("PRAGMA max_page_count = 100000"); err != nil {
		t.Fatal(err)
	}
	add(t, s, big)
}
