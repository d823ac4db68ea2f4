package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/engine"
	"github.com/sunaba-dev/sunaba/internal/host/hostfs"
)

// maxScript bounds code that comes by argument, file or standard input.
const maxScript = 64 << 20

// program is what to start in the box and which files it needs there.
type program struct {
	argv      []string
	seeds     []box.Seed
	eatsStdin bool // the code itself was read from standard input
}

// programOf finds out what the command line asks to run.
func programOf(f *runFlags, stdin io.Reader) (program, error) {
	switch {
	case f.hasCode && f.command:
		return program{}, errors.New("cannot run both -e and a command after --: choose one")
	case f.hasCode:
		return codeProgram(f, []byte(f.code), "-e")
	case f.command:
		if len(f.args) == 0 {
			return program{}, errors.New("cannot run: no command after --")
		}
		return program{argv: f.args}, nil
	case len(f.args) == 0:
		return program{}, errors.New("cannot run: no file, no -e and no command; see `sunaba run -h`")
	case f.args[0] == "-":
		code, err := io.ReadAll(io.LimitReader(stdin, maxScript+1))
		if err != nil {
			return program{}, fmt.Errorf("cannot read code from standard input: %w", err)
		}
		if len(code) > maxScript {
			return program{}, fmt.Errorf("cannot run code from standard input: it is over %d MiB", maxScript>>20)
		}
		f.args = f.args[1:]
		p, err := codeProgram(f, code, "-")
		p.eatsStdin = true
		return p, err
	}
	return fileProgram(f)
}

// codeProgram runs code that has no file of its own.
func codeProgram(f *runFlags, code []byte, what string) (program, error) {
	run := engine.Shebang(code)
	name := "main"
	if f.lang != "" {
		l, err := engine.LanguageNamed(f.lang)
		if err != nil {
			return program{}, err
		}
		run, name = l.Run, l.File
	}
	if run == nil {
		e := box.Errorf(box.Invalid, "run", "cannot tell the language of %s: give --lang (%s)", what, engine.LanguageNames())
		if slices.Contains(f.args, "--lang") {
			return program{}, e.WithHint("flags come before %s; what follows it belongs to the program", what)
		}
		return program{}, e
	}
	file := path.Join(f.cfg.Workdir, name)
	return program{
		argv:  append(append(run, file), f.args...),
		seeds: []box.Seed{bytesSeed(file, 0o755, code)},
	}, nil
}

// fileProgram runs a file of the caller's: a script in a known language, or
// any program that the box can execute.
func fileProgram(f *runFlags) (program, error) {
	name := f.args[0]
	target := path.Join(f.cfg.Workdir, filepath.Base(name))
	seed, head, err := fileSeed(name, target)
	if errors.Is(err, fs.ErrNotExist) {
		e := box.Errorf(box.Invalid, "run", "cannot find file %s", name)
		if filepath.Base(name) == name && engine.LanguageOf(name) == nil {
			e = e.WithHint("to run a command of the box, write `sunaba run -- %s`", strings.Join(f.args, " "))
		}
		return program{}, e
	}
	if err != nil {
		return program{}, err
	}
	var run []string
	switch {
	case f.lang != "":
		l, err := engine.LanguageNamed(f.lang)
		if err != nil {
			return program{}, err
		}
		run = l.Run
	case engine.LanguageOf(name) != nil:
		run = engine.LanguageOf(name).Run
	case engine.Shebang(head) != nil:
		run = engine.Shebang(head)
	case bytes.HasPrefix(head, []byte("\x7fELF")):
		seed.Mode = 0o755
	default:
		return program{}, fmt.Errorf("cannot tell how to run %s: it has no known extension, no #! line and is no program; give --lang (%s)", name, engine.LanguageNames())
	}
	return program{argv: append(append(run, target), f.args[1:]...), seeds: []box.Seed{seed}}, nil
}

// fileSeed prepares a copy of a caller's file, by descriptor: what is checked
// is what is copied. Links, pipes and devices are refused.
func fileSeed(name, target string) (box.Seed, []byte, error) {
	f, st, err := hostfs.OpenInput(name)
	if err != nil {
		return box.Seed{}, nil, err
	}
	head := make([]byte, 512)
	n, err := f.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		f.Close()
		return box.Seed{}, nil, fmt.Errorf("cannot read %s: %w", name, err)
	}
	mode := fs.FileMode(0o644)
	if st.Mode()&0o111 != 0 {
		mode = 0o755
	}
	return box.Seed{
		Path: target, Mode: mode, Size: st.Size(),
		Open: func() (io.ReadCloser, error) { return f, nil },
	}, head[:n], nil
}

func bytesSeed(target string, mode fs.FileMode, b []byte) box.Seed {
	return box.Seed{
		Path: target, Mode: mode, Size: int64(len(b)),
		Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil },
	}
}

// extraSeeds are --input and --copy.
func extraSeeds(f *runFlags) ([]box.Seed, error) {
	var seeds []box.Seed
	if f.input != "" {
		s, _, err := fileSeed(f.input, path.Join(f.cfg.Workdir, "input.json"))
		if err != nil {
			return nil, err
		}
		seeds = append(seeds, s)
	}
	for _, c := range f.copies {
		src, name, ok := strings.Cut(c, ":")
		if !ok {
			name = filepath.Base(src)
		}
		if name == "" || name == "." || path.IsAbs(name) || path.Clean(name) != name || strings.HasPrefix(name, "..") {
			return nil, fmt.Errorf("cannot copy %q: the name in the box must be relative to the working folder and stay in it", c)
		}
		s, _, err := fileSeed(src, path.Join(f.cfg.Workdir, name))
		if err != nil {
			return nil, err
		}
		seeds = append(seeds, s)
	}
	return seeds, nil
}

func absolute(p string) (string, error) {
	a, err := filepath.Abs(p)
	if err != nil {
		return "", fmt.Errorf("cannot make %s absolute: %w", p, err)
	}
	return a, nil
}
