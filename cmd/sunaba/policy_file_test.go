package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/config"
)

// TestAPolicyIsNeverReadFromWhereABoxMayWrite has case L 142 of the attack
// list: an agent edits the policy file in its workspace.
func TestAPolicyIsNeverReadFromWhereABoxMayWrite(t *testing.T) {
	top := t.TempDir()
	folder := func(names ...string) string {
		dir := filepath.Join(append([]string{top}, names...)...)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	write := func(file string) string {
		if err := os.WriteFile(file, []byte("version: 1\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	work, safe, other := folder("work"), folder("safe"), folder("other")
	inside, below, outside := write(filepath.Join(work, "p.yaml")), write(filepath.Join(folder("work", "a", "b"), "p.yaml")), write(filepath.Join(safe, "p.yaml"))
	link, dirLink, workLink := filepath.Join(safe, "link.yaml"), filepath.Join(safe, "dir"), filepath.Join(top, "work-link")
	must(os.Symlink(inside, link))
	must(os.Symlink(work, dirLink))
	must(os.Symlink(work, workLink))
	hard := filepath.Join(safe, "hard.yaml")
	must(os.Link(write(filepath.Join(work, "twin.yaml")), hard))
	open := write(filepath.Join(safe, "open.yaml"))
	must(os.Chmod(open, 0o666))
	group := write(filepath.Join(safe, "group.yaml"))
	must(os.Chmod(group, 0o664))
	wide := folder("wide")
	must(os.Chmod(wide, 0o777))
	inWide := write(filepath.Join(wide, "p.yaml"))
	deep := write(filepath.Join(folder("wide", "deep"), "p.yaml"))

	for _, c := range []struct {
		what, file string
		folders    []string
		refused    string // empty: it is read
	}{
		{"a file beside the workspace", outside, []string{work, other}, ""},
		{"without mounts", inside, nil, ""},
		{"in the workspace", inside, []string{work}, "may write to it"},
		{"further down in it", below, []string{other, work}, "may write to it"},
		{"by a link to the file", link, []string{work}, "may write to it"},
		{"by a link to the workspace", filepath.Join(dirLink, "p.yaml"), []string{work}, "may write to it"},
		{"by a mount that is a link", below, []string{workLink}, "may write to it"},
		{"by dots", safe + "/../work/p.yaml", []string{work}, "may write to it"},
		{"the file itself is mounted", outside, []string{outside}, "may write to it"},
		{"a folder above is mounted", outside, []string{top}, "may write to it"},
		{"a second name in the workspace", hard, []string{work}, "names"},
		{"with a second name, and nothing to write", hard, nil, ""},
		{"others may write it", open, nil, "others than its owner"},
		{"a group may write it", group, nil, "`chmod go-w " + group + "` ends that"},
		{"others may replace it", inWide, nil, "`chmod go-w " + wide + "` ends that"},
		{"others may replace a folder above", deep, nil, "others may write to the folder"},
		{"a folder that is not there yet", outside, []string{filepath.Join(top, "later")}, ""},
	} {
		p, err := readBoxPolicy(c.file, c.folders)
		switch {
		case c.refused == "" && (err != nil || p == nil):
			t.Errorf("%s: %v", c.what, err)
		case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused) || box.KindOf(err) != box.Denied):
			t.Errorf("%s: %v, want a denial with %q", c.what, err, c.refused)
		}
	}
	// A configuration is refused for what a box could do, and not for what others could.
	for file, refused := range map[string]string{inside: "may write to it", below: "may write to it", link: "may write to it", hard: "names", outside: "", open: "", deep: "", "/dev/null": ""} {
		err := checkConfigFile(file, []string{other, work})
		if refused == "" && err != nil || refused != "" && (err == nil || !strings.Contains(err.Error(), refused) || box.KindOf(err) != box.Denied) {
			t.Errorf("as a configuration, %s: %v, want %q", file, err, refused)
		}
		if err := checkConfigFile(file, nil); err != nil {
			t.Errorf("as a configuration, without mounts, %s: %v", file, err)
		}
	}
	if os.Geteuid() == 0 {
		must(os.Chown(outside, 65534, 65534))
		if _, err := readBoxPolicy(outside, nil); err == nil || !strings.Contains(err.Error(), "belongs to user 65534") {
			t.Errorf("a file of another user: %v", err)
		}
	}
	pipe := filepath.Join(safe, "pipe")
	must(syscall.Mkfifo(pipe, 0o644))
	if _, err := readBoxPolicy(pipe, nil); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a pipe: %v", err)
	}
	if _, err := readPolicy(pipe); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a pipe to check: %v", err)
	}
	if _, err := readBoxPolicy("/dev/null", nil); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a device: %v", err)
	}
}

