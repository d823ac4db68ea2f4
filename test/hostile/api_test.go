package hostile

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// apiCase is an attack that needs the caller's side as well.
type apiCase struct {
	id   string
	what string
	run  func(t *testing.T, p place)
	// elsewhere names the test that has it, if that is not here: a file of this
	// module and a function.
	elsewhere [2]string
}

func apiCases() []apiCase {
	return []apiCase{
		{id: "H37", what: "a link among the results", run: linkAsResult},
		{id: "H38", what: "a folder swapped while files are put into it", elsewhere: [2]string{"test/api/testdata/cases.txtar", "H38-folder-that-is-a-link-now-and-then"}},
		{id: "H39", what: "a link where a result is saved", run: linkWhereSaved},
		{id: "H42", what: "pipes and sockets among the results", run: specialResults},
		{id: "H47", what: "results in a deep tree", run: deepResults},
		{id: "H49", what: "what one box leaves for the next", run: nextBox},
		{id: "H50", what: "a device file that is none", elsewhere: [2]string{"internal/host/jail/jail_test.go", "TestDevicesAreWhatTheirNamesSay"}},
		{id: "H51", what: "an image with links for mount points", elsewhere: [2]string{"internal/host/jail/jail_test.go", "TestImageWithLinksForMountPointsIsRefused"}},
		{id: "H82", what: "rules for the network that say nothing, or nonsense", run: networkRules},
		{id: "H87", what: "a token of another tenant", elsewhere: [2]string{"internal/engine/service_test.go", "TestAnotherTenantsBoxIsAsIfItWereNot"}},
		{id: "H97", what: "the posture of gvisor's processes", elsewhere: [2]string{"test/posture/walls_test.go", "TestWallsOfALiveBox"}},
		{id: "H97", what: "the posture of the process tier's processes", elsewhere: [2]string{"test/posture/walls_process_test.go", "TestWallsOfALiveProcessBox"}},
		{id: "CVE-2019-5736", what: "a program whose interpreter is the program that starts it", run: interpreterIsAgent},
		{id: "", what: "limits of PID 1, without which results cannot be read", run: limitsOfFirst},
		{id: "CVE-2024-21626", what: "a working folder that is a descriptor", run: folderIsDescriptor},
	}
}

func TestAttacksOnTheCaller(t *testing.T) {
	for _, p := range places() {
		t.Run(string(p.tier)+"/"+string(p.user), func(t *testing.T) {
			harness.NothingLeft(t)
			n := settle(t, p)
			for _, c := range apiCases() {
				t.Run(strings.TrimSpace(c.id+" "+c.what), func(t *testing.T) {
					if c.run == nil {
						text, err := os.ReadFile(filepath.Join(harness.ModuleRoot(), c.elsewhere[0]))
						if err != nil || !strings.Contains(string(text), c.elsewhere[1]) {
							t.Errorf("%s of %s is not there: %v", c.elsewhere[1], c.elsewhere[0], err)
						}
						return
					}
					c.run(t, p)
					n.say(t, c.what)
				})
			}
			n.leave(t)
		})
	}
}

// shell runs a script in a box and wants it to come to its end.
func shell(t *testing.T, p place, script string, more ...string) box.Report {
	t.Helper()
	args := slices.Concat(flags(p.tier), more, []string{"--", "sh", "-c", "echo witness\n" + script + "\necho witness"})
	rep := harness.Report(t, p.user, args...)
	if rep.Error != nil || rep.Cause != box.Exited || strings.Count(rep.StdoutClean, "witness\n") != 2 {
		t.Fatalf("the script did not come to its end: %s %+v %.500q %.500q", rep.Cause, rep.Error, rep.StdoutClean, rep.StderrClean)
	}
	return rep
}

