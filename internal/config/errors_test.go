package config

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/settings"
)

// in puts one line at a place where its section expects it.
func in(section, line string) string {
	return "sandbox:\n  " + section + ":\n    " + line + "\n"
}

func TestWrongFilesAreToldWithTheirPlace(t *testing.T) {
	const l, fs = "resource_limits", "filesystem"
	for _, c := range []struct {
		doc, place, says string
	}{
		// Keys.
		{"sandbox:\n  memroy: 1\n", "2:3", "unknown key memroy in sandbox; did you mean resource_limits.memory?"},
		{in(l, "memroy: 512m"), "3:5", "unknown key memroy in resource_limits; did you mean memory?"},
		{in(l, "Memory: 512m"), "3:5", "did you mean memory?"},
		{"sandbox:\n  resource_limit: {}\n", "2:3", "did you mean resource_limits?"},
		{"trust: hostile\n", "1:1", "unknown key trust; did you mean sandbox.trust?"},
		{"sandbox: {zzzzzzzzzzzz: 1}\n", "1:11", "allowed: runtime, trust, image"},
		{"sandbox: {\"a\\u202eb\": 1}\n", "1:11", `unknown key "a\u202eb"`},
		{"sandbox:\n  trust: hostile\n  user: root\n  trust: trusted\n", "4:3", "key trust twice; it was first given at line 2"},
		{"sandbox: {}\nsandbox: {}\n", "2:1", "key sandbox twice"},
		{"? {a: b}\n: c\n", "1:3", "as a key"},

		// Types.
		{"- sandbox\n", "1:1", "it is a list"},
		{"sandbox\n", "1:1", "cannot read the file: it is sandbox"},
		{"sandbox: [a]\n", "1:10", "cannot read sandbox: it is a list"},
		{"sandbox: {trust: 5}\n", "1:18", "cannot set trust to 5: it is a whole number; allowed: text"},
		{"sandbox: {trust: {a: b}}\n", "1:18", "cannot set trust to keys with values; allowed: a single value, hostile"},
		{"sandbox: {trust: }\n", "1:18", "cannot set trust to nothing"},
		{"sandbox: {trust: null}\n", "1:18", "cannot set trust to nothing"},
		{"sandbox: {lifecycle: 1}\n", "1:22", "cannot read lifecycle: it is 1"},
		{in("lifecycle", "reuse: yes"), "3:12", "cannot set lifecycle.reuse to yes: it is text; allowed: true or false"},
		{in("lifecycle", "reuse: 1"), "3:12", "true or false"},
		{in(l, `max_files: "100"`), "3:16", `cannot set resource_limits.max_files to "100": it is text; allowed: a whole number, without quotes`},
		{in(l, "max_files: [1]"), "3:16", "a list"},
		{in(l, "cpu: true"), "3:10", "a truth value"},
		{in(fs, "no_mount: /x"), "3:15", "allowed: a list"},
		{in(fs, "no_mount: [/x, 5]"), "3:20", "no_mount[1] to 5"},
		{in(fs, "no_mount:"), "3:14", "to nothing"},
		{"sandbox: {env: [A]}\n", "1:16", "cannot set env to a list; allowed: NAME: value"},
		{"sandbox: {env: {A: true}}\n", "1:20", "cannot set env.A to true: it is a truth value"},
		{"sandbox: {env: {A: null}}\n", "1:20", "cannot set env.A to nothing"},

		// Choices.
		{"sandbox: {runtime: gvizor}\n", "1:20", "cannot set runtime to gvizor: did you mean gvisor? allowed: auto, process"},
		{"sandbox: {trust: full}\n", "1:18", "allowed: hostile, untrusted, internal, trusted"},
		{"sandbox: {image: debian}\n", "1:18", "allowed: host, base"},
		{"sandbox: {user: Root}\n", "1:17", "did you mean root?"},
		{in(l, "on_limit: warn"), "3:15", "allowed: record, kill"},

		// Numbers and units.
		{in(l, "memory: 512q"), "3:13", `cannot set resource_limits.memory to 512q: unknown unit "q"; allowed: whole bytes`},
		{in(l, "memory: 512 m"), "3:13", `unknown unit " m"`},
		{in(l, "memory: 1.5g"), "3:13", "not a whole number; use a smaller unit"},
		{in(l, "memory: -1"), "3:13", "negative"},
		{in(l, "memory: 0"), "3:13", "zero makes no sense here; allowed: 32m to 16t"},
		{in(l, "memory: 31m"), "3:13", "too small; allowed: 32m to 16t"},
		{in(l, "memory: 17t"), "3:13", "too large; allowed"},
		{in(l, "memory: 9999999t"), "3:13", "too large"},
		{in(l, "memory: 99999999999999999999"), "3:13", "too large"},
		{in(l, "memory: .inf"), "3:13", "not a size"},
		{in(l, "memory: 0x4000000"), "3:13", "unknown unit"},
		{in(l, "memory: 1_000_000_000"), "3:13", "unknown unit"},
		{in(l, `memory: ""`), "3:13", "not a plain decimal number"},
		{in(l, "cpu: .nan"), "3:10", "not a plain decimal number"},
		{in(l, "cpu: -0.5"), "3:10", "negative"},
		{in(l, "cpu: 0"), "3:10", "zero makes no sense here; allowed: 0.01 to 1024"},
		{in(l, "cpu: 0.009"), "3:10", "too small"},
		{in(l, "cpu: 0.0101"), "3:10", "more than 3 places"},
		{in(l, "cpu: 1e3"), "3:10", "not a plain decimal number"},
		{in(l, "cpu: 1025"), "3:10", "too large; allowed: 0.01 to 1024"},
		{in(l, "timeout_sec: 0"), "3:18", "zero makes no sense here"},
		{in(l, "timeout_sec: -1"), "3:18", "negative"},
		{in(l, "timeout_sec: 0.05"), "3:18", "too small; allowed: 0.1 to 604800"},
		{in(l, "timeout_sec: 1:30"), "3:18", "not a duration; allowed: seconds"},
		{in(l, "timeout_sec: 9223372036854775807"), "3:18", "too large"},
		{in(l, "timeout_sec: 3000000h"), "3:18", "not a duration"},
		{in(l, "timeout_sec: 8d"), "3:18", "not a duration"},
		{in(l, "timeout_sec: .inf"), "3:18", "not a duration"},
		{in(l, "idle_sec: 0.01"), "3:15", "allowed: 0 (off), or 0.1 to 604800"},
		{in(l, "grace_sec: 61"), "3:16", "too large"},
		{in(l, "max_processes: 0"), "3:20", "zero makes no sense here; allowed: 1 to 4194304"},
		{in(l, "max_open_files: 15"), "3:21", "too small; allowed: 16 to 1048576"},
		{in(l, "disk: 1023k"), "3:11", "too small; allowed: 1m to 16t"},
		{in(l, "max_files: 1.5"), "3:16", "not a whole number; allowed: 16"},
		{in(l, "max_files: 010"), "3:16", "leading zero"},
		{in(l, "max_files: 0x10"), "3:16", "not a plain decimal number"},
		{in(l, "max_files: 99999999999999999999"), "3:16", "too large"},
		{in(l, "max_output: 2t"), "3:17", "too large; allowed: 0 to 1t"},
		{in("lifecycle", "pool_size: 1001"), "3:16", "too large; allowed: 0 to 1000"},
		{in("lifecycle", "pool_size: -1"), "3:16", "negative"},

		// Network.
		{in("network", `{mode: none, allowlist: ["api.example.com:443"]}`), "3:5", "in mode none: they would have no effect"},
		{in("network", `{policy: p.yaml, mode: none}`), "3:5", "in mode none: they would have no effect"},
		{in("network", `{mode: allowlist, policy: p.yaml, allowlist: ["a.test"]}`), "3:5", "give one of them"},
		{in("network", `{mode: allowlist, allowlist: ["*.a.test", "b.a.test:80", "http://a.test"]}`), "3:62", `network.allowlist[2] to "http://a.test": it is a URL, and an entry is for all of a host; write a.test:80`},
		{in("network", `{mode: allowlist, allowlist: ["*.com"]}`), "3:35", `network.allowlist[0] to "*.com": it stands for a whole top-level domain`},
		{in("network", `{mode: allowlist, allowlist: ["localhost:80"]}`), "3:35", `to "localhost:80": localhost cannot be allowed: it means the asking machine itself`},
		{in("network", `{mode: allowlist, allowlist: ["A.test"]}`), "3:35", "write a.test"},
		{in("network", `{mode: allowlist, allowlist: [80]}`), "3:35", "a whole number"},
		{in("network", `{mode: allowlist, rules: {version: 1}, policy: p.yaml}`), "3:5", "give one of them"},
		{in("network", `{mode: none, rules: {version: 1}}`), "3:5", "in mode none: they would have no effect"},
		{in("network", `{mode: allowlist, rules: {version: 1, hosts: [{host: a.test}]}}`), "3:51", "write `tls: splice`"},
		{in("network", `{mode: allowlist, rules: {version: 1, hosts: [{host: A.test, tls: splice}]}}`), "3:58", "write a.test"},
		{in("network", `{mode: allowlist, rules: {version: 1, hsts: []}}`), "3:43", "did you mean hosts?"},
		{in("network", `{mode: allowlist, rules: policy.yaml}`), "3:30", "keys with values"},
		{in("network", `{mode: allowlist, rules: &a {version: 1}}`), "3:30", "anchor"},
		{in("network", `policy: [p.yaml]`), "3:13", "a single value"},
		{in("network", `policy: ""`), "3:13", "the path of a file"},
		{in("network", "allowlist: api.example.com"), "3:16", "allowed: a list"},
		{in("network", "mode: host"), "3:11", "allowed: none, allowlist"},
		{in("network", "mode: 1"), "3:11", "a whole number"},

		// Places.
		{in(fs, "writable_dir: work"), "3:19", `cannot set filesystem.writable_dir to work: the path is not absolute`},
		{in(fs, "writable_dir: /w/../x"), "3:19", `write "/x"`},
		{in(fs, "writable_dir: /usr"), "3:19", "holds the system"},
		{in(fs, "no_mount: [a]"), "3:16", "no_mount[0] to a: the path is not absolute"},
		{in(fs, "host_prefixes: [/home]"), "3:21", "refused"},
		{in(fs, "host_prefixes: [/dev]"), "3:21", "refused"},
		{in(fs, "read_only_mounts: [x]"), "3:24", "allowed: {host: PATH, container: PATH}"},
		{in(fs, "read_only_mounts: {host: /a}"), "3:23", "allowed: a list"},
		{in(fs, "read_only_mounts: [{host: /a}]"), "3:24", "needs both host and container"},
		{in(fs, "read_only_mounts: [{host: /a, contaner: /b}]"), "3:35", "did you mean container?"},
		{in(fs, "read_only_mounts: [{host: /a, host: /b, container: /c}]"), "3:35", "twice"},
		{in(fs, "read_only_mounts: [{host: a, container: /b}]"), "3:31", "read_only_mounts[0].host to a: the path is not absolute"},
		{in(fs, "read_only_mounts: [{host: /a, container: /proc/x}]"), "3:46", "/proc belongs to the box"},
		{in(fs, "read_only_mounts: [{host: /etc/shadow, container: /b}]"), "3:31", "refused: it is a store of keys"},
		{"sandbox:\n  volumes: {name: a}", "2:12", "allowed: a list"},
		{"sandbox:\n  volumes: [a]", "2:13", "allowed: {name: NAME, container: PATH, read_only: true or false}"},
		{"sandbox:\n  volumes: [{name: a}]", "2:13", "needs both name and container"},
		{"sandbox:\n  volumes: [{name: a, path: /b}]", "2:23", "unknown"},
		{"sandbox:\n  volumes: [{nam: a, container: /b}]", "2:14", "did you mean name?"},
		{"sandbox:\n  volumes: [{name: ../x, container: /b}]", "2:20", "volumes[0].name to \"../x\": its name is wrong"},
		{"sandbox:\n  volumes: [{name: 5, container: /b}]", "2:20", "volumes[0].name to 5: it is a whole number"},
		{"sandbox:\n  volumes: [{name: a, container: b}]", "2:34", "volumes[0].container to b: the path is not absolute"},
		{"sandbox:\n  volumes: [{name: a, container: /b, read_only: 1}]", "2:49", "volumes[0].read_only to 1"},
		{in(fs, "read_write_mounts: [{host: /usr/lib, container: /b}]"), "3:32", "code that the host runs"},
		{"sandbox: {env: {1A: x}}\n", "1:21", `the name "1A" is not one`},
		{"sandbox: {env: {A-B: x}}\n", "1:22", `the name "A-B" is not one`},
		{"sandbox: {env: {A: \"\\0\"}}\n", "1:20", "NUL"},

		// What only YAML has.
		{"sandbox:\n  trust: &a hostile\n", "2:10", `the anchor "&a"`},
		{"sandbox: &a\n  trust: hostile\n", "1:10", `the anchor "&a"`},
		{"sandbox:\n  trust: *a\n", "2:11", "cannot use an alias"},
		{"sandbox:\n  <<: {trust: hostile}\n", "2:3", "merge key"},
		{"sandbox:\n  trust: !!str hostile\n", "2:10", `the tag "!!str"`},
		{"sandbox:\n  trust: !secret hostile\n", "2:10", `the tag "!secret"`},
		{"sandbox: {}\n---\nsandbox: {}\n", "2:1", "second document"},
		{"sandbox: {}\n---\n", "2:1", "second document"},

		// What is no YAML.
		{"sandbox:\n\ttrust: hostile\n", "2:1", "a tab to indent"},
		{"sandbox:\n  trust: hostile\n  \timage: host\n", "3:3", "a tab to indent"},
		{"sandbox:\n  trust: \"hostile\n", "2:17", "as YAML near here"},
		{"sandbox:\n  trust: hostile\n bad: x\n", "3:7", "as YAML near here"},
		{"sandbox:\n  trust hostile\n  image: host\n", "3:11", "as YAML near here"},
		{"sandbox: {trust: hostile\n", "1:24", "as YAML near here"},
		{"# é\nsandbox: \xff\n", "2:10", "byte 0xff is not UTF-8"},
		{"\xff\xfes\x00", "1:1", "not UTF-8"},
		{"sandbox: {}\x00\n", "1:12", "U+0000"},
		{"# a\u2028sandbox: {}\n", "1:4", "U+2028"},
		{"# \u202e\n", "1:3", "U+202E"}, {"# a\u200bb\n", "1:4", "U+200B"}, {"# \u200f\n", "1:3", "U+200F"}, {"# \u00ad\n", "1:3", "U+00AD"}, {"# \U000e0061\n", "1:3", "U+E0061"}, {"# \u2063\n", "1:3", "U+2063"},
		{"# a\rb\n", "1:4", "U+000D"},
	} {
		_, err := Load("f.yaml", strings.NewReader(c.doc))
		var all Errors
		if !errors.As(err, &all) || len(all) != 1 {
			t.Errorf("%q: got %v, want one error", c.doc, err)
			continue
		}
		got := err.Error()
		if !strings.HasPrefix(got, "f.yaml:"+c.place+": cannot ") || !strings.Contains(got, c.says) {
			t.Errorf("%q:\ngot  %s\nwant %s ... %s", c.doc, got, c.place, c.says)
		}
	}
}

