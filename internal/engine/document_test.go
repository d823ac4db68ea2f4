package engine

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
)

func TestReportIsTheSameDocumentThatOneEncoderWouldWrite(t *testing.T) {
	long := strings.Repeat("zeile\n\x1b[1m<&>\u2028\u00e9\U0001f600\"\\", 4000)
	short := "kurz"
	for name, rep := range map[string]*box.Report{
		"nothing long":    {Stdout: &short, StdoutClean: short},
		"both long":       {Stdout: &long, StdoutClean: long, Stderr: &long, StderrClean: "x" + long},
		"base64":          {StdoutBase64: &long, StderrBase64: &short},
		"cut in a rune":   {Stdout: ptr(strings.Repeat("a", piece-1) + "\U0001f600" + long)},
		"exactly a piece": {Stdout: ptr(strings.Repeat("a", piece)), Stderr: ptr(strings.Repeat("b", 2*piece))},
	} {
		want, err := json.MarshalIndent(rep, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := WriteReport(&got, rep); err != nil {
			t.Fatal(err)
		}
		if got.String() != string(want)+"\n" {
			t.Errorf("%s: documents differ", name)
		}
	}
}

func ptr(s string) *string { return &s }