func TestFlagsMakeAPolicy(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	write("policy.yaml", "version: 1\nhosts:\n  - { host: a.test, tls: splice }\n")
	byFile := write("sunaba.yaml", "sandbox: { network: { mode: allowlist, policy: policy.yaml } }\n")
	byList := write("list.yaml", "sandbox: { network: { mode: allowlist, allowlist: [a.test] } }\n")
	for _, c := range []struct {
		args []string
		want string // allowed host, "none", or an error
	}{
		{[]string{"x"}, "none"},
		{[]string{"--network", "allowlist", "x"}, ""},
		{[]string{"--network", "allowlist", "--allow", "a.test", "--allow", "b.test:80", "x"}, "a.test"},
		{[]string{"--config", byFile, "x"}, "a.test"},
		{[]string{"--config", byList, "x"}, "a.test"},
		{[]string{"--config", byList, "--network", "none", "x"}, "none"},
		{[]string{"--network", "allowlist", "--network-policy", filepath.Join(dir, "policy.yaml"), "x"}, "a.test"},
		{[]string{"--config", byFile, "--allow", "b.test", "x"}, "give one of them"},
		{[]string{"--allow", "a.test", "x"}, "a.test"},
		{[]string{"--network-policy", filepath.Join(dir, "policy.yaml"), "x"}, "a.test"},
		{[]string{"--allow", "a.test", "--network", "none", "x"}, "--allow beside --network none"},
		{[]string{"--network", "none", "--network-policy", "p.yaml", "x"}, "--network-policy beside --network none"},
		{[]string{"--resolver", "192.0.2.1", "x"}, "--resolver without a network"},
		{[]string{"--network", "allowlist", "--network-policy", filepath.Join(dir, "no.yaml"), "x"}, "cannot open policy"},
		{[]string{"--config", byFile, "--mount", dir + ":/workspace/p:rw", "x"}, "may write to it"},
		{[]string{"--config", byFile, "--out", dir, "x"}, "may write to it"},
		{[]string{"--config", byFile, "--mount", dir + ":/p", "x"}, "a.test"},
	} {
		f, err := parseRun(c.args)
		switch {
		case err != nil:
			if c.want == "" || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v: %v, want %q", c.args, err, c.want)
			}
		case c.want == "none":
			if f.net != nil {
				t.Errorf("%v: a policy without a network", c.args)
			}
		case f.net == nil:
			t.Errorf("%v: no policy", c.args)
		default:
			if _, v := f.net.Host("a.test", 443); v.Allow != (c.want == "a.test") {
				t.Errorf("%v: %+v", c.args, v)
			}
		}
	}
}

// An agent that may write to its workspace does not choose its own walls there.
func TestAConfigurationInTheWorkspaceIsRefused(t *testing.T) {
	top := t.TempDir()
	work := filepath.Join(top, "work")
	text := "sandbox:\n  filesystem:\n    read_write_mounts: [{host: " + work + ", container: /work}]\n"
	inside, outside := filepath.Join(work, "sunaba.yaml"), filepath.Join(top, "sunaba.yaml")
	if err := errors.Join(os.Mkdir(work, 0o755), os.WriteFile(inside, []byte(text), 0o644), os.WriteFile(outside, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
	var f runFlags
	f.cfg = config.Default()
	if err := f.configure(inside, nil); err == nil || box.KindOf(err) != box.Denied {
		t.Errorf("in the workspace: %v", err)
	}
	f = runFlags{cfg: config.Default()}
	if err := f.configure(outside, nil); err != nil {
		t.Errorf("beside it: %v", err)
	}
	f = runFlags{cfg: config.Default(), out: top}
	if err := f.configure(outside, nil); err == nil || box.KindOf(err) != box.Denied {
		t.Errorf("where files come out: %v", err)
	}
}
