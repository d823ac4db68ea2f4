package compat

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/test/harness"
)

const (
	python  = "/usr/bin/python3"
	suite   = "/usr/lib/python3.11/test"
	runner  = "testdata/cpython_tests.py"
	enough  = 97.0             // percent
	longest = 10 * time.Minute // of one module, and then it is killed
)

// named are the modules that the project promises; a dot at the end means that
// the modules of a package run one by one, which is faster.
var named = []string{ //house:const names
	"test_subprocess", "test_socket", "test_asyncio.", "test_threading",
	"test_json", "test_mmap", "test_re", "test_sqlite3.", "test_tempfile",
}

// quick are further modules that CI has time for.
var quick = []string{ //house:const names
	"test_os", "test_posix", "test_fcntl", "test_select", "test_epoll", "test_pty", "test_file", "test_fileio", "test_shutil", "test_glob",
	"test_time", "test_datetime", "test_ctypes", "test_httplib", "test_zoneinfo", "test_mailbox", "test_resource",
}

// few run with the walls that differ and the kernel that does not.
var few = []string{"test_json", "test_mmap", "test_os", "test_select", "test_sqlite3.", "test_tempfile"} //house:const names

// slow are the modules that only `make compat` runs; the longest come first.
var slow = []string{ //house:const names
	"test_concurrent_futures", "test_multiprocessing_spawn", "test_multiprocessing_fork", "test_signal", "test_ssl", "test_io", "test_imaplib",
	"test_xmlrpc", "test_logging", "test_faulthandler", "test_selectors", "test_largefile", "test_lzma", "test_poll", "test_ftplib", "test_venv",
	"test_tarfile", "test_zipfile", "test_pathlib", "test_random", "test_statistics", "test_decimal", "test_httpservers", "test_eintr",
	"test_queue", "test_poplib", "test_bz2", "test_wait3", "test_wait4", "test_fork1", "test_threadsignals", "test_cmd_line", "test_asyncore",
	"test_asynchat", "test_asyncgen", "test_urllib2_localnet", "test_smtplib", "test_crypt", "test_zlib", "test_gzip", "test_hashlib", "test_hmac",
	"test_urllib", "test_sys", "test_site", "test_import", "test_shelve", "test_dbm", "test_locale", "test_unicode_file", "test_openpty",
	"test_ioctl", "test_pwd", "test_grp", "test_getpass", "test_posixpath", "test_platform", "test_readline", "test_curses", "test_uuid",
	"test_sched", "test_syslog", "test_sysconfig", "test_stat", "test_popen", "test_pipes", "test_filecmp", "test_fileinput", "test_linecache",
	"test_netrc", "test_telnetlib", "test_wsgiref", "test_robotparser", "test_socketserver", "test_ipaddress", "test_structseq", "test_thread",
	"test_threading_local", "test_contextlib_async",
}

// outcome is one line of the runner. The log has more of a failure than Detail.
type outcome struct {
	ID, Outcome, Detail string
	module              string
}

// outcomes reads what the runner left, by id. A test that several modules share
// counts once.
func outcomes(t *testing.T, dir string) map[string]outcome {
	t.Helper()
	all := map[string]outcome{}
	files, _ := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		module, _, _ := strings.Cut(filepath.Base(file), ".")
		for line := range bytes.Lines(b) {
			o := outcome{module: module}
			if json.Unmarshal(line, &o) != nil {
				continue // the last line of a runner that was killed
			}
			all[o.ID] = o
		}
	}
	return all
}

// difference is a row of the table in docs/compat.md.
type difference struct {
	pattern string   // as in path.Match
	where   []string // see place.has
	used    bool
}

