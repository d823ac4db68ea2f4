package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host/hostfs"
)

// removeTree removes an extracted tree, if there is one. While a box uses it,
// it stays and the error is box.Exhausted.
func (s *Store) removeTree(digest string) error {
	name := s.treePath(digest)
	f, err := openDir(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot remove extracted tree: %w", err)
	}
	defer f.Close()
	if !lockDir(f, syscall.LOCK_EX) {
		return box.Errorf(box.Exhausted, "remove image", "cannot remove %s: a box is using it", name)
	}
	// Under another name nobody finds it, and the lock says that it is ours.
	gone := filepath.Join(s.treePath(""), "tmp-"+filepath.Base(name))
	if err := removeTreeAt(gone); err != nil {
		return err
	}
	if err := os.Remove(name + recordExt); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove extracted tree: %w", err)
	}
	if err := os.Rename(name, gone); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove extracted tree: %w", err)
	}
	return removeTreeAt(gone)
}

func removeTreeAt(name string) error { return hostfs.RemoveTree(context.Background(), name) }

// sweepTrees removes what extractions and removals that were interrupted left.
func (s *Store) sweepTrees() error {
	return s.eachTree(func(name string) error {
		if !strings.HasPrefix(name, "tmp-") {
			return nil
		}
		name = filepath.Join(s.treePath(""), name)
		f, err := openDir(name)
		if err != nil {
			return nil // gone
		}
		defer f.Close()
		if !lockDir(f, syscall.LOCK_EX) {
			return nil // somebody is at work in it
		}
		return removeTreeAt(name)
	})
}

// sweepOrphans removes the trees whose image is gone, unless a box uses them.
func (s *Store) sweepOrphans() error {
	return s.eachTree(func(name string) error {
		digest := prefix + strings.TrimSuffix(name, recordExt)
		if !validDigest(digest) {
			return nil
		}
		if _, err := os.Lstat(s.file(digest, imageExt)); !errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err := s.removeTree(digest); err != nil && box.KindOf(err) != box.Exhausted {
			return err
		}
		return nil
	})
}

func (s *Store) eachTree(do func(name string) error) error {
	names, err := os.ReadDir(s.treePath(""))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot list extracted trees: %w", err)
	}
	for _, n := range names {
		if err := do(n.Name()); err != nil {
			return err
		}
	}
	return nil
}
