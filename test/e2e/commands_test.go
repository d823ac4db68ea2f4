package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/sunaba-dev/sunaba/test/harness"
)

// commands are what scripts may use beside testscript's own:
//
//	sunaba ARG...                run it; it must exit with 0
//	as CMD [ARG...]              run CMD as the user who runs sunaba
//	exits CODE CMD [ARG...]      run CMD (as, sunaba, sh, ...); it must exit with CODE
//	report PATH=VALUE ...        the last standard output is a report with VALUE there
//	report PATH~REGEXP ...       ... with a string there that matches
//
// A path is like error.kind, artifacts.0.path or artifacts.len. A
// value is compared as JSON if it is JSON, else as text. Whenever a run is asked
// for JSON, its standard output must be one document that fits the schema.
func commands() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"sunaba": func(ts *testscript.TestScript, neg bool, args []string) {
			if neg {
				ts.Fatalf("use exits CODE sunaba ...")
			}
			run(ts, 0, append([]string{"sunaba"}, args...))
		},
		"as": func(ts *testscript.TestScript, neg bool, args []string) {
			run(ts, 0, append([]string{"as"}, args...))
		},
		"exits": func(ts *testscript.TestScript, neg bool, args []string) {
			if neg || len(args) < 2 {
				ts.Fatalf("usage: exits CODE CMD [ARG...]")
			}
			code, err := strconv.Atoi(args[0])
			ts.Check(err)
			run(ts, code, args[1:])
		},
		"report": func(ts *testscript.TestScript, neg bool, args []string) {
			doc, err := document(ts.ReadFile("stdout"))
			ts.Check(err)
			for _, a := range args {
				if err := check(doc, a); (err != nil) != neg {
					ts.Fatalf("%s: %v", a, err)
				}
			}
		},
	}
}

func run(ts *testscript.TestScript, code int, args []string) {
	err := ts.Exec(args[0], args[1:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != code {
		ts.Fatalf("exit code %d, want %d", got, code)
	}
	ours := args // up to the program's own
	if i := slices.Index(args, "--"); i >= 0 {
		ours = args[:i]
	}
	if args[0] == "sunaba" && !(len(args) > 1 && slices.Contains([]string{"box", "snapshot", "volume", "policy"}, args[1])) && (slices.Contains(ours, "json") || slices.Contains(ours, "-o=json")) {
		if _, err := document(ts.ReadFile("stdout")); err != nil {
			ts.Fatalf("%v", err)
		}
	}
}

// schema is docs/result.schema.json.
var schema = sync.OnceValues(func() (*jsonschema.Schema, error) {
	c := jsonschema.NewCompiler()
	c.AssertContent()
	return c.Compile(filepath.Join(harness.ModuleRoot(), "docs/result.schema.json"))
})

// document checks that text is exactly one report that fits the schema.
func document(text string) (any, error) {
	s, err := schema()
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var doc any
	if err := dec.Decode(&doc); err != nil {
		return nil, fmt.Errorf("standard output is no JSON document: %w", err)
	}
	if rest := strings.TrimSpace(text[dec.InputOffset():]); rest != "" {
		return nil, fmt.Errorf("standard output holds more than one document: %.100q", rest)
	}
	if err := s.Validate(doc); err != nil {
		return nil, fmt.Errorf("the report does not fit the schema: %w", err)
	}
	return doc, nil
}

// check judges one assertion of the report command.
func check(doc any, assertion string) error {
	at := strings.IndexAny(assertion, "=~")
	if at < 0 {
		return errors.New("want PATH=VALUE or PATH~REGEXP")
	}
	got, err := lookUp(doc, assertion[:at])
	if err != nil {
		return err
	}
	want := assertion[at+1:]
	if assertion[at] == '~' {
		s, ok := got.(string)
		if !ok {
			return fmt.Errorf("it is %v, no text", got)
		}
		re, err := regexp.Compile(want)
		if err == nil && !re.MatchString(s) {
			err = fmt.Errorf("it is %q", s)
		}
		return err
	}
	dec := json.NewDecoder(strings.NewReader(want))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil || dec.More() {
		v = want
	}
	if s, ok := got.(string); !reflect.DeepEqual(got, v) && !(ok && s == want) {
		return fmt.Errorf("it is %#v", got)
	}
	return nil
}

func lookUp(doc any, path string) (any, error) {
	for _, key := range strings.Split(path, ".") {
		switch d := doc.(type) {
		case map[string]any:
			v, ok := d[key]
			if !ok {
				return nil, fmt.Errorf("there is no %q", key)
			}
			doc = v
		case []any:
			if key == "len" {
				doc = json.Number(strconv.Itoa(len(d)))
				continue
			}
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(d) {
				return nil, fmt.Errorf("there is no element %q of %d", key, len(d))
			}
			doc = d[i]
		default:
			return nil, fmt.Errorf("nothing lies below %v", doc)
		}
	}
	return doc, nil
}
