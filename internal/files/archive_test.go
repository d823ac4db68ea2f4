package files

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/internal/host/hostfs"
)

// entry is one entry of a test archive.
type entry struct {
	name string
	kind byte
	data string
}

func file(name, data string) entry { return entry{name, tar.TypeReg, data} }

func archiveOf(t testing.TB, members ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		h := &tar.Header{Name: m.name, Typeflag: m.kind, Size: int64(len(m.data)), Mode: 0o4755, Linkname: "x", Format: tar.FormatPAX}
		if m.kind != tar.TypeLink && m.kind != tar.TypeSymlink {
			h.Linkname = ""
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(m.data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

var small = Budget{Bytes: 1000, FileBytes: 400, Entries: 6, NameBytes: 300}

// read returns what an archive holds.
func read(r io.Reader, b Budget) (map[string]string, Skipped, error) {
	got := map[string]string{}
	s, err := ReadArchive(r, b, func(name string, h Header, r io.Reader) error {
		data, err := io.ReadAll(r)
		if err == nil && int64(len(data)) != h.Size {
			return fmt.Errorf("%s has %d bytes, header says %d", name, len(data), h.Size)
		}
		got[name] = string(data)
		return err
	})
	return got, s, err
}

func TestOnlyRegularFilesArePassedOn(t *testing.T) {
	odd := "a\nb/\xff\xfe"
	data := archiveOf(t,
		entry{"d/", tar.TypeDir, ""}, file("./d/f", "one"), file(odd, "two"),
		entry{"l", tar.TypeSymlink, ""}, entry{"h", tar.TypeLink, ""}, entry{"c", tar.TypeChar, ""},
		entry{"b", tar.TypeBlock, ""}, entry{"p", tar.TypeFifo, ""}, file("big", strings.Repeat("x", 401)),
		file("empty", ""))
	b := small
	b.Entries = 20
	got, skipped, err := read(bytes.NewReader(data), b)
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"d/f": "one", odd: "two", "empty": ""}; !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if want := (Skipped{Links: 2, Devices: 2, Pipes: 1, TooBig: 1}); skipped != want {
		t.Errorf("skipped %+v, want %+v", skipped, want)
	}
	if n := len(skipped.Notes()); n != 4 {
		t.Errorf("%d notes: %q", n, skipped.Notes())
	}
}

func TestNamesThatLeaveTheFolderEndTheReading(t *testing.T) {
	for _, name := range []string{"/etc/passwd", "../x", "a/../../x", "a//b", "././x", strings.Repeat("n", 256), "a/./b"} {
		if got, _, err := read(bytes.NewReader(archiveOf(t, file(name, "x"))), small); !errors.Is(err, ErrArchive) {
			t.Errorf("%.20q: %v, %q", name, err, got)
		}
	}
	if _, _, err := read(bytes.NewReader(archiveOf(t, file("a", "1"), file("./a", "2"))), small); !errors.Is(err, ErrArchive) {
		t.Errorf("the same name twice: %v", err)
	}
}

func TestBudgetsHold(t *testing.T) {
	many := slices.Repeat([]entry{{"d/", tar.TypeDir, ""}}, 7)
	for what, data := range map[string][]byte{
		"entries":     archiveOf(t, many...),
		"bytes":       archiveOf(t, file("a", strings.Repeat("x", 400)), file("b", strings.Repeat("x", 400)), file("c", strings.Repeat("x", 201))),
		"one file":    archiveOf(t, file("a", strings.Repeat("x", 1001))),
		"names":       archiveOf(t, file(strings.Repeat("a", 151), ""), file(strings.Repeat("b", 150), "")),
		"other kinds": archiveOf(t, entry{"weird", 'Q', strings.Repeat("x", 1001)}),
	} {
		if _, _, err := read(bytes.NewReader(data), small); !errors.Is(err, ErrBudget) {
			t.Errorf("%s: %v", what, err)
		}
	}
	full := archiveOf(t, file("a", strings.Repeat("x", 400)), file("b", strings.Repeat("x", 400)), file("c", strings.Repeat("x", 200)))
	if _, _, err := read(bytes.NewReader(full), small); err != nil {
		t.Errorf("exactly within budget: %v", err)
	}
}

// A header can promise any size, and a sparse file is short in the stream.
func TestHugePromisesCostNothing(t *testing.T) {
	var b bytes.Buffer
	tar.NewWriter(&b).WriteHeader(&tar.Header{Name: "x", Typeflag: tar.TypeReg, Size: 1 << 60})
	if _, _, err := read(&b, DefaultBudget()); !errors.Is(err, ErrBudget) {
		t.Errorf("a promise of 2^60 bytes: %v", err)
	}
	if _, _, err := read(bytes.NewReader(sparse(t, 1<<50)), DefaultBudget()); !errors.Is(err, ErrBudget) {
		t.Errorf("a hole of 2^50 bytes: %v", err)
	}
	got, _, err := read(bytes.NewReader(sparse(t, 300)), small)
	if err != nil || len(got["s"]) != 300 {
		t.Errorf("a small hole: %v, %d bytes", err, len(got["s"]))
	}
}

// sparse makes a PAX 1.0 sparse member "s" that is nothing but a hole. The
// library does not write such records, so they are spliced in by hand.
func sparse(t testing.TB, size int64) []byte {
	t.Helper()
	record := func(k, v string) string {
		for n := len(k) + len(v) + 4; ; n++ {
			if s := fmt.Sprintf("%d %s=%s\n", n, k, v); len(s) == n {
				return s
			}
		}
	}
	pax := record("GNU.sparse.major", "1") + record("GNU.sparse.minor", "0") +
		record("GNU.sparse.name", "s") + record("GNU.sparse.realsize", fmt.Sprint(size))
	data := archiveOf(t, file("PaxHeaders.0/s", pax), file("GNUSparseFile.0/s", "0\n"+strings.Repeat("\x00", 510)))
	h := data[:512]
	h[156] = 'x'
	copy(h[148:156], "        ")
	sum := 0
	for _, c := range h {
		sum += int(c)
	}
	copy(h[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return data
}

func TestCutAnywhereIsAnError(t *testing.T) {
	data := archiveOf(t, file("a", strings.Repeat("\x00", 300)), entry{"weird", 'Q', strings.Repeat("\x00", 200)}, file("c", "end"))
	if _, _, err := read(bytes.NewReader(data), small); err != nil {
		t.Fatal(err)
	}
	for n := range len(data) {
		if _, _, err := read(bytes.NewReader(data[:n]), small); err == nil {
			t.Errorf("cut after %d of %d bytes: no error", n, len(data))
		}
	}
}

func TestErrorSwallowedByTheReaderIsReturned(t *testing.T) {
	data := archiveOf(t, file("a", strings.Repeat("x", 300)))
	_, err := ReadArchive(bytes.NewReader(data[:600]), small, func(_ string, _ Header, r io.Reader) error {
		if _, err := io.Copy(io.Discard, r); !errors.Is(err, ErrArchive) {
			t.Errorf("the callback sees %v", err)
		}
		return nil
	})
	if !errors.Is(err, ErrArchive) {
		t.Errorf("got %v", err)
	}
	mine := errors.New("mine")
	if _, err := ReadArchive(bytes.NewReader(data), small, func(string, Header, io.Reader) error { return mine }); err != mine {
		t.Errorf("got %v, want the callback's own", err)
	}
}

// endless repeats a block for ever and counts what was taken.
type endless struct {
	block []byte
	n     int64
}

func (e *endless) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		n += copy(p[n:], e.block[int(e.n+int64(n))%len(e.block):])
	}
	e.n += int64(n)
	return n, nil
}

func TestEndlessStreamsEnd(t *testing.T) {
	one := archiveOf(t, entry{"d/", tar.TypeDir, ""})
	pax := archiveOf(t, file(strings.Repeat("long/", 40)+"x", ""))
	for what, block := range map[string][]byte{
		"folders":          one[:512],
		"extended headers": pax[:1024],
		"noise":            bytes.Repeat([]byte("noise!"), 100),
	} {
		e := &endless{block: block}
		if _, _, err := read(e, small); err == nil {
			t.Errorf("%s: no error", what)
		}
		if e.n > 64<<10 {
			t.Errorf("%s: %d bytes were read", what, e.n)
		}
	}
}

func TestNothingAfterTheEndMarkIsRead(t *testing.T) {
	e := &endless{block: []byte{0}}
	if _, _, err := read(io.MultiReader(bytes.NewReader(archiveOf(t, file("a", "x"))), e), small); err != nil {
		t.Error(err)
	}
	if e.n != 0 {
		t.Errorf("%d bytes after the end mark were read", e.n)
	}
}

func FuzzReadArchive(f *testing.F) {
	f.Add(archiveOf(f, file("a", "x"), entry{"l", tar.TypeSymlink, ""}, file("./b/c", "yy")))
	f.Add(archiveOf(f, file(strings.Repeat("n/", 100)+"\xff", "z")))
	f.Add(sparse(f, 300))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		got, _, err := read(bytes.NewReader(data), small)
		total, names := 0, 0
		for name, content := range got {
			if hostfs.CheckName(name) != nil {
				t.Errorf("bad name %q", name)
			}
			total += len(content)
			names += len(name)
		}
		if total > 1000 || names > 300 || len(got) > 6 {
			t.Errorf("over budget: %d bytes, %d of names, %d files", total, names, len(got))
		}
		if err != nil && !errors.Is(err, ErrBudget) && !errors.Is(err, ErrArchive) {
			t.Errorf("error of no class: %v", err)
		}
	})
}
