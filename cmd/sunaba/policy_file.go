package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/config"
	"github.com/sunaba-dev/sunaba/internal/egress/rules"
	"github.com/sunaba-dev/sunaba/internal/settings"
)

func readPolicyText(file string) ([]byte, error) { return readText("policy", file) }

// readText reads a file of which errors say what it should have been.
func readText(what, file string) ([]byte, error) {
	f, err := openPolicy(file)
	if err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", what, err)
	}
	defer f.Close()
	return textOf(what, file, f)
}

// openPolicy does not wait for who would write to a pipe of that name.
func openPolicy(file string) (*os.File, error) {
	return os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

func textOf(what, file string, f *os.File) ([]byte, error) {
	st, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot read %s: %w", what, err)
	case st.IsDir():
		return nil, fmt.Errorf("cannot read %s: %s is a folder", what, file)
	case !st.Mode().IsRegular():
		return nil, fmt.Errorf("cannot read %s: %s is no regular file", what, file)
	}
	text, err := io.ReadAll(io.LimitReader(f, settings.MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", what, err)
	}
	return text, nil
}

func readPolicy(file string) (*rules.Policy, error) {
	text, err := readPolicyText(file)
	if err != nil {
		return nil, err
	}
	return rules.Load(file, text)
}

// sendablePolicy is what a policy file says, as the key network.rules of a
// request. It is judged by who gets it, too.
func sendablePolicy(file string) (json.RawMessage, error) {
	text, err := readPolicyText(file)
	if err != nil {
		return nil, err
	}
	var c config.Config
	if err := c.Set("network.rules", string(text)); err != nil {
		// The file's own words have its name and lines.
		if _, err := rules.Load(file, text); err != nil {
			return nil, err
		}
		return nil, err
	}
	return json.RawMessage(c.Rules), nil
}

// readBoxPolicy reads the policy that a box will live under. No box may have
// been able to write it: an agent that edits its own policy in its workspace
// would be its own judge at the next run. What counts is the file that was
// opened, not its name. Folders are where boxes may write.
func readBoxPolicy(file string, folders []string) (*rules.Policy, error) {
	f, err := openPolicy(file)
	if err != nil {
		return nil, fmt.Errorf("cannot open policy: %w", err)
	}
	defer f.Close()
	if err := outOfReach(f, folders); err != nil {
		return nil, box.Errorf(box.Denied, "load policy", "cannot use policy %s: %v", file, err).
			WithHint("keep it in a folder that no box can write, owned by you")
	}
	text, err := textOf("policy", file, f)
	if err != nil {
		return nil, err
	}
	return rules.Load(file, text)
}

// checkConfigFile refuses a configuration that the box itself could write, which lives
// under it: it decides about all walls, and the box would choose them at the next run.
// Who else may write it is its owner's matter, as with any program's configuration.
func checkConfigFile(file string, folders []string) error {
	if len(folders) == 0 {
		return nil
	}
	f, err := openPolicy(file)
	if err != nil {
		return fmt.Errorf("cannot open configuration: %w", err)
	}
	defer f.Close()
	if err := outOfBoxes(f, folders, func(string, fs.FileInfo) error { return nil }); err != nil {
		return box.Errorf(box.Denied, "load configuration", "cannot use configuration %s: %v", file, err).
			WithHint("keep it in a folder that no box can write")
	}
	return nil
}

// outOfReach says how a box, or another user of this host, could write an open file.
func outOfReach(f *os.File, folders []string) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	switch {
	case !st.Mode().IsRegular():
		return fmt.Errorf("it is no regular file")
	case !ok:
		return fmt.Errorf("its owner is not known")
	case !ours(sys.Uid):
		return fmt.Errorf("it belongs to user %d, who is neither you nor root", sys.Uid)
	case st.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others than its owner may write it (mode %04o); `chmod go-w %s` ends that", st.Mode().Perm(), f.Name())
	}
	return outOfBoxes(f, folders, func(dir string, info fs.FileInfo) error {
		sys, ok := info.Sys().(*syscall.Stat_t)
		switch {
		case !ok || !ours(sys.Uid):
			return fmt.Errorf("the folder %s above it belongs to another user", dir)
		case info.Mode().Perm()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0:
			return fmt.Errorf("others may write to the folder %s above it (mode %04o); `chmod go-w %s` ends that", dir, info.Mode().Perm(), dir)
		}
		return nil
	})
}

// outOfBoxes says how a box that may write to folders could write an open file: by the
// file itself, or by a folder above it, of each of which above is asked, too. A further
// name of the file (a hard link, a bind mount) is not found by looking upwards; where
// boxes may write anything, a file with several names is refused.
func outOfBoxes(f *os.File, folders []string, above func(dir string, info fs.FileInfo) error) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	var writable []fs.FileInfo
	for _, dir := range folders {
		info, err := os.Stat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist): // then no file is in it
		case err != nil:
			return fmt.Errorf("a folder where the box may write cannot be looked at: %w", err)
		default:
			writable = append(writable, info)
		}
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); len(writable) > 0 && st.Mode().IsRegular() && (!ok || sys.Nlink > 1) {
		return fmt.Errorf("it has more names than one, and the box may write to a folder where one of them may be")
	}
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return fmt.Errorf("its place is not known: %w", err)
	}
	if !strings.HasPrefix(name, "/") && len(writable) > 0 {
		return nil // a pipe of the caller's
	}
	for dir := filepath.Dir(name); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("its place is not known: %w", err)
		}
		if err := above(dir, info); err != nil {
			return err
		}
		for _, w := range writable {
			if os.SameFile(w, info) || os.SameFile(w, st) {
				return fmt.Errorf("the box may write to it, since it may write to %s", dir)
			}
		}
		if dir == "/" || dir == "." {
			return nil
		}
	}
}

// ours reports whether a user is one who may judge boxes: root, or who runs
// this program.
func ours(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }
