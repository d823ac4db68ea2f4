package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
)

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func record(tenant string) box.Record {
	return box.Record{
		ID: box.NewID(), Tenant: tenant, Principal: "alice", Phase: box.PhaseCreated, Tier: box.TierGvisor, TierReason: "trust", Image: "host",
		Weak: []string{"cpu: no group"}, Spec: []byte(`{"a":1}`), State: []byte("s"), Detail: "d", Account: []byte("{}"), Metadata: map[string]string{"k": "v\n"},
		Created: time.UnixMilli(time.Now().UnixMilli()).UTC(), Ends: time.UnixMilli(9e12).UTC(),
	}
}

func add(t *testing.T, s *Store, r box.Record) box.Record {
	t.Helper()
	if err := s.Add(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestABoxIsKeptAsItIsAcrossOpenings(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	want := add(t, s, record("a"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := open(t, dir).Box(t.Context(), "a", want.ID)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\ngot  %+v\nwant %+v", err, got, want)
	}
}

func TestAnotherTenantsBoxIsNotFoundLikeOneThatNeverWas(t *testing.T) {
	s := open(t, t.TempDir())
	r := add(t, s, record("a"))
	never := box.NewID()
	for _, c := range []struct {
		tenant string
		id     box.ID
	}{{"b", r.ID}, {"a", never}, {"", r.ID}} {
		_, err := s.Box(t.Context(), c.tenant, c.id)
		if box.KindOf(err) != box.NotFound || err.Error() != "cannot find box "+string(c.id) {
			t.Errorf("%v: %v", c, err)
		}
	}
}

func TestChangesFollowTheTableAndOwnersStay(t *testing.T) {
	s := open(t, t.TempDir())
	r := add(t, s, record("a"))
	got, err := s.Change(t.Context(), r.ID, func(r *box.Record) error {
		r.Phase, r.Tenant, r.Created = box.PhaseRunning, "b", time.Time{}
		return nil
	})
	if err != nil || got.Phase != box.PhaseRunning || got.Tenant != "a" || !got.Created.Equal(r.Created) {
		t.Fatalf("%v, %+v", err, got)
	}
	if _, err := s.Change(t.Context(), r.ID, func(r *box.Record) error { r.Phase = box.PhaseDestroyed; return nil }); err == nil {
		t.Error("destroyed without a reason")
	}
	if _, err := s.Change(t.Context(), r.ID, func(r *box.Record) error {
		r.Phase, r.Reason, r.Destroyed = box.PhaseDestroyed, box.ReasonAsked, time.Now()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Change(t.Context(), r.ID, func(r *box.Record) error { r.Phase, r.Reason = box.PhaseRunning, ""; return nil }); box.KindOf(err) != box.NotFound {
		t.Errorf("a destroyed box runs again: %v", err)
	}
	mine := errors.New("mine")
	if _, err := s.Change(t.Context(), r.ID, func(r *box.Record) error { r.Image = "x"; return mine }); !errors.Is(err, mine) {
		t.Errorf("%v", err)
	}
	last, err := s.Box(t.Context(), "a", r.ID)
	if err != nil || last.Image != "host" || last.Reason != box.ReasonAsked {
		t.Errorf("%v, %+v", err, last)
	}
	if alive, err := s.Alive(t.Context()); err != nil || len(alive) != 0 {
		t.Errorf("%v, %v", err, alive)
	}
}

func TestListsGoOnWhereTheyStoppedAlsoWithinAMillisecond(t *testing.T) {
	s := open(t, t.TempDir())
	now := time.UnixMilli(1e12).UTC()
	want := map[box.ID]bool{}
	for i := range 25 {
		r := record("a")
		r.Created = now.Add(time.Duration(i/10) * time.Millisecond)
		want[add(t, s, r).ID] = true
		add(t, s, record("b"))
	}
	var at Place
	for pages := 0; ; pages++ {
		got, err := s.List(t.Context(), "a", false, at, 7)
		if err != nil || pages > 5 {
			t.Fatal(err, pages)
		}
		for _, r := range got {
			if !want[r.ID] {
				t.Errorf("%s twice, or another tenant's", r.ID)
			}
			delete(want, r.ID)
			at = Place{r.Created, r.ID}
		}
		if len(got) < 7 {
			break
		}
	}
	if len(want) != 0 {
		t.Errorf("%d are missing", len(want))
	}
}

func TestKeysAreKnownByTheirHashOnly(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	secret, err := s.NewKey(t.Context(), box.Key{Tenant: "a", Principal: "alice", Scopes: []box.Scope{"boxes", "files"}})
	if err != nil || len(secret) != 44 || !strings.HasPrefix(secret, "e2b_") {
		t.Fatal(secret, err)
	}
	k, err := s.FindKey(t.Context(), secret)
	if err != nil || k.Tenant != "a" || k.Principal != "alice" || !slices.Equal(k.Scopes, []box.Scope{"boxes", "files"}) {
		t.Fatalf("%v, %+v", err, k)
	}
	for _, bad := range []string{"", "e2b_", secret[:43], secret + "0", strings.ToUpper(secret), "e2b_" + strings.Repeat("0", 40), "' OR 1=1 --"} {
		if _, err := s.FindKey(t.Context(), bad); box.KindOf(err) != box.Denied {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if err := s.AddKey(t.Context(), secret, box.Key{Tenant: "b", Principal: "eve", Scopes: []box.Scope{"x"}}); err != nil {
		t.Fatal(err)
	}
	if k, err := s.FindKey(t.Context(), secret); err != nil || k.Tenant != "a" {
		t.Errorf("another tenant took the key over: %v, %+v", err, k)
	}
	if err := s.RevokeKey(t.Context(), "no such key"); box.KindOf(err) != box.NotFound {
		t.Errorf("another tenant's key: %v", err)
	}
	if err := s.RevokeKey(t.Context(), k.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.FindKey(t.Context(), secret); box.KindOf(err) != box.Denied {
		t.Errorf("a revoked key: %v", err)
	}
	s.Close()
	for _, f := range []string{fileName, fileName + "-wal"} {
		b, err := os.ReadFile(filepath.Join(dir, f))
		if err == nil && strings.Contains(string(b), secret[4:]) {
			t.Errorf("the key is in %s", f)
		}
	}
}

func TestTheSameRequestAgainIsTheSameBox(t *testing.T) {
	s := open(t, t.TempDir())
	claim := func(tenant, key, request string, id box.ID) (box.ID, bool, error) {
		return s.Claim(t.Context(), tenant, key, []byte(request), id)
	}
	a, b := box.NewID(), box.NewID()
	if got, first, err := claim("t", "k", "r", a); got != a || !first || err != nil {
		t.Fatal(got, first, err)
	}
	if got, first, err := claim("t", "k", "r", b); got != a || first || err != nil {
		t.Error(got, first, err)
	}
	if got, first, err := claim("u", "k", "r", b); got != b || !first || err != nil {
		t.Error("another tenant's key:", got, first, err)
	}
	if _, _, err := claim("t", "k", "other", b); box.KindOf(err) != box.Invalid {
		t.Error(err)
	}
	if err := s.Unclaim(t.Context(), "t", "k", a); err != nil {
		t.Fatal(err)
	}
	if got, first, err := claim("t", "k", "other", b); got != b || !first || err != nil {
		t.Error("after its release:", got, first, err)
	}
	// Many at once: one is first.
	var wg sync.WaitGroup
	firsts := make(chan box.ID, 20)
	for range 20 {
		wg.Go(func() {
			if id, first, err := claim("t", "many", "r", box.NewID()); err != nil {
				t.Error(err)
			} else if first {
				firsts <- id
			}
		})
	}
	wg.Wait()
	if len(firsts) != 1 {
		t.Errorf("%d were first", len(firsts))
	}
}

func TestASecondDaemonIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if _, err := Open(t.Context(), dir); box.KindOf(err) != box.Unusable || !strings.Contains(err.Error(), "another daemon") || !strings.Contains(err.Error(), "process "+strconv.Itoa(os.Getpid())) {
		t.Errorf("%v", err)
	}
	s.Close()
	open(t, dir)
}

// A daemon that was killed while it started something: that has its lock until it
// executes its program. The next daemon waits for it, and only for it.
func TestTheLockOfADeadDaemonIsWaitedFor(t *testing.T) {
	dir := t.TempDir()
	open(t, dir).Close()
	lock, err := host.Lock(filepath.Join(dir, "daemon"))
	if err != nil {
		t.Fatal(err)
	}
	dead := exec.Command("true")
	dead.Env = []string{}
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "daemon", pidName), fmt.Appendln(nil, dead.Process.Pid), 0o600); err != nil {
		t.Fatal(err)
	}
	const later = 200 * time.Millisecond
	begun := time.Now()
	time.AfterFunc(later, func() { lock.Close() })
	open(t, dir)
	if took := time.Since(begun); took < later {
		t.Errorf("it was opened after %v, while another had the lock", took)
	}
	begun = time.Now()
	if _, err := Open(t.Context(), dir); box.KindOf(err) != box.Unusable || time.Since(begun) >= ownTime { // it does not wait
		t.Errorf("of a daemon that lives: %v after %v", err, time.Since(begun))
	}
}

func TestADatabaseThatCannotBeTrustedIsRefusedAndLeft(t *testing.T) {
	whole := t.TempDir()
	s := open(t, whole)
	for range 200 {
		add(t, s, record("a"))
	}
	if _, err := s.db.Exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		t.Fatal(err)
	}
	s.Close()
	good, err := os.ReadFile(filepath.Join(whole, fileName))
	if err != nil {
		t.Fatal(err)
	}
	flipped := append([]byte(nil), good...)
	for i := len(flipped) / 3; i < len(flipped)*2/3; i += 97 {
		flipped[i] ^= 0xff
	}
	newer := t.TempDir()
	s = open(t, newer)
	if _, err := s.db.Exec("PRAGMA user_version = 999"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.db.Exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		t.Fatal(err)
	}
	s.Close()
	later, err := os.ReadFile(filepath.Join(newer, fileName))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		content []byte
		says    string
	}{
		"bytes changed": {flipped, "damaged"},
		"cut short":     {good[:len(good)/2], "damaged"},
		"no database":   {[]byte(strings.Repeat("hello", 3000)), "database"},
		"later version": {later, "later sunaba"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, fileName)
		if err := os.WriteFile(path, c.content, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(t.Context(), dir)
		if box.KindOf(err) != box.Unusable || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		if after, err := os.ReadFile(path); err != nil || string(after) != string(c.content) {
			t.Errorf("%s: it was changed (%v)", name, err)
		}
	}
}

// A row is there as soon as Add has returned, whatever happens to the process.
func TestRowsAreWrittenThrough(t *testing.T) {
	s := open(t, t.TempDir())
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1"} {
		var got string
		if err := s.db.QueryRow("PRAGMA " + pragma).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %s, not %s (%v)", pragma, got, want, err)
		}
	}
	var strict int
	if err := s.db.QueryRow("SELECT count(*) FROM pragma_table_list WHERE schema='main' AND type='table' AND name NOT LIKE 'sqlite%' AND strict=0").Scan(&strict); err != nil || strict != 0 {
		t.Errorf("%d tables take any type (%v)", strict, err)
	}
}

func TestAStateFolderWithAnyName(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a?b#c%20d e")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir)
	add(t, s, record("a"))
	if _, err := os.Stat(filepath.Join(dir, fileName)); err != nil {
		t.Error(err)
	}
}

func TestAChangeThatIsCanceledChangesNothing(t *testing.T) {
	s := open(t, t.TempDir())
	r := add(t, s, record("a"))
	ctx, cancel := context.WithCancel(t.Context())
	_, err := s.Change(ctx, r.ID, func(r *box.Record) error { r.Image = "x"; cancel(); return nil })
	got, gerr := s.Box(t.Context(), "a", r.ID)
	if err == nil || gerr != nil || got.Image != "host" {
		t.Errorf("%v, %v, image %s", err, gerr, got.Image)
	}
	if errors.Is(err, sql.ErrNoRows) {
		t.Error(err)
	}
}

func TestADatabaseThatIsGoneIsNoBeginning(t *testing.T) {
	for what, harm := range map[string]func(path string) error{
		"gone":  os.Remove,
		"empty": func(p string) error { return os.Truncate(p, 0) },
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			add(t, s, record("a"))
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, fileName)
			for _, more := range []string{"-wal", "-shm"} {
				os.Remove(path + more)
			}
			if err := harm(path); err != nil {
				t.Fatal(err)
			}
			_, err := Open(t.Context(), dir)
			if box.KindOf(err) != box.Unusable || !strings.Contains(err.Error(), "it is "+what) {
				t.Fatalf("%v", err)
			}
			// Whoever means it says so.
			if err := os.Remove(filepath.Join(dir, "daemon", markName)); err != nil {
				t.Fatal(err)
			}
			if all, err := open(t, dir).Alive(t.Context()); err != nil || len(all) != 0 {
				t.Errorf("%v, %v", err, all)
			}
		})
	}
}

