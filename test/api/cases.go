package api

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/sunaba-dev/sunaba/box"
)

//go:embed testdata/cases.txtar
var data []byte

// testCase is one file of the archive. Its lines are `key: value`; $DIR is the
// box's working folder, $HOST a file on the host and $HOSTDIR its folder.
//
//	why        what the case stands for
//	walls      yes: it needs a box that does not see the host's files
//	sh         what the box does before; several lines make one script
//	meanwhile  what the box does again and again while the steps are made
//	do         a step: [N times] CALL ARG... => OUTCOME
//	after      a script in the box, and
//	says       what it prints
//
// An argument that begins with a quotation mark is a Go string. An OUTCOME is ok,
// ok and a text that is in what comes out, kinds of errors with | between them,
// or any. "ok" among kinds is possible, too.
type testCase struct {
	name                       string
	walls                      bool
	sh, meanwhile, after, want string
	steps                      []step
}

type step struct {
	text  string
	times int
	op    string
	args  []string
	kinds []box.Kind // of the error; nil = none
	any   bool       // success will do as well
	want  *string    // in what comes out
}

func (s step) has(k box.Kind) bool { return slices.Contains(s.kinds, k) }

func cases(t testing.TB) []testCase {
	t.Helper()
	var all []testCase
	for _, f := range txtar.Parse(data).Files {
		c, err := parse(f)
		if err != nil {
			t.Fatalf("cannot read case %s: %v", f.Name, err)
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		t.Fatal("there are no cases")
	}
	return all
}

func parse(f txtar.File) (testCase, error) {
	c := testCase{name: f.Name}
	for line := range strings.Lines(string(f.Data)) {
		line = strings.TrimSuffix(line, "\n")
		key, value, ok := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
		case !ok:
			return c, fmt.Errorf("line %q has no key", line)
		case key == "why":
		case key == "walls":
			c.walls = value == "yes"
		case key == "sh":
			c.sh += value + "\n"
		case key == "meanwhile":
			c.meanwhile = value
		case key == "after":
			c.after = value
		case key == "says":
			c.want += value + "\n"
		case key == "do":
			s, err := parseStep(value)
			if err != nil {
				return c, err
			}
			c.steps = append(c.steps, s)
		default:
			return c, fmt.Errorf("key %q is unknown", key)
		}
	}
	if len(c.steps) == 0 {
		return c, fmt.Errorf("it has no steps")
	}
	return c, nil
}

func parseStep(text string) (step, error) {
	s := step{text: text, times: 1}
	call, outcome, ok := strings.Cut(text, " => ")
	words, err := split(call)
	if !ok || err != nil || len(words) == 0 {
		return s, fmt.Errorf("step %q is not CALL => OUTCOME (%v)", text, err)
	}
	if len(words) > 2 && words[1] == "times" {
		if s.times, err = strconv.Atoi(words[0]); err != nil {
			return s, err
		}
		words = words[2:]
	}
	s.op, s.args = words[0], words[1:]
	if n, known := arity()[s.op]; !known || n != len(s.args) {
		return s, fmt.Errorf("step %q has %d arguments, or is unknown", text, len(s.args))
	}
	if s.op == "unpack" {
		if _, err := archive(s.args[1]); err != nil {
			return s, err
		}
	}
	if word, rest, _ := strings.Cut(outcome, " "); word == "ok" {
		if rest != "" {
			want, err := strconv.Unquote(rest)
			s.want = &want
			return s, err
		}
		return s, nil
	}
	for k := range strings.SplitSeq(outcome, "|") {
		switch k {
		case "any", "ok":
			s.any = true
		default:
			s.kinds = append(s.kinds, box.Kind(k))
		}
	}
	return s, nil
}

// split cuts a line into words, some of which are quoted.
func split(line string) ([]string, error) {
	var all []string
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
		if line[0] != '"' {
			word, rest, _ := strings.Cut(line, " ")
			all, line = append(all, word), rest
			continue
		}
		quoted, err := strconv.QuotedPrefix(line)
		if err != nil {
			return nil, err
		}
		word, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, err
		}
		all, line = append(all, word), line[len(quoted):]
	}
	return all, nil
}

// arity is how many arguments each call has.
func arity() map[string]int {
	return map[string]int{"read": 1, "write": 2, "stat": 1, "list": 1, "mkdir": 1, "move": 2, "remove": 1, "pack": 1, "unpack": 2}
}

func (s step) call(ctx context.Context, b Box, a []string) ([]byte, error) {
	switch s.op {
	case "read":
		return b.Read(ctx, a[0])
	case "write":
		return nil, b.Write(ctx, a[0], []byte(a[1]))
	case "stat":
		text, err := b.Stat(ctx, a[0])
		return []byte(text), err
	case "list":
		text, err := b.List(ctx, a[0])
		return []byte(text), err
	case "mkdir":
		return nil, b.MakeDir(ctx, a[0])
	case "move":
		return nil, b.Move(ctx, a[0], a[1])
	case "remove":
		return nil, b.Remove(ctx, a[0])
	case "pack":
		return b.Pack(ctx, a[0])
	case "unpack":
		tar, err := archive(a[1])
		if err != nil {
			return nil, err
		}
		return nil, b.Unpack(ctx, a[0], tar)
	}
	return nil, fmt.Errorf("unknown call %q", s.op)
}
