package seccomp

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestTableNamesEveryCall reads the lists of system calls that golang.org/x/sys
// made from the kernel's headers. A number in our table must be theirs, and a
// call that a new version of theirs brings must be decided about here.
func TestTableNamesEveryCall(t *testing.T) {
	dir := sysDir(t)
	beyond := map[string]bool{"uprobe": true} // younger than that version of x/sys; linux/arch/x86/entry/syscalls/syscall_64.tbl
	for _, goarch := range []string{"amd64", "arm64"} {
		theirs := numbers(t, filepath.Join(dir, "unix", "zsysnum_linux_"+goarch+".go"))
		if len(theirs) < 300 {
			t.Fatalf("%s: read %d numbers only", goarch, len(theirs))
		}
		delete(theirs, "arch_specific_syscall") // not a call: the start of a range
		m := &machine{goarch: goarch}
		seen, used := map[string]bool{}, map[int]string{}
		for _, r := range Table() {
			nr := m.number(r)
			if seen[r.Name] {
				t.Errorf("%s is listed twice", r.Name)
			}
			seen[r.Name] = true
			if nr < 0 {
				if n, ok := theirs[r.Name]; ok {
					t.Errorf("%s: %s is said not to exist and is %d", goarch, r.Name, n)
				}
				continue
			}
			if used[nr] != "" {
				t.Errorf("%s: %d is %s and %s", goarch, nr, used[nr], r.Name)
			}
			used[nr] = r.Name
			if n, ok := theirs[r.Name]; !beyond[r.Name] && (!ok || n != nr) {
				t.Errorf("%s: %s is %d here and %d in x/sys", goarch, r.Name, nr, n)
			}
		}
		for name := range theirs {
			if !seen[name] {
				t.Errorf("%s: %s has no rule: decide what a box may do with it", goarch, name)
			}
		}
	}
}

// TestRefusalsHaveReasons: who meets a refusal reads the table to learn why.
func TestRefusalsHaveReasons(t *testing.T) {
	for _, r := range Table() {
		if r.Group == "" {
			t.Errorf("%s has no group", r.Name)
		}
		if r.Else != Allow && r.Why == "" {
			t.Errorf("%s is refused without a reason", r.Name)
		}
		for _, c := range r.Clauses {
			if c.Then != Allow && c.Why == "" && c.Then.Errno() != noType.Errno() {
				t.Errorf("%s is refused by a clause without a reason: %v", r.Name, c.When)
			}
		}
	}
}

func numbers(t *testing.T, path string) map[string]int {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^\s*SYS_(\w+)\s*=\s*(\d+)$`).FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		out[strings.ToLower(m[1])] = n
	}
	return out
}

// sysDir is the folder of the version of golang.org/x/sys that is linked in.
func sysDir(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys")
	cmd.Env = os.Environ()
	out, err := cmd.Output()
	if dir := strings.TrimSpace(string(out)); err == nil && dir != "" {
		return dir
	}
	t.Skipf("needs the go command and the module's source: %v", err)
	return ""
}