// entries lists what is in a folder, with its kind.
func entries(t *testing.T, dir string) (all []string) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && path != dir {
			rel, _ := filepath.Rel(dir, path)
			all = append(all, e.Type().String()+" "+rel)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// unchanged remembers a file and returns a check that it is the same: its
// content, owner, mode, links and times, but that of the last access.
func unchanged(t *testing.T, path string) func() {
	t.Helper()
	look := func() string {
		var st syscall.Stat_t
		if err := syscall.Lstat(path, &st); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%o %d:%d %d %d %v %v %s", st.Mode, st.Uid, st.Gid, st.Nlink, st.Ino, st.Mtim, st.Ctim, text)
	}
	before := look()
	return func() {
		t.Helper()
		if after := look(); after != before {
			t.Errorf("%s was %s, is %s", path, before, after)
		}
	}
}

func linkAsResult(t *testing.T, p place) {
	c, out := release(t, p.user), harness.Dir(t, p.user)
	check := unchanged(t, c.File)
	rep := shell(t, p, fmt.Sprintf(`ln -s %[1]s out.txt; ln -s %[1]s output.json; ln -s %[2]s folder; ln -s ../../.. up; ln -s /proc/self/exe exe
		ln -s /proc/1/root/etc/passwd one; mkdir real; ln -s %[1]s real/link; ln -s loop loop; echo fine > real/file`, c.File, c.dir), "--out", out)
	check()
	if got, want := entries(t, out), []string{"d--------- real", "---------- real/file"}; !slices.Equal(got, want) {
		t.Errorf("saved were %q, want %q", got, want)
	}
	for _, a := range rep.Artifacts {
		if (a.Saved != "") != (a.Path == "real/file") || strings.Contains(fmt.Sprint(a), c.Secret) {
			t.Errorf("artifact %+v", a)
		}
	}
	if len(rep.Output) > 0 && string(rep.Output) != "null" {
		t.Errorf("output.json was read through a link: %s", rep.Output)
	}
}

func linkWhereSaved(t *testing.T, p place) {
	c, out := release(t, p.user), harness.Dir(t, p.user)
	for _, l := range []string{"result", "folder"} {
		to := map[string]string{"result": c.File, "folder": c.dir}[l]
		if err := os.Symlink(to, filepath.Join(out, l)); err != nil {
			t.Fatal(err)
		}
	}
	before := entries(t, c.dir)
	check := unchanged(t, c.File)
	rep := shell(t, p, `echo mine > result; mkdir folder; echo mine > folder/canary; echo mine > folder/new`, "--out", out)
	check()
	if got := entries(t, c.dir); !slices.Equal(got, before) {
		t.Errorf("the folder that a link led to was %q, is %q", before, got)
	}
	for _, a := range rep.Artifacts {
		if strings.HasPrefix(a.Path, "folder/") && (a.Saved != "" || a.Error == "") {
			t.Errorf("artifact %+v was saved through a link", a)
		}
	}
}

func specialResults(t *testing.T, p place) {
	out := harness.Dir(t, p.user)
	rep := shell(t, p, `mkfifo out.csv output.json; python3 -c "import socket; socket.socket(1).bind('s')"; mkdir d; mkfifo d/p; chmod 0 d; echo fine > file`, "--out", out)
	if got, want := entries(t, out), []string{"---------- file"}; !slices.Equal(got, want) {
		t.Errorf("saved were %q, want %q", got, want)
	}
	if len(rep.Output) > 0 && string(rep.Output) != "null" {
		t.Errorf("output.json is %s", rep.Output)
	}
}

func deepResults(t *testing.T, p place) {
	out := harness.Dir(t, p.user)
	rep := shell(t, p, `python3 -c "
import os
for _ in range(1500): os.mkdir('d'); os.chdir('d')
open('file', 'w').write('deep')"
		echo fine > file`, "--out", out)
	if !slices.ContainsFunc(rep.Artifacts, func(a box.Artifact) bool { return a.Path == "file" && a.Saved != "" }) {
		t.Errorf("a file beside a deep tree was not saved: %.300v", rep.Artifacts)
	}
}

func nextBox(t *testing.T, p place) {
	const script = `for f in /dev/shm/t /tmp/t /var/tmp/t /home/user/t /home/user/.bashrc /workspace/t /workspace/.git/hooks/pre-commit "$(python3 -c 'import site; print(site.getusersitepackages())')/z.pth"; do
		test -e "$f" && echo "found $f"; mkdir -p "$(dirname "$f")"; echo mine > "$f" || echo "cannot write $f"; done
		printf 'import os' > "$(python3 -c 'import site; print(site.getsitepackages()[0])')/z.pth" && echo poisoned`
	for range 2 {
		if rep := shell(t, p, script); rep.StdoutClean != "witness\nwitness\n" {
			t.Errorf("a box said %q", rep.StdoutClean)
		}
	}
}

// networkRules are told with what a box that is made by them says: its interfaces,
// and whether a name leads anywhere. What is empty is refused.
func networkRules(t *testing.T, p place) {
	const nothing, answers = "ran lo", "ran lo eth0"
	for text, want := range map[string]string{
		"mode: none, allowlist: []":                     nothing,
		"mode: none, allowlist: [\"example.test:443\"]": "",
		"mode: allowlist, allowlist: []":                answers, // a network in which nothing is allowed
		"mode: allowlist, allowlist: [\"*:*:*\"]":       "",
		"mode: none, allowlist: [\"\"]":                 "",
		"mode: none, allowlist: {}":                     "",
		"mode: any":                                     "",
		"mod: none":                                     "",
	} {
		file := filepath.Join(harness.Dir(t, p.user), "sunaba.yaml")
		if err := os.WriteFile(file, []byte("sandbox:\n  network: {"+text+"}\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		args := slices.Concat([]string{"--config", file}, flags(p.tier), []string{"--", "sh", "-c", "echo ran; cut -d: -f1 /proc/net/dev | tail -n +3; getent hosts example.test"})
		rep := harness.Report(t, p.user, args...)
		if got := strings.Join(strings.Fields(rep.StdoutClean), " "); got != want {
			t.Errorf("%s: %q, not %q", text, got, want)
		}
		if want == "" && (rep.Error == nil || rep.Error.Kind != box.Invalid && rep.Error.Kind != box.Unsupported) {
			t.Errorf("%s: error %+v", text, rep.Error)
		}
	}
}

// interpreterIsAgent lets the agent execute itself, in the hope that its file
// can then be opened for writing.
func interpreterIsAgent(t *testing.T, p place) {
	file := filepath.Join(harness.Dir(t, p.user), "a")
	if err := os.WriteFile(file, []byte("#!/proc/self/exe\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{{"./a"}, {"/proc/self/exe"}, {"/proc/1/exe"}} {
		rep := harness.Report(t, p.user, slices.Concat(flags(p.tier), []string{"--timeout", "120", "--copy", file, "--"}, argv)...)
		if rep.Cause == box.Exited && *rep.ExitCode == 0 || rep.Cause == box.Deadline || rep.Cause == box.Lost {
			t.Errorf("%q: it ended by %s: %q", argv, rep.Cause, rep.StdoutClean)
		}
	}
}

func folderIsDescriptor(t *testing.T, p place) {
	for _, dir := range []string{"/proc/self/fd/7", "/proc/self/fd/8/../..", "/proc/self/cwd", "/dev/fd/7", "/proc/1/root"} {
		rep := harness.Report(t, p.user, slices.Concat(flags(p.tier), []string{"--writable-dir", dir, "--", "pwd"})...)
		if rep.Error == nil || rep.Error.Kind != box.Invalid && rep.Error.Kind != box.Denied {
			t.Errorf("%s: it ended by %s, %+v: %q", dir, rep.Cause, rep.Error, rep.StdoutClean)
		}
	}
}

// limitsOfFirst takes from PID 1 what it needs to hand out results. It may
// succeed: then the result has to say that there is none.
func limitsOfFirst(t *testing.T, p place) {
	for _, limit := range []string{"NOFILE, (4, 4)", "NOFILE, (0, 0)", "AS, (1 << 20,) * 2", "FSIZE, (0, 0)", "STACK, (4096,) * 2", "NPROC, (1, 1)"} {
		rep := shell(t, p, fmt.Sprintf(`echo x > file; python3 -c 'import resource; resource.prlimit(1, resource.RLIMIT_%s)' 2>/dev/null`, limit))
		there := slices.ContainsFunc(rep.Artifacts, func(a box.Artifact) bool { return a.Path == "file" && a.Error == "" })
		if there == (rep.ArtifactsError != "") {
			t.Errorf("%s: the file is there: %v, and the result says %q", limit, there, rep.ArtifactsError)
		}
		if p.tier == box.TierGvisor && !there {
			t.Errorf("%s: the guest's PID 1 was reached: %s", limit, rep.ArtifactsError)
		}
	}
}
