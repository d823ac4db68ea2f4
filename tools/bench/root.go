package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/sunaba-dev/sunaba/internal/host/seccomp"
	"github.com/sunaba-dev/sunaba/internal/image"
)

// scratch is a folder for everything that the peers need, kept between runs.
type scratch string

func (s scratch) path(parts ...string) string {
	return filepath.Join(append([]string{string(s)}, parts...)...)
}

func (s scratch) folders(names ...string) error {
	for _, n := range append([]string{"."}, names...) {
		if err := os.Mkdir(s.path(n), 0o711); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("cannot make scratch folder: %w", err)
		}
	}
	return nil
}

// file replaces a file of the scratch folder.
func (s scratch) file(name string, content []byte) error {
	f, err := os.OpenFile(s.path(name), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", name, err)
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// prepare makes the one root file system that all peers use: the base image of
// our own tiers, as a folder and as an archive.
func (s scratch) prepare(ctx context.Context, log io.Writer) (root string, err error) {
	if err := s.folders("state", "state/images", "bundles", "docker", "podman"); err != nil {
		return "", err
	}
	store, err := image.OpenStore(s.path("state", "images"))
	if err != nil {
		return "", err
	}
	fmt.Fprintln(log, "bench: making the base image and its folder, unless they are there")
	img, err := store.Base(ctx, image.BaseOptions{}, nil)
	if err != nil {
		return "", err
	}
	defer img.Close()
	tree, err := store.Tree(ctx, img, nil)
	if err != nil {
		return "", err
	}
	defer tree.Close()
	if _, err := os.Stat(s.path(img.Digest[7:] + ".tar")); err != nil {
		if err := exec1(log, "tar", "-C", tree.Name(), "-cf", s.path("root.tar.part"), "."); err != nil {
			return "", err
		}
		if err := os.Rename(s.path("root.tar.part"), s.path(img.Digest[7:]+".tar")); err != nil {
			return "", err
		}
	}
	return tree.Name(), nil
}

// tag names the archive's image: another root gets another name.
func tag(root string) string { return "sunaba-bench:" + filepath.Base(root)[:12] }

func (s scratch) archive(root string) string { return s.path(filepath.Base(root) + ".tar") }

// filter writes our tier's system call filter for bubblewrap's --seccomp.
func (s scratch) filter() error {
	prog, err := seccomp.Compile(runtime.GOARCH)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	for _, i := range prog {
		if err := binary.Write(&b, binary.NativeEndian, i); err != nil {
			return fmt.Errorf("cannot write filter: %w", err)
		}
	}
	return s.file("seccomp.bpf", b.Bytes())
}

// bundle makes an OCI bundle for a command: what `runc spec` gives, with our
// root, read-only, and the limits that all peers have.
func (s scratch) bundle(runtime, root, name string, argv []string) (string, error) {
	dir := "bundles/" + name
	if err := s.folders(dir); err != nil {
		return "", err
	}
	if err := os.Remove(s.path(dir, "config.json")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	if err := exec1(nil, runtime, "spec", "--bundle", s.path(dir)); err != nil {
		return "", err
	}
	b, err := os.ReadFile(s.path(dir, "config.json"))
	if err != nil {
		return "", err
	}
	var c map[string]any
	if err := json.Unmarshal(b, &c); err != nil {
		return "", fmt.Errorf("cannot read bundle: %w", err)
	}
	process, ok := c["process"].(map[string]any)
	linux, ok2 := c["linux"].(map[string]any)
	if !ok || !ok2 {
		return "", fmt.Errorf("cannot read bundle of %s: it has no process or no linux part", runtime)
	}
	process["terminal"], process["args"] = false, argv
	process["rlimits"] = []map[string]any{{"type": "RLIMIT_NOFILE", "hard": limitFiles, "soft": limitFiles}}
	c["root"] = map[string]any{"path": root, "readonly": true}
	resources, _ := linux["resources"].(map[string]any)
	if resources == nil {
		resources = map[string]any{}
	}
	resources["memory"] = map[string]any{"limit": limitMemory, "swap": limitMemory}
	resources["pids"] = map[string]any{"limit": limitTasks}
	resources["cpu"] = map[string]any{"quota": 100000 * limitCPUs, "period": 100000}
	linux["resources"] = resources
	b, err = json.Marshal(c)
	if err != nil {
		return "", err
	}
	return s.path(dir), s.file(dir+"/config.json", b)
}

// Limits of every peer that can have them: our defaults.
const (
	limitMemory = 512 << 20 // bytes
	limitCPUs   = 1
	limitTasks  = 32
	limitFiles  = 256 // open ones
)

// path is where peers are looked for. /usr/local is not in it: what shadows a
// distribution's program there need not be that program.
const path = "/usr/sbin:/usr/bin:/sbin:/bin"

func childEnv() []string { return []string{"PATH=" + path, "HOME=/root", "LANG=C.UTF-8"} }

// find returns a program in path.
func find(name string) (string, error) {
	for _, dir := range filepath.SplitList(path) {
		p := filepath.Join(dir, name)
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s is not installed", name)
}

// exec1 runs a program of the host to its end; its output goes to log, or into
// the error.
func exec1(log io.Writer, name string, args ...string) error {
	_, err := output(log, name, args...)
	return err
}

func output(log io.Writer, name string, args ...string) (string, error) {
	p, err := find(name)
	if err != nil && filepath.IsAbs(name) {
		p, err = name, nil
	}
	if err != nil {
		return "", err
	}
	var out, errs bytes.Buffer
	cmd := exec.Command(p, args...)
	cmd.Env = childEnv()
	cmd.Stdout, cmd.Stderr = &out, &errs
	if log != nil {
		cmd.Stderr = io.MultiWriter(log, &errs)
	}
	if err := cmd.Run(); err != nil {
		text := bytes.TrimSpace(errs.Bytes())
		return "", fmt.Errorf("cannot run %s: %w: %s", filepath.Base(name), err, text[max(0, len(text)-300):])
	}
	return out.String(), nil
}
