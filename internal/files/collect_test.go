package files

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host/hostfs"
)

func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}

func artifact(path, data string) box.Artifact {
	return box.Artifact{Path: path, Size: int64(len(data)), SHA256: sum(data)}
}

func collector() *Collector {
	return &Collector{
		Budget: Budget{Bytes: 1 << 20, FileBytes: 1 << 20, Entries: 100, NameBytes: 4096},
		Root:   "/workspace",
		Seeds: []SeedRecord{
			{"/workspace/input.json", 2, sum("{}")},
			{"/workspace/changed", 3, sum("old")},
			{"/elsewhere/x", 1, sum("x")},
		},
		Output: "output.json", OutputMax: 20,
	}
}

func TestCollectorListsNewAndChangedFiles(t *testing.T) {
	data := archiveOf(t, file("input.json", "{}"), file("changed", "new"), file("x", "x"),
		file("output.json", `{"a": 1}`), file("sub/output.json", "no"), entry{"l", tar.TypeSymlink, ""})
	got, err := collector().Collect(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	want := []box.Artifact{artifact("changed", "new"), artifact("x", "x"), artifact("output.json", `{"a": 1}`), artifact("sub/output.json", "no")}
	if !reflect.DeepEqual(got.Artifacts, want) {
		t.Errorf("got %+v, want %+v", got.Artifacts, want)
	}
	if string(got.Output) != `{"a": 1}` || got.OutputError != "" || len(got.Notes) != 1 {
		t.Errorf("output %q, error %q, notes %q", got.Output, got.OutputError, got.Notes)
	}
}

func TestOutputThatIsTooLargeIsSaidSo(t *testing.T) {
	got, err := collector().Collect(bytes.NewReader(archiveOf(t, file("output.json", strings.Repeat("1", 21)))))
	if err != nil || got.Output != nil || !strings.Contains(got.OutputError, "21 bytes") || len(got.Artifacts) != 1 {
		t.Errorf("%v, %+v", err, got)
	}
	got, err = collector().Collect(bytes.NewReader(archiveOf(t, file("output.json", ""))))
	if err != nil || got.Output == nil || len(got.Output) != 0 {
		t.Errorf("an empty output is there: %v, %+v", err, got)
	}
	got, err = collector().Collect(bytes.NewReader(archiveOf(t)))
	if err != nil || got.Output != nil || got.Artifacts == nil {
		t.Errorf("nothing at all: %v, %+v", err, got)
	}
}

func TestCollectorSavesWhatItLists(t *testing.T) {
	out, victim := t.TempDir(), t.TempDir()
	d, err := hostfs.OpenDir(out)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := os.Symlink(victim, out+"/trap"); err != nil {
		t.Fatal(err)
	}
	c := collector()
	c.Save = d
	data := archiveOf(t, file("input.json", "{}"), file("a/b", "one"), file("trap/x", "evil"), file("trap", "evil"))
	got, err := c.Collect(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Artifacts) != 3 {
		t.Fatalf("artifacts %+v", got.Artifacts)
	}
	ok, trap1, trap2 := got.Artifacts[0], got.Artifacts[1], got.Artifacts[2]
	if ok.Saved != out+"/a/b" || ok.Error != "" {
		t.Errorf("saved %+v", ok)
	}
	for _, a := range []box.Artifact{trap1, trap2} {
		if a.Saved != "" || a.Error == "" || a.SHA256 != sum("evil") {
			t.Errorf("%+v: want an error and the digest all the same", a)
		}
	}
	if b, err := os.ReadFile(out + "/a/b"); string(b) != "one" || err != nil {
		t.Errorf("read %q, %v", b, err)
	}
	if info, _ := os.Stat(out + "/a/b"); info.Mode() != 0o755 {
		t.Errorf("mode %v, want 0755", info.Mode())
	}
	if e, _ := os.ReadDir(out); len(e) != 2 {
		t.Errorf("the folder has %v", e)
	}
	if e, _ := os.ReadDir(victim); len(e) != 0 {
		t.Errorf("the victim has %v", e)
	}

	cut := archiveOf(t, file("whole", "w"), file("half", strings.Repeat("h", 3000)))
	got, err = c.Collect(bytes.NewReader(cut[:len(cut)-3000]))
	if err == nil || len(got.Artifacts) != 1 || got.Artifacts[0].Path != "whole" {
		t.Errorf("cut archive: %v, %+v", err, got.Artifacts)
	}
	if e, _ := os.ReadDir(out); len(e) != 3 {
		t.Errorf("half a file is left: %v", e)
	}
}

func TestParseOutput(t *testing.T) {
	for in, says := range map[string]string{
		` {"a": [1, "ü", "]"]} ` + "\n": "",
		`null`:                          "",
		strings.Repeat("[", 60) + strings.Repeat("]", 60):    "",
		`{"a": {"a": 1}, "b": [{"a": 1}, {"a": 1}]}`:         "",
		`"\\ud800 \uD83D\uDE00 \u0000"`:                      "",
		`[-1.5e308, 123456789012345678901234567890, 1e-999]`: "",
		"":                                     "empty",
		" \n":                                  "empty",
		"{} {}":                                "byte",
		"{'a': 1}":                             "byte",
		"NaN":                                  "byte",
		"{\"a\": \"\xff\"}":                    "UTF-8",
		"\xef\xbb\xbf{}":                       "byte order mark",
		"[":                                    "byte",
		strings.Repeat("[", 61) + "1":          "deeper",
		`[1e999]`:                              "range",
		strings.Repeat("9", 4301):              "number",
		`{"x": 1, "y": {"a": 1, "\u0061": 2}}`: "key",
		`"\ud800"`:                             "surrogate",
		`"\udc00\ud800"`:                       "surrogate",
		`["\ud83d\n..."]`:                      "surrogate",
		`"\` + "\x1b":                          "byte",
	} {
		v, err := ParseOutput([]byte(in))
		if says == "" && (err != nil || string(v) != strings.TrimSpace(in)) {
			t.Errorf("%.20q: %q, %v", in, v, err)
		}
		if says != "" && (err == nil || v != nil || !strings.Contains(err.Error(), says) || strings.ContainsRune(err.Error(), '\x1b')) {
			t.Errorf("%.20q: got %q, %v; want an error with %q", in, v, err, says)
		}
	}
}

func FuzzParseOutput(f *testing.F) {
	f.Add([]byte(`{"a":[1,"\"]",null]}`))
	f.Add([]byte(`[[`))
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := ParseOutput(data)
		if err == nil && !json.Valid(v) {
			t.Errorf("%q was taken as JSON", v)
		}
		if err == nil {
			if _, err := json.Marshal(struct{ V json.RawMessage }{v}); err != nil {
				t.Errorf("cannot be put in a document: %v", err)
			}
		}
	})
}
