package engine

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/store"
	"github.com/sunaba-dev/sunaba/internal/volume"
)

const mib = 1 << 20

func newVolumeBench(t *testing.T) *bench {
	t.Helper()
	if !host.IsRoot() {
		t.Skip("see TestAnOrdinaryUsersServiceHasNoVolumes")
	}
	return newBench(t, nil)
}

func (b *bench) volume(name string, bytes int64) box.VolumeInfo {
	b.t.Helper()
	i, err := b.CreateVolume(b.t.Context(), alice(), name, bytes)
	if err != nil {
		b.t.Fatal(err)
	}
	return i
}

// has is a request for a box with volumes: name, and name:ro for reading.
func has(names ...string) box.CreateRequest {
	var all []map[string]any
	for _, n := range names {
		name, ro := strings.CutSuffix(n, ":ro")
		all = append(all, map[string]any{"name": name, "container": "/vol/" + name, "read_only": ro})
	}
	raw, err := json.Marshal(map[string]any{"volumes": all})
	if err != nil {
		panic(err)
	}
	return box.CreateRequest{Sandbox: raw}
}

func (b *bench) inspect(name string) box.VolumeInfo {
	b.t.Helper()
	i, err := b.InspectVolume(b.t.Context(), alice(), name)
	if err != nil {
		b.t.Fatal(err)
	}
	return i
}

func (b *bench) volumeFiles() []string {
	b.t.Helper()
	e, err := os.ReadDir(filepath.Join(b.dir, "volumes"))
	if err != nil {
		b.t.Fatal(err)
	}
	out := []string{}
	for _, f := range e {
		out = append(out, f.Name())
	}
	return out
}

