package hostfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrRefused means that a mount source is, lies in, or holds something that may
// not be shown to a box.
var ErrRefused = errors.New("refused")

// OpenMountSource opens a folder or regular file of the host that is to be
// mounted into a box, as an O_PATH descriptor for [CloneMount]. Links in the
// path are followed once, here; what they lead to is judged.
//
// Sockets, pipes and devices are refused. So is whatever shows a path in
// refused: the same object under any name (symbolic link, hard link, bind
// mount), anything below a refused folder, and a folder that holds a refused
// path, itself or in a file system mounted below it. Entries of refused that do
// not exist refuse their name and what is below it. Such errors match
// [ErrRefused].
//
// What appears in a folder after the check is not seen. A host socket that
// shows up in a mounted folder is still of no use in a gVisor box, whose file
// server refuses host sockets unless told otherwise (host-uds=none); another
// tier has to see to that itself.
func OpenMountSource(path string, refused []string) (*os.File, fs.FileInfo, error) {
	f, info, err := openHandle(path, 0)
	return judged(f, info, err, path, refused)
}

// OpenResolvedSource is [OpenMountSource] for a path whose links were resolved
// before: one that is there by now is an error. Whoever may write somewhere on
// the way, as a box may in a shared folder, leads it nowhere else.
func OpenResolvedSource(path string, refused []string) (*os.File, fs.FileInfo, error) {
	f, info, err := openStraight(path)
	return judged(f, info, err, path, refused)
}

func judged(f *os.File, info fs.FileInfo, err error, path string, refused []string) (*os.File, fs.FileInfo, error) {
	if err != nil {
		return nil, nil, fmt.Errorf("cannot open mount source: %w", err)
	}
	if err := judge(f, info, refused); err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("cannot mount %s: %w", path, err)
	}
	return f, info, nil
}

func judge(f *os.File, info fs.FileInfo, refused []string) error {
	if !info.IsDir() && !info.Mode().IsRegular() {
		return fmt.Errorf("%w: it is %s, not a folder or a regular file", ErrRefused, kindOf(info.Mode()))
	}
	table, err := readMounts()
	if err != nil {
		return err
	}
	src, err := table.locate(f)
	if err != nil {
		return err
	}
	shown := append([]place{src}, table.below(src.path)...)
	for _, r := range refused {
		if err := judgeOne(f, info, src, shown, filepath.Clean(r), table); err != nil {
			return err
		}
	}
	return nil
}

func judgeOne(f *os.File, info fs.FileInfo, src place, shown []place, r string, table mountTable) error {
	if isWithin(r, src.path) {
		return fmt.Errorf("%w: it is, or lies in, %s", ErrRefused, r)
	}
	rf, rinfo, err := openHandle(r, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		// Not ours to look at: its name is all there is to go by.
		if isWithin(src.path, r) {
			return fmt.Errorf("%w: it holds %s", ErrRefused, r)
		}
		return nil
	}
	defer rf.Close()
	if os.SameFile(info, rinfo) {
		return fmt.Errorf("%w: it is %s under another name", ErrRefused, r)
	}
	bad, err := table.locate(rf)
	if err != nil {
		return err
	}
	if isWithin(bad.path, src.path) || bad.holds(src) {
		return fmt.Errorf("%w: it lies in %s", ErrRefused, r)
	}
	if isWithin(src.path, bad.path) {
		return fmt.Errorf("%w: it holds %s", ErrRefused, r)
	}
	for _, s := range shown {
		if s.holds(bad) || bad.holds(s) {
			return fmt.Errorf("%w: it holds %s, at %s", ErrRefused, r, s.path)
		}
	}
	if n := rinfo.Sys().(*syscall.Stat_t).Nlink; info.IsDir() && rinfo.Mode().IsRegular() && n > 1 {
		return searchLink(f, rinfo, r)
	}
	return nil
}

// maxSearch bounds the search for a second name of a refused file.
const maxSearch = 10_000

// searchLink looks in a folder for a hard link to a refused file. It runs only
// for a refused file that has several names, which is rare.
func searchLink(dir *os.File, bad fs.FileInfo, name string) error {
	seen := 0
	return filepath.WalkDir(procPath(dir)+"/.", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // unreadable for us, and no regular file that we could compare
		}
		if seen++; seen > maxSearch {
			return fmt.Errorf("%w: %s has several names and the folder has too many files to look for them", ErrRefused, name)
		}
		if !e.Type().IsRegular() {
			return nil
		}
		if i, err := e.Info(); err == nil && os.SameFile(i, bad) {
			return fmt.Errorf("%w: it holds a hard link to %s", ErrRefused, name)
		}
		return nil
	})
}

// isWithin reports whether p is dir or below it, both absolute and clean.
func isWithin(dir, p string) bool {
	if dir == "/" {
		return true
	}
	rest, ok := strings.CutPrefix(p, dir)
	return ok && (rest == "" || rest[0] == '/')
}

// IsInode reports whether info is of the inode with that device and number.
func IsInode(info fs.FileInfo, dev, ino uint64) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && uint64(st.Dev) == dev && st.Ino == ino
}