// differences reads the tests that are known to differ. The document is the
// list: what has no explanation there is a failure.
func differences(t *testing.T) []*difference {
	t.Helper()
	f, err := os.Open(filepath.Join(harness.ModuleRoot(), "docs/compat.md"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []*difference
	for s := bufio.NewScanner(f); s.Scan(); {
		cells := strings.Split(s.Text(), "|")
		if len(cells) != 6 || !strings.HasPrefix(cells[1], " `") || !strings.Contains(cells[1], "test.") {
			continue
		}
		d := &difference{pattern: strings.Trim(strings.TrimSpace(cells[1]), "`"), where: words(cells[3])}
		if _, err := path.Match(d.pattern, ""); err != nil || len(strings.TrimSpace(cells[4])) < 10 {
			t.Fatalf("docs/compat.md: bad row %q: a pattern and an explanation are needed", s.Text())
		}
		all = append(all, d)
	}
	return all
}

// arguments are the runner's, for results in a folder.
func arguments(results string, only, paths, modules []string) []string {
	args := []string{"-j", "6", "--timeout", fmt.Sprint(longest.Seconds())}
	for _, id := range only {
		args = append(args, "--only", id)
	}
	for _, p := range paths {
		args = append(args, "--path", p)
	}
	return append(append(args, results), modules...)
}

// scratch is a folder of u with a short name: tests bind sockets below it.
func scratch(t *testing.T, u harness.User) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "cp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	harness.Give(t, u, dir)
	return dir
}

// outside starts the tests as an ordinary user of the host, without a box. The
// function that it returns waits for them.
func outside(ctx context.Context, t *testing.T, paths, modules []string) func() map[string]outcome {
	t.Helper()
	dir := scratch(t, harness.Ordinary)
	script := filepath.Join(dir, filepath.Base(runner))
	b, err := os.ReadFile(runner)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(script, b, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, python, append([]string{script}, arguments("results", nil, paths, modules)...)...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + dir, "TMPDIR=" + dir, "LANG=C.UTF-8", "USER=user", "LOGNAME=user", "SHELL=/bin/bash"}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: harness.OrdinaryID, Gid: harness.OrdinaryID}}
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatalf("cannot run the tests outside: %v", err)
	}
	return sync.OnceValue(func() map[string]outcome {
		if err := cmd.Wait(); err != nil {
			t.Errorf("the tests outside: %v\n%s", err, out.String())
		}
		return outcomes(t, filepath.Join(dir, "results"))
	})
}

// inside runs the tests in a box. Its limits are what the tests need; they
// start hundreds of processes and write sparse files of some GiB.
func inside(ctx context.Context, t *testing.T, p place, only, paths, modules []string) map[string]outcome {
	t.Helper()
	dir := scratch(t, p.user)
	full, err := filepath.Abs(runner)
	if err != nil {
		t.Fatal(err)
	}
	memory := "3g"
	if p.tier == process && p.user == harness.Ordinary {
		memory = "10g" // the disk is in it
	}
	args := p.run("--out", dir, "--copy", full, "--timeout", "3000s", "--cpu", "2",
		"--max-processes", "400", "--max-open-files", "4096", "--memory", memory, "--disk", "10g", "--max-output", "10m")
	if p.image == "base" { // python3 is in it, its tests are not
		for _, d := range []string{suite, filepath.Join(filepath.Dir(suite), "ctypes/test")} {
			args = append(args, "--mount", d+":"+d)
		}
	}
	var seen []string
	for i, source := range paths {
		target := fmt.Sprintf("/mnt/%d", i)
		args, seen = append(args, "--mount", source+":"+target), append(seen, target)
	}
	args = append(args, "--", python, filepath.Base(runner))
	cmd := harness.Command(ctx, t, p.user, append(args, arguments("results", only, seen, modules)...)...)
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the tests inside: %v\n%s", err, b)
	}
	return outcomes(t, filepath.Join(dir, "results"))
}

// suiteRun is the modules that run in a place.
type suiteRun struct {
	place
	modules []string
}

func suiteRuns() []suiteRun {
	all := slices.Concat(named, quick)
	if long {
		all = append(all, slow...)
	}
	var runs []suiteRun
	for _, p := range places() {
		switch {
		case long || p.image == "host" && p.user == harness.Users()[0]:
			runs = append(runs, suiteRun{p, all})
		case p.image == "host":
			runs = append(runs, suiteRun{p, few})
		}
	}
	return runs
}

func TestCPythonsTestsPassInsideAsOutside(t *testing.T) {
	for _, p := range []string{python, suite + "/test_json"} {
		if _, err := os.Stat(p); err != nil {
			t.Skipf("needs Debian 12's CPython and its tests, which .ci/setup installs: %v", err)
		}
	}
	harness.NothingLeft(t)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Hour)
	defer cancel()
	var paths []string
	if d := filepath.Join(harness.ModuleRoot(), "tmp/cpython"); exists(d + "/test_sqlite3") {
		paths = append(paths, d)
	} else {
		t.Log("without test_sqlite3, which Debian's package lacks: .ci/setup could not fetch it")
	}
	known := differences(t)
	runs := suiteRuns()
	control := outside(ctx, t, paths, runs[0].modules)
	for _, r := range runs {
		t.Run(r.place.String(), func(t *testing.T) {
			in := inside(ctx, t, r.place, nil, paths, r.modules)
			compare(t, control(), in, known, r, func(ids, modules []string) map[string]outcome {
				return inside(ctx, t, r.place, ids, paths, modules)
			})
		})
	}
	for _, d := range known {
		if !d.used {
			t.Logf("listed in docs/compat.md, but nothing differs: %s %v", d.pattern, d.where)
		}
	}
}

