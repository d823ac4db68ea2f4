package config

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// place is a line and a column in characters, both from 1.
type place struct{ line, column int }

// placeOf finds where data[:offset] ends.
func placeOf(data []byte, offset int) place {
	before := string(data[:offset])
	start := strings.LastIndexByte(before, '\n') + 1
	return place{strings.Count(before, "\n") + 1, utf8.RuneCountInString(before[start:]) + 1}
}

// checkText refuses, before any YAML is read, a file that is too long, is not
// UTF-8, or has characters that a reader cannot see: controls, line breaks
// other than LF and CRLF, and the marks that reorder text on the screen
// (CVE-2021-42574). Tabs may not indent. It reports whether all is well.
func (l *loader) checkText(data []byte) bool {
	if len(data) > maxFile {
		l.failf(placeOf(data, maxFile), "", "cannot read the file: it is longer than %d bytes", maxFile)
		return false
	}
	p, indent := place{1, 1}, true
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && size <= 1:
			l.failf(p, "", "cannot read the file: byte 0x%02x is not UTF-8 here", data[i])
			return false // the rest is likely no text either
		case r == '\t' && indent:
			l.failf(p, "", "cannot use a tab to indent; allowed: spaces")
			indent = false // once a line
		case r == '\r' && i+1 < len(data) && data[i+1] == '\n':
		case unseen(r):
			l.failf(p, "", "cannot use the invisible character U+%04X", r)
		}
		if len(l.errs) == maxErrors {
			return false
		}
		p.column++
		indent = indent && r == ' '
		if r == '\n' {
			p, indent = place{p.line + 1, 1}, true
		}
		i += size
	}
	return len(l.errs) == 0
}

func unseen(r rune) bool {
	switch {
	case r == '\n', r == '\t':
		return false
	case r < 0x20, r >= 0x7f && r <= 0x9f: // C0, DEL, C1 (NEL too)
		return true
	case r == 0x2028, r == 0x2029: // line and paragraph separator
		return true
	case r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069: // bidi controls
		return true
	}
	return r == 0xfeff || r == 0xfffe || r == 0xffff // byte order marks, and what YAML's character set leaves out
}

// syntax reports an error of the YAML reader. Its own line is that of the
// construct it was in (counted from 0 where its grammar failed, from 1 where
// its scanner did), so the place is found anew: where it stops when it gets
// the file byte by byte.
func (l *loader) syntax(data []byte, err error) {
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
		l.failf(p, "", "cannot use an alias; allowed: values written where they hold")
		return
	}
	began, _ := strconv.Atoi(head[1])
	if strings.HasPrefix(msg, "did not find") {
		began++
	}
	if head[1] != "" && began < p.line {
		msg += fmt.Sprintf(", in what begins at line %d", began)
	}
	l.failf(p, "", "cannot read the file as YAML near here: %s", msg)
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

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

func formOf(n *yaml.Node) form {
	switch n.Tag {
	case "!!int":
		return integer
	case "!!float":
		return float
	case "!!bool":
		return boolean
	}
	return text
}

// given shows a scalar as the file has it.
func given(n *yaml.Node) string {
	if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0 {
		return plain(n.Value)
	}
	return quote(n.Value)
}

// describe says what a node is where something else was wanted.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "keys with values"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "nothing"
	}
	return given(n)
}

func isSection(name string) bool {
	return slices.ContainsFunc(Keys(), func(k Key) bool { return strings.HasPrefix(k.Name, name+".") })
}

// children lists the keys and sections directly in a section.
func (l *loader) children(section string) []string {
	if section == "" {
		return []string{"sandbox"}
	}
	prefix := section + "."
	if section == "sandbox" {
		prefix = ""
	}
	var out []string
	for _, k := range Keys() {
		if rest, ok := strings.CutPrefix(k.Name, prefix); ok {
			first, _, _ := strings.Cut(rest, ".")
			if !slices.Contains(out, first) {
				out = append(out, first)
			}
		}
	}
	return out
}

func (l *loader) unknown(k *yaml.Node, section, full string) {
	own := l.children(section)
	meant := Nearest(k.Value, own)
	if meant == "" {
		meant = near(full)
		if meant != "" && section == "" {
			meant = "sandbox." + meant
		}
	}
	err := unknownKey(opLoad, k.Value, section, meant)
	if meant == "" {
		err.Message += "; allowed: " + strings.Join(own, ", ")
	}
	l.fail(at(k), full, err)
}
