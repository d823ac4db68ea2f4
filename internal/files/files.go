// Package files moves files between the host and a box as archives, and trusts
// none of them.
//
// What goes in is built here: a tar stream that is the same byte for byte
// whenever the files are, made from exactly as many bytes as were promised
// ([BuildSeedTar]). What comes out was made by a hostile program, perhaps with
// the archive's framing itself under its control. It is read once, front to
// back, against a [Budget]; only regular files with names that stay below their
// folder are looked at; links, devices and pipes are counted and left behind;
// an archive that lies, ends early or never ends is an error ([ReadArchive]).
//
// Names are bytes. Newlines and invalid UTF-8 are legal in a Linux name and are
// kept raw; making them presentable is the business of whoever shows them.
package files

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
)

// Budget bounds what one archive may cost. Every field must be above zero.
type Budget struct {
	Bytes     int64 // content of all files together, sparse holes counted in full
	FileBytes int64 // content of one file; a larger one is skipped and noted
	Entries   int   // members of any kind
	NameBytes int64 // names of accepted files together: they are held in memory
}

// DefaultBudget suits a workspace of one gibibyte with 100,000 files.
func DefaultBudget() Budget {
	return Budget{Bytes: 1 << 30, FileBytes: 1 << 30, Entries: 200_000, NameBytes: 32 << 20}
}

// Errors of [ReadArchive], for errors.Is.
var (
	// ErrBudget means that the archive costs more than it may.
	ErrBudget = errors.New("archive exceeds its budget")
	// ErrArchive means that the archive is damaged, cut short or lies.
	ErrArchive = errors.New("bad archive")
)

// Digest reads r to its end and returns its size and SHA-256 in hex.
func Digest(r io.Reader) (size int64, sum string, err error) {
	h := sha256.New()
	size, err = io.Copy(h, r)
	return size, hex.EncodeToString(h.Sum(nil)), err
}