func exists(p string) bool { _, err := os.Stat(p); return err == nil }

// chances are how often what fails without an explanation is run again, with what
// else does: on a busy machine some of these tests, which have clocks of their own,
// fail anywhere.
const chances = 3

// compare holds the outcomes inside against those outside.
func compare(t *testing.T, out, in map[string]outcome, known []*difference, p suiteRun, again func(ids, modules []string) map[string]outcome) {
	t.Helper()
	var bad []string // without an explanation
	for id, o := range out {
		if o.Outcome == "pass" && in[id].Outcome != "pass" && ran(o.module, p.modules) && !explained(id, known, p.place) {
			bad = append(bad, id)
		}
	}
	slices.Sort(bad)
	left := slices.Clone(bad)
	for n := 0; n < chances && len(left) > 0 && len(left) <= 50; n++ {
		for id, o := range again(left, modulesOf(left, out, p.modules)) {
			if o.Outcome == "pass" {
				t.Logf("passed only when run again: %s\n%s", id, in[id].Detail)
			}
			in[id] = o
		}
		left = slices.DeleteFunc(left, func(id string) bool { return in[id].Outcome == "pass" })
	}
	for n, id := range bad {
		if n == 50 {
			t.Errorf("and %d more", len(bad)-n)
			break
		}
		if o := in[id]; o.Outcome != "pass" {
			t.Errorf("passes outside, inside %s, without an explanation in docs/compat.md: %s\n%s", orElse(o.Outcome, "it never ended"), id, o.Detail)
		}
	}
	shares(t, out, in, p)
}

// shares holds what passed against what has to: of all modules, and where all
// the promised ones ran, of them alone.
func shares(t *testing.T, out, in map[string]outcome, p suiteRun) {
	t.Helper()
	type count struct{ pass, of int }
	modules := map[string]*count{}
	var total, promised count
	for id, o := range out {
		if o.Outcome != "pass" || !ran(o.module, p.modules) {
			continue
		}
		m := modules[o.module]
		if m == nil {
			m = &count{}
			modules[o.module] = m
		}
		counts := []*count{m, &total}
		if ran(o.module, named) {
			counts = append(counts, &promised)
		}
		for _, c := range counts {
			c.of++
			if in[id].Outcome == "pass" {
				c.pass++
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		if m := modules[name]; m.pass < m.of {
			t.Logf("%s: %d of %d (%.1f %%)", name, m.pass, m.of, 100*float64(m.pass)/float64(m.of))
		}
	}
	hold := func(what string, c count) {
		if c.of < 500 {
			t.Errorf("%s: only %d tests pass outside: the control run is broken", what, c.of)
			return
		}
		share := 100 * float64(c.pass) / float64(c.of)
		t.Logf("compat: %s: %s: %d of %d (%.2f %%)", p.place, what, c.pass, c.of, share)
		if share < enough {
			t.Errorf("%s: %.2f %% of what passes outside passes inside, not %v %%", what, share, enough)
		}
	}
	hold("all modules", total)
	if !slices.ContainsFunc(named, func(m string) bool { return !slices.Contains(p.modules, m) }) {
		hold("the promised modules", promised)
	}
}

// ran says whether a module, without what follows a dot, is in a list.
func ran(module string, list []string) bool {
	return slices.ContainsFunc(list, func(m string) bool { return strings.TrimSuffix(m, ".") == module })
}

func explained(id string, known []*difference, p place) bool {
	for _, d := range known {
		if ok, _ := path.Match(d.pattern, id); ok && p.has(d.where) {
			d.used = true
			return true
		}
	}
	return false
}

// modulesOf finds the modules to run for some tests.
func modulesOf(ids []string, out map[string]outcome, list []string) []string {
	need := map[string]bool{}
	for _, id := range ids {
		for _, m := range list {
			if strings.TrimSuffix(m, ".") == out[id].module {
				need[m] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(need))
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