func TestAllErrorsOfAFileAreTold(t *testing.T) {
	doc := `sandbox:
  trust: ful
  memroy: 1
  resource_limits: {memory: 1, cpu: x}
  network: {mode: open}
  filesystem:
    read_only_mounts:
      - {host: /etc/shadow, container: /proc}
extra: 1
`
	_, err := Load("f.yaml", strings.NewReader(doc))
	var all Errors
	errors.As(err, &all)
	var got []string
	for _, e := range all {
		got = append(got, fmt.Sprintf("%d %s %s", e.Line, e.Key, box.KindOf(e)))
	}
	want := []string{"2 trust invalid", "3 memroy invalid", "4 resource_limits.memory invalid", "4 resource_limits.cpu invalid",
		"5 network.mode invalid", "8 filesystem.read_only_mounts[0].host denied", "8 filesystem.read_only_mounts[0].container invalid", "9 extra invalid"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if strings.Count(err.Error(), "\n") != len(want)-1 {
		t.Errorf("not one line each: %v", err)
	}
}

func TestErrorsAreBounded(t *testing.T) {
	_, err := Load("f.yaml", strings.NewReader("sandbox:\n"+strings.Repeat("  ? [x]\n", 10000)))
	var all Errors
	if !errors.As(err, &all) || len(all) != settings.MaxErrors {
		t.Errorf("got %d errors", len(all))
	}
}

// The largest files that are read, each made to cost much: a guard against
// squares, not a measurement.
func TestCostlyFilesEnd(t *testing.T) {
	var keys strings.Builder
	for i := range settings.MaxFile / 24 {
		fmt.Fprintf(&keys, "  resource_l%d: 1\n", i)
	}
	for name, doc := range map[string]string{
		"depth":     strings.Repeat("[", settings.MaxFile),
		"dashes":    strings.Repeat("- ", settings.MaxFile/2),
		"questions": strings.Repeat("? ", settings.MaxFile/2),
		"maps":      strings.Repeat("{a: ", settings.MaxFile/4),
		"keys":      "sandbox:\n" + keys.String(),
		"elements":  "sandbox: {filesystem: {no_mount: [" + strings.Repeat("/a,", settings.MaxFile/3-20) + "x]}}",
		"long":      "sandbox: {trust: " + strings.Repeat("x", settings.MaxFile-20) + "}",
		"anchors":   strings.Repeat("&a ", settings.MaxFile/3),
		"quote":     `"` + strings.Repeat("\\", settings.MaxFile-2),
	} {
		start := time.Now()
		if _, err := Load("f.yaml", strings.NewReader(doc)); err == nil {
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), "longer than") {
			t.Errorf("%s: too long to cost anything", name)
		}
		t.Logf("%s: %v", name, time.Since(start))
	}
}

