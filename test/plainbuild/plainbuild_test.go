// Package plainbuild tests the binary that a person gets who does not use make:
// `go build ./cmd/sunaba` with whatever the machine has.
package plainbuild

import (
	"debug/elf"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
)

func TestPlainBuildOnAMachineWithACompilerRunsABox(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("no C compiler here, so a plain build does not use cgo")
	}
	bin := filepath.Join(t.TempDir(), "sunaba")
	build := exec.Command("go", "build", "-trimpath", "-o", bin, "./cmd/sunaba")
	build.Dir = harness.ModuleRoot()
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("cannot build: %v\n%s", err, out)
	}
	f, err := elf.Open(bin)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the binary needs a loader, which the sentry's empty root does not have")
		}
	}
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		for _, image := range []string{"host", "base"} {
			for range 3 {
				rep := runPlain(t, u, bin, image)
				if rep.Cause != box.Exited || rep.ExitCode == nil || *rep.ExitCode != 7 || rep.StdoutClean != "done\n" {
					t.Fatalf("%s: cause %s, stdout %q, error %+v", image, rep.Cause, rep.StdoutClean, rep.Error)
				}
				// What a cgo build cannot strip is said, and only where it is so.
				said := strings.Contains(strings.Join(rep.Weak, "\n"), "cgo")
				if want := image == "host"; said != want {
					t.Errorf("%s: weak %q", image, rep.Weak)
				}
			}
		}
	})
}

func runPlain(t *testing.T, u harness.User, bin, image string) box.Report {
	t.Helper()
	// Threads and children: what the C library's habits would trip over.
	const prog = `import threading, subprocess
ts = [threading.Thread(target=lambda: subprocess.run(["true"])) for _ in range(8)]
[t.start() for t in ts]; [t.join() for t in ts]
print("done"); raise SystemExit(7)`
	cmd := harness.Command(t.Context(), t, u, "run", "-o", "json", "--image", image, "--lang", "python", "-e", prog)
	harness.Give(t, u, filepath.Dir(bin))
	cmd.Path = bin
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if len(out) == 0 {
		t.Fatalf("no report: %v\n%s", err, errs.String())
	}
	var rep box.Report
	if err := json.Unmarshal(out, &rep); err != nil {
		t.Fatal(err)
	}
	return rep
}

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
