package engine

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
)

// Language says how code in it is started.
type Language struct {
	Names []string
	Ext   []string
	Run   []string // interpreter and its flags, before the file
	File  string   // name for code that has no file
}

func languages() []Language {
	return []Language{
		{[]string{"python", "python3", "py"}, []string{".py"}, []string{"python3"}, "main.py"},
		{[]string{"javascript", "js", "node"}, []string{".js", ".mjs", ".cjs"}, []string{"node"}, "main.js"},
		{[]string{"bash", "shell"}, []string{".sh", ".bash"}, []string{"bash"}, "main.sh"},
		{[]string{"sh"}, nil, []string{"sh"}, "main.sh"},
	}
}

// LanguageNamed finds a language by one of its names.
func LanguageNamed(name string) (*Language, error) {
	for _, l := range languages() {
		for _, n := range l.Names {
			if strings.EqualFold(n, name) {
				return &l, nil
			}
		}
	}
	return nil, box.Errorf(box.Invalid, "run", "cannot run language %q: known are %s", name, LanguageNames())
}

// LanguageOf finds a language by a file's extension; nil if there is none.
func LanguageOf(file string) *Language {
	for _, l := range languages() {
		for _, e := range l.Ext {
			if strings.EqualFold(path.Ext(file), e) {
				return &l
			}
		}
	}
	return nil
}

// LanguageNames lists the languages for a person.
func LanguageNames() string {
	var all []string
	for _, l := range languages() {
		all = append(all, l.Names[0])
	}
	return strings.Join(all, ", ")
}

// Shebang reads a #! line as the kernel does: one interpreter, and at most one
// argument, which may hold spaces. The interpreter is the box's, not the
// host's.
func Shebang(head []byte) []string {
	line, _, _ := bytes.Cut(head, []byte("\n"))
	rest, ok := bytes.CutPrefix(line, []byte("#!"))
	if !ok {
		return nil
	}
	// The kernel does not know that files of Windows end lines in \r\n.
	text := strings.Trim(strings.TrimSuffix(string(rest), "\r"), " \t")
	if text == "" {
		return nil
	}
	end := strings.IndexAny(text, " \t")
	if end < 0 {
		return []string{text}
	}
	return []string{text[:end], strings.TrimLeft(text[end:], " \t")}
}

// interpret is how code without a file is run: its language's way, or that of
// its first line if no language is named.
func interpret(language, code string) (run []string, file string, err error) {
	if language == "" {
		if run = Shebang([]byte(code)); run == nil {
			return nil, "", box.Errorf(box.Invalid, "run", "cannot tell the language of the code: name one (%s)", LanguageNames())
		}
		return run, "main", nil
	}
	l, err := LanguageNamed(language)
	if err != nil {
		return nil, "", err
	}
	return slices.Clone(l.Run), l.File, nil
}
