package settings

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Place is a line and a column in characters, both from 1.
type Place struct{ Line, Column int }

// placeOf finds where data[:offset] ends.
func placeOf(data []byte, offset int) Place {
	before := string(data[:offset])
	start := strings.LastIndexByte(before, '\n') + 1
	return Place{strings.Count(before, "\n") + 1, utf8.RuneCountInString(before[start:]) + 1}
}

// checkText refuses, before any YAML is read, a file that is too long, is not
// UTF-8, or has characters that a reader cannot see: controls, line breaks
// other than LF and CRLF, and the marks that reorder text on the screen
// (CVE-2021-42574). Tabs may not indent. It reports whether all is well.
func (l *Reader) checkText(data []byte) bool {
	if len(data) > MaxFile {
		l.Failf(placeOf(data, MaxFile), "", "cannot read the file: it is longer than %d bytes", MaxFile)
		return false
	}
	p, indent := Place{1, 1}, true
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && size <= 1:
			l.Failf(p, "", "cannot read the file: byte 0x%02x is not UTF-8 here", data[i])
			return false // the rest is likely no text either
		case r == '\t' && indent:
			l.Failf(p, "", "cannot use a tab to indent; allowed: spaces")
			indent = false // once a line
		case r == '\r' && i+1 < len(data) && data[i+1] == '\n':
		case unseen(r):
			l.Failf(p, "", "cannot use the invisible character U+%04X", r)
		}
		if len(l.Errs) == MaxErrors {
			return false
		}
		p.Column++
		indent = indent && r == ' '
		if r == '\n' {
			p, indent = Place{p.Line + 1, 1}, true
		}
		i += size
	}
	return len(l.Errs) == 0
}

func unseen(r rune) bool {
	switch {
	case r == '\n', r == '\t':
		return false
	case r < 0x20, r >= 0x7f && r <= 0x9f: // C0, DEL, C1 (NEL too)
		return true
	case r == 0x2028, r == 0x2029: // line and paragraph separator
		return true
	case r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, r == 0x061c, r == 0x200e, r == 0x200f: // bidi controls
		return true
	case r == 0x00ad, r == 0x180e, r == 0x200b, r >= 0x2060 && r <= 0x2064, r >= 0x206a && r <= 0x206f: // no shape, or no width
		return true
	case r >= 0xe0000 && r <= 0xe007f: // tags, in which whole texts can be hidden from people and not from models
		return true
	}
	return r == 0xfeff || r == 0xfffe || r == 0xffff // byte order marks, and what YAML's character set leaves out
}

// syntax reports an error of the YAML reader. Its own line is that of the
// construct it was in (counted from 0 where its grammar failed, from 1 where
// its scanner did), so the Place is found anew: where it stops when it gets
// the file byte by byte.
func (l *Reader) syntax(data []byte, err error) {
	r := &byteReader{data: data}
	for dec := yaml.NewDecoder(r); ; {
		var n yaml.Node
		if dec.Decode(&n) != nil {
			break
		}
	}
	end := max(len(strings.TrimRight(string(data[:r.pos]), " \n\r"))-1, 0)
	for end > 0 && !utf8.RuneStart(data[end]) {
		end--
	}
	p := placeOf(data, end)

	head := regexp.MustCompile(`^yaml: (?:line (\d+): )?`).FindStringSubmatch(err.Error())
	if head == nil {
		head = []string{"", ""}
	}
	msg := strings.TrimPrefix(err.Error(), head[0])
	if strings.HasPrefix(msg, "unknown anchor") {
		l.Failf(p, "", "cannot use an alias; allowed: values written where they hold")
		return
	}
	began, _ := strconv.Atoi(head[1])
	if strings.HasPrefix(msg, "did not find") {
		began++
	}
	if head[1] != "" && began < p.Line {
		msg += fmt.Sprintf(", in what begins at line %d", began)
	}
	l.Failf(p, "", "cannot read the file as YAML near here: %s", msg)
}

// byteReader gives one byte at a time and so knows how far its reader got.
type byteReader struct {
	data []byte
	pos  int
}

func (r *byteReader) Read(p []byte) (int, error) {
	if r.pos == len(r.data) || len(p) == 0 {
		return 0, io.EOF
	}
	p[0] = r.data[r.pos]
	r.pos++
	return 1, nil
}

// IsNull reports whether a node says nothing.
func IsNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// Given shows a scalar as the file has it.
func Given(n *yaml.Node) string {
	if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0 {
		return Plain(n.Value)
	}
	return Quote(n.Value)
}

// Describe says what a node is where something else was wanted.
func Describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "keys with values"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case IsNull(n):
		return "nothing"
	}
	return Given(n)
}

// Pairs calls f for each pair of a mapping whose key is a plain word that did
// not come before.
func (l *Reader) Pairs(n *yaml.Node, name string, f func(key string, k, v *yaml.Node)) {
	seen := make(map[string]int)
	for i := 0; i+1 < len(n.Content) && len(l.Errs) < MaxErrors; i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		switch {
		case k.Tag == "!!merge":
			l.Failf(At(k), name, "cannot use the merge key <<; allowed: each key where it holds")
		case !l.PlainNode(k, name):
		case k.Kind != yaml.ScalarNode:
			l.Failf(At(k), name, "cannot use %s as a key; allowed: a word", Describe(k))
		case seen[k.Value] > 0:
			l.Failf(At(k), strings.TrimPrefix(name+"."+k.Value, "."), "cannot use key %s twice; it was first given at line %d", Plain(k.Value), seen[k.Value])
		default:
			seen[k.Value] = k.Line
			f(k.Value, k, v)
		}
	}
}

// PlainNode refuses what only YAML has: aliases, anchors and tags.
func (l *Reader) PlainNode(n *yaml.Node, name string) bool {
	what := ""
	switch {
	case n.Kind == yaml.AliasNode:
		what = "the alias " + Quote("*"+n.Value)
	case n.Anchor != "":
		what = "the anchor " + Quote("&"+n.Anchor)
	case n.Style&yaml.TaggedStyle != 0:
		what = "the tag " + Quote(n.Tag)
	default:
		return true
	}
	l.Failf(At(n), name, "cannot use %s; allowed: values written where they hold", what)
	return false
}