// Ten lines that would be 10^9 elements if anybody expanded them.
func TestAliasesAreNeverExpanded(t *testing.T) {
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := range 9 {
		fmt.Fprintf(&b, "a%d: &a%d [%s*a%d]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 9), i)
	}
	if _, err := Load("f.yaml", strings.NewReader(b.String())); err == nil {
		t.Error("accepted")
	}
}

func TestLargeFilesAreRefused(t *testing.T) {
	fits := strings.Repeat("# 345678901234\n", settings.MaxFile/15)
	if _, err := Load("f.yaml", strings.NewReader(fits)); err != nil {
		t.Errorf("a file of %d bytes: %v", len(fits), err)
	}
	_, err := Load("f.yaml", io.MultiReader(strings.NewReader(fits), strings.NewReader(fits)))
	if err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("f.yaml:%d:2: cannot read the file: it is longer", settings.MaxFile/15+1)) {
		t.Errorf("got %v", err)
	}
}

func TestReadErrorIsTold(t *testing.T) {
	broken := errors.New("the disk is gone")
	_, err := Load("f.yaml", iotest.ErrReader(broken))
	if !errors.Is(err, broken) || err.Error() != "cannot read f.yaml: the disk is gone" {
		t.Errorf("got %v", err)
	}
}

func TestFlagsGetTheWordsOfTheFile(t *testing.T) {
	for _, c := range []struct{ key, value, file string }{
		{"resource_limits.memory", "512q", in("resource_limits", `memory: "512q"`)},
		{"resource_limits.cpu", "0", in("resource_limits", `cpu: "0"`)},
		{"resource_limits.timeout_sec", "-5s", in("resource_limits", `timeout_sec: "-5s"`)},
		{"trust", "full", "sandbox: {trust: \"full\"}"},
		{"network.mode", "open", in("network", `mode: "open"`)},
		{"filesystem.writable_dir", "/etc", in("filesystem", `writable_dir: "/etc"`)},
	} {
		config := Default()
		flag := config.Set(c.key, c.value)
		_, file := Load("f.yaml", strings.NewReader(c.file))
		if flag == nil || file == nil || !strings.HasSuffix(file.Error(), ": "+flag.Error()) || box.KindOf(flag) != box.KindOf(file) {
			t.Errorf("%s:\nflag %v\nfile %v", c.key, flag, file)
		}
	}
	config := Default()
	if err := config.Set("resource_limits.memroy", "1"); err == nil || !strings.Contains(err.Error(), "did you mean resource_limits.memory?") {
		t.Errorf("got %v", err)
	}
	if err := config.Set("filesystem.read_only_mounts", "/data"); err == nil || !strings.Contains(err.Error(), "HOST:BOX") {
		t.Errorf("got %v", err)
	}
	for _, v := range []string{"data", "data:", "data:/x:rx", ":/x", "../x:/x", "data:x", "data:/x:ro:ro"} {
		if err := config.Set("volumes", v); box.KindOf(err) != box.Invalid || err == nil {
			t.Errorf("volumes %s: %v", v, err)
		}
	}
	if err := config.Set("filesystem.read_only_mounts", "/data:/data:rw"); err == nil || !strings.Contains(err.Error(), "colon") {
		t.Errorf("got %v", err)
	}
	if err := config.Set("env", "NAME"); err == nil || !strings.Contains(err.Error(), "NAME=VALUE") {
		t.Errorf("got %v", err)
	}
}

