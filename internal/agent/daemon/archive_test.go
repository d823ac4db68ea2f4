package daemon

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// pack returns an archive and how much was left out.
func (c *client) pack(t testing.TB, p string, most uint64) (b []byte, skipped string, err error) {
	t.Helper()
	s, err := c.Pack(deadline(t), connect.NewRequest(&pb.PackRequest{Path: []byte(p), MostBytes: most}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for s.Receive() {
		b = append(b, s.Msg().Tar...)
	}
	return b, s.ResponseTrailer().Get(SkippedTrailer), s.Err()
}

func (c *client) unpack(t testing.TB, p string, archive []byte) (*pb.UnpackResponse, string, error) {
	t.Helper()
	s := c.Unpack(deadline(t))
	err := s.Send(&pb.UnpackRequest{Path: []byte(p)})
	for b := archive; len(b) > 0 && err == nil; b = b[min(len(b), 1000):] {
		err = s.Send(&pb.UnpackRequest{Tar: b[:min(len(b), 1000)]})
	}
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	res, err := s.CloseAndReceive()
	if err != nil {
		return nil, "", err
	}
	return res.Msg, res.Trailer().Get(SkippedTrailer), nil
}

// archive makes a tar of members; contents are "data of NAME".
func archive(t testing.TB, members ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range members {
		data := "data of " + h.Name
		if h.Typeflag != 0 && h.Typeflag != tar.TypeReg {
			data = ""
		}
		h.Size, h.Mode = int64(len(data)), 0o640
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// tree describes what is below a folder.
func tree(t testing.TB, root string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if err != nil || p == root {
			return err
		}
		line := strings.TrimPrefix(p, root+"/")
		switch {
		case d.Type()&os.ModeSymlink != 0:
			to, _ := os.Readlink(p)
			line += " -> " + to
		case d.Type().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			line += " = " + string(b)
		}
		all = append(all, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestFoldersTravelAsArchives(t *testing.T) {
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		r := begin(t, u)
		from := r.dir + "/from"
		if err := os.Mkdir(from, 0o755); err != nil {
			t.Fatal(err)
		}
		harness.Give(t, u, from)
		bad(t, u, from)
		r.write(t, from+"/dir/with\nline/big", bytes.Repeat([]byte("0123456789"), 30_000), &pb.WriteHead{Parents: true, Mode: 0o600})
		r.write(t, from+"/"+strings.Repeat("long", 50), []byte("x"), nil)
		if err := os.Link(from+"/file", from+"/dir/again"); err != nil {
			t.Fatal(err)
		}
		b, skipped, err := r.pack(t, from, 1<<20)
		if err != nil || skipped != "2" { // the pipe and the socket
			t.Fatalf("skipped %q, %v", skipped, err)
		}
		to := r.dir + "/to/sub"
		res, skipped, err := r.unpack(t, to, b)
		if err != nil || skipped != "0" || res.Files != 9 || res.Bytes != 300_000+1+3+3 {
			t.Fatalf("%v, skipped %q, %v", res, skipped, err)
		}
		for _, p := range []string{from + "/fifo", from + "/sock"} {
			if err := os.Remove(p); err != nil {
				t.Fatal(err)
			}
		}
		if a, b := tree(t, from), tree(t, to); !slices.Equal(a, b) {
			t.Errorf("got %.300q, want %.300q", b, a)
		}
		if st, err := os.Stat(to + "/dir/with\nline/big"); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", st, err)
		}
		// A second time over what is there.
		if _, _, err := r.unpack(t, to, b); err != nil {
			t.Error(err)
		}
		if a, b := tree(t, from), tree(t, to); !slices.Equal(a, b) {
			t.Errorf("the second time: %.300q", b)
		}
		_, _, err = r.pack(t, from, 100_000)
		wantError(t, err, connect.CodeResourceExhausted, "into 100000 bytes")
		if err := os.Truncate(from+"/dir/with\nline/big", 1<<42); err != nil { // no byte of it is there
			t.Fatal(err)
		}
		_, _, err = r.pack(t, from, 1<<40)
		wantError(t, err, connect.CodeResourceExhausted, "into 1099511627776 bytes")
		b, _, err = r.pack(t, from+"/file", 1<<20)
		if err != nil || !bytes.Contains(b, []byte("old")) {
			t.Errorf("one file: %d bytes, %v", len(b), err)
		}
		if err := os.RemoveAll(from); err != nil {
			t.Fatal(err)
		}
		_, _, err = r.pack(t, from, 1<<20)
		wantError(t, err, connect.CodeNotFound, "no such file")
	})
}

func TestArchiveStaysInItsFolder(t *testing.T) {
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		r := begin(t, u)
		file := func(name string) tar.Header { return tar.Header{Name: name} }
		link := func(name, to string) tar.Header {
			return tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeSymlink}
		}
		hard := func(name, to string) tar.Header {
			return tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeLink}
		}
		for i, c := range []struct {
			members []tar.Header
			words   string
			want    []string
		}{
			{[]tar.Header{file("../out/f")}, "leaves its folder", nil},
			{[]tar.Header{file("a/../../out/f")}, "leaves its folder", nil},
			{[]tar.Header{file("/out/f")}, "absolute name", nil},
			{[]tar.Header{link("l", "../out"), file("l/f")}, "not a directory", []string{"l -> ../out"}},
			{[]tar.Header{link("l", "../out/f"), file("l")}, "", []string{"l = data of l"}},
			{[]tar.Header{link("l", "../out"), {Name: "l", Typeflag: tar.TypeDir}}, "not a directory", []string{"l -> ../out"}},
			{[]tar.Header{hard("h", "../out/kept")}, "it is outside", nil},
			{[]tar.Header{link("l", "../out/kept"), hard("h", "l")}, "a symbolic link", []string{"l -> ../out/kept"}},
			{[]tar.Header{hard("h", "nothing")}, "no such file", nil},
			{[]tar.Header{file("f"), hard("h", "f"), hard("f", "f")}, "", []string{"f = data of f", "h = data of f"}},
			{[]tar.Header{file("f"), file("f/g")}, "not a directory", []string{"f = data of f"}},
			{[]tar.Header{{Name: "p", Typeflag: tar.TypeFifo}, {Name: "n", Typeflag: tar.TypeChar}, file(".//x")}, "", []string{"x = data of .//x"}},
			{[]tar.Header{file(strings.Repeat("x", 256))}, "longer than 255", nil},
		} {
			dir := filepath.Join(r.dir, string(rune('a'+i)))
			if err := os.MkdirAll(dir+"/out", 0o755); err != nil {
				t.Fatal(err)
			}
			r2 := dir + "/in"
			harness.Give(t, u, dir+"/out")
			harness.Give(t, u, dir)
			r.write(t, dir+"/out/kept", []byte("kept"), nil)
			_, _, err := r.unpack(t, r2, archive(t, c.members...))
			if c.words == "" && err != nil || c.words != "" && (connect.CodeOf(err) != connect.CodeInvalidArgument && connect.CodeOf(err) != connect.CodeNotFound || !strings.Contains(err.Error(), c.words)) {
				t.Errorf("%d: got %v, want %q", i, err, c.words)
			}
			if got := tree(t, r2); !slices.Equal(got, c.want) {
				t.Errorf("%d: made %q, want %q", i, got, c.want)
			}
			if got := tree(t, dir+"/out"); !slices.Equal(got, []string{"kept = kept"}) {
				t.Errorf("%d: outside there is %q", i, got)
			}
		}
		_, _, err := r.unpack(t, r.dir+"/junk", bytes.Repeat([]byte("junk"), 1000))
		wantError(t, err, connect.CodeInvalidArgument, "cannot read the archive")
		whole := archive(t, file("f"))
		_, _, err = r.unpack(t, r.dir+"/cut", whole[:515])
		wantError(t, err, connect.CodeInvalidArgument, "cannot read the archive")
		if left := tree(t, r.dir+"/cut"); len(left) != 0 {
			t.Errorf("left of one that broke off: %v", left)
		}
	})
}