func TestAVolumeIsMadeToldOfAndDeleted(t *testing.T) {
	b := newVolumeBench(t)
	i := b.volume("data", 4*mib)
	if i.Name != "data" || i.Bytes != 4*mib || i.Used < 4*mib || len(i.Boxes) != 0 || i.Created.IsZero() {
		t.Errorf("%+v", i)
	}
	if again := b.volume("data", 4*mib); !reflect.DeepEqual(again, i) {
		t.Errorf("asked for again: %+v", again)
	}
	b.volume("a", 2*mib)
	all, err := b.Volumes(t.Context(), alice())
	if err != nil || len(all) != 2 || all[0].Name != "a" || !reflect.DeepEqual(all[1], i) {
		t.Errorf("%+v, %v", all, err)
	}
	for what, c := range map[string]struct {
		name  string
		bytes int64
		want  box.Kind
	}{
		"another size": {"data", 5 * mib, box.Conflict},
		"no size":      {"b", 0, box.Invalid},
		"small":        {"b", mib - 1, box.Invalid},
		"a path":       {"../x", mib, box.Invalid},
		"a zero byte":  {"a\x00", mib, box.Invalid},
		"long":         {strings.Repeat("a", 65), mib, box.Invalid},
		"too much":     {"b", 27 * mib, box.Exhausted},
	} {
		if _, err := b.CreateVolume(t.Context(), alice(), c.name, c.bytes); err == nil || box.KindOf(err) != c.want {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n := len(b.volumeFiles()); n != 2 {
		t.Errorf("%d files", n)
	}
	b.again()
	if after := b.inspect("data"); !reflect.DeepEqual(after, i) {
		t.Errorf("after a restart %+v", after)
	}
	for _, name := range []string{"data", "a"} {
		if err := b.DeleteVolume(t.Context(), alice(), name); err != nil {
			t.Error(err)
		}
	}
	if err := b.DeleteVolume(t.Context(), alice(), "data"); box.KindOf(err) != box.NotFound {
		t.Error(err)
	}
	if left := b.volumeFiles(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestVolumesAreTheirTenantsAlone(t *testing.T) {
	b := newVolumeBench(t)
	b.volume("data", mib)
	reader := b.make(has("data:ro"))
	eve := box.Caller{Tenant: "b", Principal: "eve", Scopes: box.Scopes()}
	for what, ask := range map[string]func(name string) error{
		"inspect": func(name string) error { _, err := b.InspectVolume(t.Context(), eve, name); return err },
		"delete":  func(name string) error { return b.DeleteVolume(t.Context(), eve, name) },
		"use":     func(name string) error { _, err := b.Create(t.Context(), eve, has(name)); return err },
		"read":    func(name string) error { _, err := b.Create(t.Context(), eve, has(name+":ro")); return err },
		"execute": func(name string) error {
			_, err := b.Execute(t.Context(), eve, box.ExecuteRequest{Sandbox: has(name).Sandbox, Argv: []string{"true"}})
			return err
		},
	} {
		theirs, none := ask("data"), ask("none")
		if box.KindOf(theirs) != box.NotFound || none == nil || strings.ReplaceAll(theirs.Error(), "data", "none") != none.Error() {
			t.Errorf("%s: %v, %v", what, theirs, none)
		}
	}
	// One of the same name is another one.
	if _, err := b.CreateVolume(t.Context(), eve, "data", 2*mib); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Create(t.Context(), eve, has("data")); err != nil {
		t.Error(err)
	}
	if i := b.inspect("data"); i.Bytes != mib || !slices.Equal(i.Boxes, []box.ID{reader.ID}) {
		t.Errorf("%+v", i)
	}
	all, err := b.Volumes(t.Context(), eve)
	if err != nil || len(all) != 1 || all[0].Bytes != 2*mib {
		t.Errorf("%+v, %v", all, err)
	}
	for _, scope := range box.Scopes() {
		c := box.Caller{Tenant: "a", Principal: "p", Scopes: []box.Scope{scope}}
		_, lerr := b.Volumes(t.Context(), c)
		_, merr := b.CreateVolume(t.Context(), c, "new", mib)
		derr := b.DeleteVolume(t.Context(), c, "new")
		read, write := scope == box.ScopeRead || scope == box.ScopeAdmin, scope == box.ScopeWrite || scope == box.ScopeAdmin
		if (box.KindOf(lerr) != box.Denied) != read || (box.KindOf(merr) != box.Denied) != write || (box.KindOf(derr) != box.Denied) != write {
			t.Errorf("%s: %v, %v, %v", scope, lerr, merr, derr)
		}
	}
}

func TestOneBoxWritesOrManyReadAVolume(t *testing.T) {
	b := newVolumeBench(t)
	b.volume("data", mib)
	b.volume("more", mib)
	w := b.make(has("data", "more:ro"))
	refused := func(req box.CreateRequest, by ...box.ID) {
		t.Helper()
		boxes := b.tier.count()
		i, err := b.Create(t.Context(), alice(), req)
		if box.KindOf(err) != box.Conflict {
			t.Fatalf("%+v, %v", i, err)
		}
		for _, id := range by {
			if !strings.Contains(err.Error(), string(id)) {
				t.Errorf("it does not name box %s: %v", id, err)
			}
		}
		if _, err := b.Execute(t.Context(), alice(), box.ExecuteRequest{Sandbox: req.Sandbox, Argv: []string{"true"}}); box.KindOf(err) != box.Conflict {
			t.Errorf("a run: %v", err)
		}
		if b.tier.count() != boxes {
			t.Error("there is a box")
		}
	}
	refused(has("data"), w.ID)
	refused(has("data:ro"), w.ID)
	refused(has("more"), w.ID)
	refused(has("more:ro", "data"), w.ID)
	r := b.make(has("more:ro"))
	refused(has("more"), w.ID, r.ID)
	if i := b.inspect("more"); len(i.Boxes) != 2 || !slices.Contains(i.Boxes, r.ID) {
		t.Errorf("%+v", i)
	}
	for _, name := range []string{"data", "more"} {
		if err := b.DeleteVolume(t.Context(), alice(), name); box.KindOf(err) != box.Conflict || !strings.Contains(err.Error(), string(w.ID)) {
			t.Errorf("deleted while it is used: %v", err)
		}
	}
	// The policy of the box says it, and so does a later daemon.
	b.again()
	i, err := b.Inspect(t.Context(), alice(), w.ID)
	want := []box.Volume{{Name: "data", Target: "/vol/data"}, {Name: "more", Target: "/vol/more", ReadOnly: true}}
	if err != nil || !reflect.DeepEqual(i.Policy.Volumes, want) {
		t.Errorf("%+v, %v", i.Policy.Volumes, err)
	}
	refused(has("data"), w.ID)
	refused(has("more"), w.ID, r.ID)
	// Its end gives them back, whoever ended it.
	if err := b.Destroy(t.Context(), alice(), w.ID); err != nil {
		t.Fatal(err)
	}
	w = b.make(has("data"))
	delete(b.tier.boxes, r.ID) // it died with the host
	b.host(w.ID).unmount()
	delete(b.tier.boxes, w.ID)
	b.again()
	b.make(has("data"))
	if i := b.inspect("more"); len(i.Boxes) != 0 {
		t.Errorf("%+v", i)
	}
}

// Who comes first is decided once.
func TestOfManyWritersAtOnceOneGetsAVolume(t *testing.T) {
	b := newVolumeBench(t)
	b.volume("data", mib)
	var all sync.WaitGroup
	var mu sync.Mutex
	made := 0
	for range 8 {
		all.Go(func() {
			_, err := b.Create(t.Context(), alice(), has("data"))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				made++
			case box.KindOf(err) != box.Conflict:
				t.Error(err)
			}
		})
	}
	all.Wait()
	if made != 1 || b.tier.count() != 1 {
		t.Errorf("%d boxes write, %d are there", made, b.tier.count())
	}
}

func TestATenantsShareOfVolumesHoldsForManyAtOnce(t *testing.T) {
	b := newVolumeBench(t)
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			if _, err := b.CreateVolume(t.Context(), alice(), "v"+string(rune('a'+i)), mib); err != nil && box.KindOf(err) != box.Exhausted {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if rows, err := b.Volumes(t.Context(), alice()); err != nil || len(rows) != b.conf.MaxVolumes || len(b.volumeFiles()) != len(rows) {
		t.Errorf("%d volumes, %d files, %v", len(rows), len(b.volumeFiles()), err)
	}
}

// A box of the pool was made for nobody, and so without anybody's volume.
func TestABoxWithAVolumeIsMadeAnewAndSaysWhy(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Warm = 2 })
	if !host.IsRoot() {
		t.Skip("see TestAnOrdinaryUsersServiceHasNoVolumes")
	}
	b.volume("data", mib)
	req := has("data")
	req.Sandbox = append([]byte(`{"lifecycle":{"reuse":true},`), req.Sandbox[1:]...)
	i := b.make(req)
	if i.Start != box.StartCold || i.StartReason != "the box has volumes" {
		t.Errorf("%s, %q", i.Start, i.StartReason)
	}
	_, err := Start(t.Context(), Config{Engine: b.conf.Engine, Store: b.st, Gate: b.conf.Gate, Parse: b.conf.Parse, Log: b.conf.Log,
		Templates: []Template{{Name: "t", Sandbox: has("data").Sandbox}}})
	if box.KindOf(err) != box.Invalid || !strings.Contains(err.Error(), "the box has volumes") {
		t.Errorf("a template with a volume: %v", err)
	}
}

func TestABoxThatCannotBeMadeKeepsNoVolume(t *testing.T) {
	b := newVolumeBench(t)
	b.volume("data", mib)
	b.tier.create = func(s box.Spec) error {
		if len(s.Volumes) != 1 || s.Volumes[0].Image == nil || !host.Locked(s.Volumes[0].Image.Name()) {
			t.Errorf("the tier gets %+v", s.Volumes)
		}
		return errors.New("cannot make it")
	}
	if _, err := b.Create(t.Context(), alice(), has("data")); err == nil {
		t.Error("made")
	}
	if _, err := b.Execute(t.Context(), alice(), box.ExecuteRequest{Sandbox: has("data").Sandbox, Argv: []string{"true"}}); err == nil {
		t.Error("run")
	}
	b.tier.create = nil
	if _, err := b.Create(t.Context(), alice(), has("data", "none")); box.KindOf(err) != box.NotFound {
		t.Error(err)
	}
	if i := b.inspect("data"); len(i.Boxes) != 0 {
		t.Errorf("%+v", i)
	}
	rep, err := b.Execute(t.Context(), alice(), box.ExecuteRequest{Sandbox: has("data").Sandbox, Argv: []string{"true"}})
	if err != nil || rep.Cause != box.Exited {
		t.Errorf("%+v, %v", rep, err)
	}
	b.make(has("data"))
}

// A lock that nobody here knows of is held all the same.
func TestAVolumeThatSomethingElseHasIsRefused(t *testing.T) {
	b := newVolumeBench(t)
	b.volume("data", mib)
	row, err := b.st.Volume(t.Context(), "a", "data")
	if err != nil {
		t.Fatal(err)
	}
	f, err := b.conf.Volumes.Take(t.Context(), row.File, row.Bytes, false)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 2)
	go func() { _, err := b.Create(t.Context(), alice(), has("data")); got <- err }()
	if err := <-got; box.KindOf(err) != box.Conflict || !strings.Contains(err.Error(), `volume "data"`) {
		t.Error(err)
	}
	if err := b.DeleteVolume(t.Context(), alice(), "data"); box.KindOf(err) != box.Conflict {
		t.Error(err)
	}
	f.Close()
	b.make(has("data"))
}

// A box that is made from a copy of a box's files has that box's volumes, as they
// are then: so not while that box has them.
func TestABoxMadeFromACopyHasTheVolumes(t *testing.T) {
	b := newVolumeBench(t)
	b.volume("data", mib)
	w := b.holding("text", has("data"))
	s := b.snap(w.ID, box.SnapshotRequest{Name: "s"})
	from := box.CreateRequest{Snapshot: s.ID}
	if _, err := b.Create(t.Context(), alice(), from); box.KindOf(err) != box.Conflict || !strings.Contains(err.Error(), string(w.ID)) {
		t.Error(err)
	}
	if err := b.Destroy(t.Context(), alice(), w.ID); err != nil {
		t.Fatal(err)
	}
	two := b.make(from)
	if i := b.inspect("data"); !slices.Equal(i.Boxes, []box.ID{two.ID}) {
		t.Errorf("%+v", i)
	}
	if err := b.Destroy(t.Context(), alice(), two.ID); err != nil {
		t.Fatal(err)
	}
	if err := b.DeleteVolume(t.Context(), alice(), "data"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Create(t.Context(), alice(), from); box.KindOf(err) != box.NotFound {
		t.Errorf("without its volume: %v", err)
	}
}

func TestAVolumeWhoseFileIsGoneOrDamagedSaysSo(t *testing.T) {
	b := newVolumeBench(t)
	for _, name := range []string{"gone", "damaged"} {
		b.volume(name, mib)
		row, err := b.st.Volume(t.Context(), "a", name)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(b.dir, "volumes", row.File)
		if name == "gone" {
			err = os.Remove(file)
		} else {
			err = os.Truncate(file, 4096)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Create(t.Context(), alice(), has(name)); box.KindOf(err) != box.Unusable || !strings.Contains(err.Error(), `volume "`+name+`"`) {
			t.Error(err)
		}
		if err := b.DeleteVolume(t.Context(), alice(), name); err != nil {
			t.Error(err)
		}
	}
	if left := b.volumeFiles(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Whatever moment a crash comes at, the next start has volumes with files and no
// others; a file that was somebody's is never removed.
func TestAStartHoldsFilesAgainstRowsOfVolumes(t *testing.T) {
	b := newVolumeBench(t)
	b.volume("kept", mib)
	place := b.conf.Volumes
	row := func(name string) store.Volume {
		return store.Volume{Tenant: "a", Name: name, Principal: "p", File: volume.NewFile(), Bytes: mib, Created: now()}
	}
	added := row("added") // its row, before its file's name
	if err := errors.Join(place.Make(added.File, mib), b.st.AddVolume(t.Context(), added, 0, 0)); err != nil {
		t.Fatal(err)
	}
	doomed := row("doomed") // its file's name gone, before its row
	if err := errors.Join(place.Make(doomed.File, mib), place.Name(doomed.File), b.st.AddVolume(t.Context(), doomed, 0, 0), place.Doom(doomed.File)); err != nil {
		t.Fatal(err)
	}
	unmade, forgotten, stranger := volume.NewFile(), volume.NewFile(), volume.NewFile()
	if err := errors.Join(place.Make(unmade, mib), place.Make(forgotten, mib), place.Name(forgotten), place.Doom(forgotten), place.Make(stranger, mib), place.Name(stranger)); err != nil {
		t.Fatal(err)
	}
	b.again()
	all, err := b.Volumes(t.Context(), alice())
	if err != nil || len(all) != 3 {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, v := range all {
		b.make(has(v.Name))
	}
	if files := b.volumeFiles(); len(files) != 4 || !slices.Contains(files, stranger) {
		t.Errorf("%v", files)
	}
}

func TestAnOrdinaryUsersServiceHasNoVolumes(t *testing.T) {
	if host.IsRoot() {
		b := newBench(t, nil) // one without a place for them, as an MCP session's
		b.Service.cfg.Volumes = nil
		if _, err := b.Volumes(t.Context(), alice()); box.KindOf(err) != box.Unsupported {
			t.Error(err)
		}
		if _, err := b.Create(t.Context(), alice(), has("data")); box.KindOf(err) != box.Unsupported {
			t.Error(err)
		}
		return
	}
	b := newBench(t, nil)
	if _, err := b.CreateVolume(t.Context(), alice(), "data", mib); box.KindOf(err) != box.Unsupported || !strings.Contains(err.Error(), "loop device") {
		t.Error(err)
	}
	if _, err := b.Create(t.Context(), alice(), has("data")); box.KindOf(err) != box.Unsupported {
		t.Error(err)
	}
}