// A disk that takes long for one change makes the others wait for their turn, and no
// clock of the database's (busy_timeout, ten seconds) ends that.
func TestWhoeverWritesWaitsForItsTurn(t *testing.T) {
	t.Parallel() // it mostly waits
	s := open(t, t.TempDir())
	first, second := add(t, s, record("a")), add(t, s, record("a"))
	begun, done := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := s.Change(context.Background(), first.ID, func(r *box.Record) error {
			close(begun)
			time.Sleep(11 * time.Second)
			return nil
		})
		done <- err
	}()
	<-begun
	if _, err := s.Change(t.Context(), second.ID, func(r *box.Record) error { r.Image = "x"; return nil }); err != nil {
		t.Errorf("behind a slow one: %v", err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if r, err := s.Box(t.Context(), "a", second.ID); err != nil || r.Image != "x" {
		t.Errorf("%+v, %v", r, err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	s.writing <- struct{}{} // somebody writes
	if _, err := s.Change(gone, first.ID, func(*box.Record) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("of one who left: %v", err)
	}
	<-s.writing
}

// A key that was answered for is there after a loss of power; a box is not.
func TestOnlyRowsOfBoxesAreNotWrittenThrough(t *testing.T) {
	s := open(t, t.TempDir())
	for want, db := range map[int]*sql.DB{2: s.db, 1: s.boxes} {
		var got int
		if err := db.QueryRow("PRAGMA synchronous").Scan(&got); err != nil || got != want {
			t.Errorf("synchronous is %d, %v, not %d", got, err, want)
		}
	}
	r := record("a")
	add(t, s, r)
	if got, err := s.Box(t.Context(), r.Tenant, r.ID); err != nil || got.ID != r.ID {
		t.Errorf("a row written by one connection, read by another: %+v, %v", got, err)
	}
}