func FuzzLoad(f *testing.F) {
	for _, doc := range []string{published, "", "sandbox:", "a: &a [*a]", "a: *a", "? ? ?", "- - -", "{[", "\t", "\xff", "---\n---", "a: |\n b\n", "%YAML 1.1\n---\n",
		in("filesystem", "read_only_mounts: [{host: /a, container: /b}]"), in("resource_limits", "memory: 1t"), "sandbox: {env: {A: b}}", "<<: {}", "a: !!binary x", "\"\\x80\": 1"} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Load("f.yaml", strings.NewReader(string(data)))
		if err == nil {
			if err := c.Set("trust", "hostile"); err != nil {
				t.Fatal(err)
			}
			return
		}
		var all Errors
		if !errors.As(err, &all) || len(all) == 0 {
			t.Fatalf("no place: %v", err)
		}
		lines := strings.Count(string(data), "\n") + 1
		for _, e := range all {
			if e.Line < 1 || e.Line > lines || e.Column < 1 || !strings.HasPrefix(e.Error(), fmt.Sprintf("f.yaml:%d:%d: cannot ", e.Line, e.Column)) {
				t.Fatalf("not in the file's %d lines: %v", lines, e)
			}
			if strings.ContainsAny(e.Error(), "\n\x1b") || box.KindOf(e) == box.Fault {
				t.Fatalf("not one safe line: %q", e.Error())
			}
		}
	})
}
