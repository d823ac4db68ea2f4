package agent

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Place unpacks a tar stream of folders and regular files below root, with
// their owners. The stream comes from the host, before any program has run.
func Place(r io.Reader, root string) error {
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot read files: %w", err)
		}
		p := filepath.Join(root, h.Name)
		switch h.Typeflag {
		case tar.TypeDir:
			err = placeDir(p, h)
		case tar.TypeReg:
			err = placeFile(p, h, tr)
		default:
			err = fmt.Errorf("cannot place %s: not a folder or a file", p)
		}
		if err != nil {
			return err
		}
	}
}

func placeDir(p string, h *tar.Header) error {
	if p == "/" {
		return nil
	}
	switch err := os.Mkdir(p, fs.FileMode(h.Mode)); {
	case os.IsExist(err):
		return nil // the image's, which may be read-only, or a writable place
	case err != nil:
		return fmt.Errorf("cannot place folder: %w", err)
	}
	if err := syscall.Lchown(p, h.Uid, h.Gid); err != nil {
		return fmt.Errorf("cannot give folder %s to its owner: %w", p, err)
	}
	return nil
}

func placeFile(p string, h *tar.Header, r io.Reader) error {
	f, err := os.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, fs.FileMode(h.Mode))
	if err != nil {
		return fmt.Errorf("cannot place file: %w", err)
	}
	if _, err := io.Copy(f, r); err != nil {
		f.Close()
		return fmt.Errorf("cannot place %s: %w", p, err)
	}
	if err := f.Chown(h.Uid, h.Gid); err != nil {
		f.Close()
		return fmt.Errorf("cannot give %s to its owner: %w", p, err)
	}
	if err := f.Chmod(fs.FileMode(h.Mode)); err != nil {
		f.Close()
		return fmt.Errorf("cannot set mode of %s: %w", p, err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("cannot place %s: %w", p, err)
	}
	return nil
}
