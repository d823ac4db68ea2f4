// Package settings reads what people write down: strict YAML, sizes and times,
// and the words in which they are told what is wrong.
//
// YAML is read as a tree of nodes, so that each error has its line and column,
// and only the plain part of YAML is accepted: a reader of the file should see
// what holds without expanding anything. Anchors, aliases, merge keys, tags,
// further documents, characters that cannot be seen and keys given twice are
// errors. All errors of a file are told at once.
//
// What the keys mean is not known here: that is for the rooms that use a
// [Reader], such as config and egress/rules.
package settings

import (
	"bytes"
	"errors"
	"io"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/sunaba-dev/sunaba/box"
)

// The bounds of a file.
const (
	MaxFile   = 1 << 20 // bytes
	MaxErrors = 100     // reported for one file
)

// Reader reads one file and gathers what is wrong in it. It is for one
// goroutine.
type Reader struct {
	File string // for messages
	Op   string // of the errors
	Errs Errors
}

// Fail notes an error.
func (l *Reader) Fail(p Place, key string, err *box.Error) {
	if len(l.Errs) < MaxErrors {
		l.Errs = append(l.Errs, &Error{File: l.File, Line: p.Line, Column: p.Column, Key: key, Err: err})
	}
}

// Failf notes an error of kind Invalid.
func (l *Reader) Failf(p Place, key, format string, args ...any) {
	l.Fail(p, key, box.Errorf(box.Invalid, l.Op, format, args...))
}

// Document returns the root of the one document in data; nil if there is none,
// or if what is wrong leaves nothing to read.
func (l *Reader) Document(data []byte) *yaml.Node {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if !l.checkText(data) {
		return nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		l.syntax(data, err)
		return nil
	}
	var more yaml.Node
	switch err := dec.Decode(&more); {
	case errors.Is(err, io.EOF):
	case err != nil:
		l.syntax(data, err)
		return nil
	default:
		l.Failf(At(&more), "", "cannot use a second document; allowed: one document in a file")
	}
	if len(doc.Content) != 1 {
		return nil
	}
	return doc.Content[0]
}

// Err returns what was noted, in the order of its lines, or nil.
func (l *Reader) Err() error {
	if len(l.Errs) == 0 {
		return nil
	}
	slices.SortStableFunc(l.Errs, func(a, b *Error) int { return a.Line - b.Line })
	return l.Errs
}

// At is where a node begins.
func At(n *yaml.Node) Place { return Place{max(n.Line, 1), max(n.Column, 1)} }
