package guest_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

func TestFilesGoInAndOutAsTheyAre(t *testing.T) {
	g, dir := real(t)
	ctx := t.Context()
	content := make([]byte, 3<<20)
	for i := range content {
		content[i] = byte(i * i >> 7)
	}
	name := dir + "/a folder\n\xff/new\tfile"
	e, err := g.Write(ctx, name, box.WriteOptions{Parents: true, Mode: 0o640}, bytes.NewReader(content))
	if err != nil || e.Path != name || e.Size != int64(len(content)) || e.Mode != 0o640 || e.Kind != box.KindFile {
		t.Fatalf("Write gave %+v (%v)", e, err)
	}
	e, r, err := g.Read(ctx, name, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err != nil || sha256.Sum256(got) != sha256.Sum256(content) {
		t.Errorf("it reads as %d bytes (%v)", len(got), err)
	}
	r.Close()
	if _, r, err = g.Read(ctx, name, 1000, 70_000); err != nil {
		t.Fatal(err)
	}
	got, err = io.ReadAll(r)
	if err != nil || !bytes.Equal(got, content[1000:71_000]) {
		t.Errorf("a part of it reads as %d bytes (%v)", len(got), err)
	}
	r.Close()
	if _, _, err := g.Read(ctx, "/proc/self/mem", 0, 10); err == nil {
		t.Error("an error of the first piece is not one of the call")
	}
	if _, r, err = g.Read(ctx, name, 5<<20, 10); err != nil {
		t.Error(err)
	} else if got, err := io.ReadAll(r); err != nil || len(got) > 0 {
		t.Errorf("behind its end it reads as %d bytes (%v)", len(got), err)
	}
	r.Close()
	if _, err := g.Write(ctx, name, box.WriteOptions{Exclusive: true}, strings.NewReader("")); box.KindOf(err) != box.Conflict {
		t.Errorf("a file is made twice: %v", err)
	}
	if _, err := g.Stat(ctx, dir+"/none", true); box.KindOf(err) != box.NotFound {
		t.Errorf("a file that is not there: %v", err)
	}
	if made, err := g.MakeDir(ctx, dir+"/x/y", box.MakeDirOptions{Parents: true}); err != nil || !made {
		t.Errorf("MakeDir gave %v (%v)", made, err)
	}
	if made, err := g.MakeDir(ctx, dir+"/x/y", box.MakeDirOptions{}); err != nil || made {
		t.Errorf("MakeDir gave %v (%v) the second time", made, err)
	}
	entries, cut, err := g.List(ctx, dir+"/", 2, 100)
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimPrefix(e.Path, dir))
	}
	if want := []string{"/a folder\n\xff", "/a folder\n\xff/new\tfile", "/x", "/x/y"}; err != nil || cut || !slices.Equal(names, want) {
		t.Errorf("List gave %q, %v (%v)", names, cut, err)
	}
	if entries, cut, err := g.List(ctx, dir, 2, 3); err != nil || !cut || len(entries) != 3 {
		t.Errorf("List of three gave %d, %v (%v)", len(entries), cut, err)
	}
	if err := g.Move(ctx, name, dir+"/moved", false); err != nil {
		t.Error(err)
	}
	if err := g.Move(ctx, dir+"/moved", dir+"/x", false); box.KindOf(err) != box.Conflict {
		t.Errorf("a file was moved over a folder: %v", err)
	}
	if err := g.Remove(ctx, dir+"/x", false); box.KindOf(err) != box.Conflict {
		t.Errorf("a folder that is not empty was removed: %v", err)
	}
	if err := g.Remove(ctx, dir+"/x", true); err != nil {
		t.Error(err)
	}
}

func TestAnUploadThatBreaksOffLeavesTheOldFile(t *testing.T) {
	g, dir := real(t)
	name := filepath.Join(dir, "f")
	if _, err := g.Write(t.Context(), name, box.WriteOptions{}, strings.NewReader("old")); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"an error": errors.New("read no more"), "a cut body": io.ErrUnexpectedEOF} {
		r := io.MultiReader(strings.NewReader(strings.Repeat("new", 100_000)), errReader{err})
		if _, got := g.Write(t.Context(), name, box.WriteOptions{}, r); !errors.Is(got, err) {
			t.Errorf("%s came back as %v", what, got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		r = io.MultiReader(strings.NewReader(strings.Repeat("new", 100_000)), cancelReader{cancel})
		if _, got := g.Write(ctx, name, box.WriteOptions{}, r); !errors.Is(got, context.Canceled) {
			t.Errorf("a caller that went away got %v", got)
		}
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("there are %v", entries)
		}
	}
	if b, err := os.ReadFile(name); string(b) != "old" {
		t.Errorf("it is %.20q… (%v)", b, err)
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

type cancelReader struct{ cancel func() }

func (r cancelReader) Read(p []byte) (int, error) {
	r.cancel()
	return copy(p, "new"), nil
}

func TestAWatchTellsOfChanges(t *testing.T) {
	g, dir := real(t)
	done := errors.New("have seen it")
	var seen []box.Change
	err := g.Watch(t.Context(), dir, true, func(c box.Change) error {
		if c.What == "" {
			_, err := g.Write(t.Context(), dir+"/a/b", box.WriteOptions{Parents: true}, strings.NewReader("x"))
			return err
		}
		seen = append(seen, c)
		if c.Path == "a/b" {
			return done
		}
		return nil
	})
	if err != done || len(seen) < 2 || seen[0] != (box.Change{Path: "a", What: box.ChangeCreate}) {
		t.Errorf("it told %v (%v)", seen, err)
	}
}

func TestArchivesGoInAndOut(t *testing.T) {
	g, dir := real(t)
	var in bytes.Buffer
	tw := tar.NewWriter(&in)
	for _, h := range []tar.Header{
		{Typeflag: tar.TypeDir, Name: "d/", Mode: 0o755},
		{Typeflag: tar.TypeReg, Name: "d/f\n", Mode: 0o644, Size: 5},
		{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "/etc/passwd"},
	} {
		if err := tw.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			_, _ = tw.Write([]byte("hello"))
		}
	}
	tw.Close()
	if files, n, err := g.Unpack(t.Context(), dir+"/to", "", &in); err != nil || files == 0 || n != 5 {
		t.Fatalf("Unpack gave %d files of %d bytes (%v)", files, n, err)
	}
	var out bytes.Buffer
	if err := g.Pack(t.Context(), dir+"/to", 1<<20, &out); err != nil {
		t.Fatal(err)
	}
	var names []string
	for tr := tar.NewReader(&out); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name+h.Linkname)
	}
	slices.Sort(names)
	if want := []string{"d/", "d/f\n", "l/etc/passwd"}; !slices.Equal(names, want) {
		t.Errorf("Pack gave %q, want %q", names, want)
	}
	if err := g.Pack(t.Context(), dir+"/to", 1000, io.Discard); box.KindOf(err) != box.Exhausted {
		t.Errorf("a small bound gives %v", err)
	}
}
