package policy

import (
	"errors"
	"path"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
)

func TestSources(t *testing.T) {
	for _, c := range []struct {
		path  string
		write bool
		kind  box.Kind // empty: allowed
		says  string
	}{
		{"/data/input", false, "", ""},
		{"/data/input", true, "", ""},
		{"/srv/ssh", false, "", ""},
		{"/srv/.sshx", false, "", ""},
		{"/home/alice/project", true, "", ""},
		{"/root/project", true, "", ""},
		{"/etc/ssl/certs", false, "", ""},
		{"/usr/share/dict", false, "", ""},
		{"/runner/work", false, "", ""},
		{"/home/alice/.config/myapp", false, "", ""},
		{"/tmp/x", true, "", ""},

		{"/", false, box.Denied, "the whole host"},
		{"/proc", false, box.Denied, "control interface"},
		{"/proc/1/root", false, box.Denied, "/proc"},
		{"/sys/fs/cgroup", false, box.Denied, "/sys"},
		{"/dev/sda", false, box.Denied, "/dev"},
		{"/boot", false, box.Denied, "kernel"},
		{"/run", false, box.Denied, "sockets"},
		{"/run/user/1000", false, box.Denied, "/run"},
		{"/var/run/docker.sock", false, box.Denied, "/var/run"},
		{"/run/docker.sock", false, box.Denied, "/run"},
		{"/var", false, box.Denied, "contains /var/run"},
		{"/var/lib", false, box.Denied, "contains"},
		{"/var/lib/docker/volumes", false, box.Denied, "engine"},
		{"/var/lib/kubelet/pods", false, box.Denied, "Kubernetes"},
		{"/etc", false, box.Denied, "whole configuration"},
		{"/etc/shadow", false, box.Denied, "keys or passwords"},
		{"/etc/ssh/ssh_host_rsa_key", false, box.Denied, "/etc/ssh"},
		{"/etc/ssl", false, box.Denied, "contains /etc/ssl/private"},
		{"/home", false, box.Denied, "home"},
		{"/home/alice", false, box.Denied, "home folder"},
		{"/root", false, box.Denied, "home"},
		{"/home/alice/.ssh", false, box.Denied, ".ssh"},
		{"/backup/alice/.ssh/id_rsa", false, box.Denied, ".ssh"},
		{"/home/alice/.aws/credentials", false, box.Denied, ".aws"},
		{"/home/alice/.config", false, box.Denied, ".config/gcloud"},
		{"/home/alice/.config/gcloud/x", false, box.Denied, ".config/gcloud"},
		{"/home/alice/.netrc", false, box.Denied, ".netrc"},
		{"/srv/secret/deep", false, box.Denied, "no_mount names /srv/secret"},
		{"/srv/secret", false, box.Denied, "no_mount"},
		{"/srv", false, box.Denied, "no_mount"},

		{"/etc/ssl/certs", true, box.Denied, "code that the host runs"},
		{"/usr/share/dict", true, box.Denied, "code that the host runs"},
		{"/var/spool/cron", true, box.Denied, "code that the host runs"},

		{"", false, box.Invalid, "empty"},
		{"data", false, box.Invalid, "absolute"},
		{"/data/", false, box.Invalid, `write "/data"`},
		{"/data/../etc/shadow", false, box.Invalid, `write "/etc/shadow"`},
		{"/data\n/x", false, box.Invalid, "control"},
		{"/data\x00", false, box.Invalid, "control"},
		{"/data\xff", false, box.Invalid, "UTF-8"},
		{"/" + strings.Repeat("x", 5000), false, box.Invalid, "4095"},
	} {
		err := CheckSource(c.path, !c.write, []string{"/srv/secret"})
		if c.kind == "" {
			if err != nil {
				t.Errorf("%q write=%v: %v", c.path, c.write, err)
			}
			continue
		}
		if err == nil || box.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%.40q write=%v: got %v, want kind %s and %q", c.path, c.write, err, c.kind, c.says)
		}
	}
}

// Each entry refuses itself, what is above it and, unless it says otherwise,
// what is below it.
func TestEveryRefusedSourceRefuses(t *testing.T) {
	for _, r := range RefusedSources() {
		if path.Clean(r.Path) != r.Path || !path.IsAbs(r.Path) || r.Why == "" {
			t.Errorf("%+v is malformed", r)
		}
		for p := r.Path; ; p = path.Dir(p) {
			if CheckSource(p, false, nil) == nil {
				t.Errorf("%s is allowed although %s is refused", p, r.Path)
			}
			if p == "/" {
				break
			}
		}
		if !r.Whole && CheckSource(path.Join(r.Path, "x"), false, nil) == nil {
			t.Errorf("below %s is allowed", r.Path)
		}
	}
	for _, n := range RefusedNames() {
		if CheckSource("/srv/"+n.Name, true, nil) == nil || CheckSource("/srv/"+n.Name+"/x", true, nil) == nil {
			t.Errorf("%s is allowed", n.Name)
		}
	}
}

func TestTargets(t *testing.T) {
	for target, ok := range map[string]bool{
		"/input": true, "/data/deep/er": true, "/workspace/data": true, "/work": true, "/workspace2": true, "/process": true, "/.sunabax": true,
		"/": false, "/proc": false, "/proc/x": false, "/sys": false, "/dev": false, "/dev/shm": false, "/.sunaba": false, "/.sunaba/x": false,
		"/.sunaba-agent": false, "/.sunaba-agent/sock": false,
		"/workspace": false, "input": false, "/input/": false, "/a/../b": false, "": false,
	} {
		if err := CheckTarget(target, "/workspace"); (err == nil) != ok {
			t.Errorf("%q: %v", target, err)
		}
	}
	if err := CheckTarget("/home", "/home/user/work"); err == nil || !strings.Contains(err.Error(), "hide the writable directory") {
		t.Errorf("above the writable directory: %v", err)
	}
}

func TestWorkdirs(t *testing.T) {
	for dir, ok := range map[string]bool{
		"/workspace": true, "/home/user/work": true, "/tmp/w": true, "/opt/app": true, "/etcetera": true,
		"/": false, "/usr": false, "/usr/local/w": false, "/etc": false, "/bin": false, "/home": false, "/var": false,
		"/proc/w": false, "/dev/w": false, "/.sunaba": false, "/.sunaba-agent/w": false, "work": false, "/w/": false, "": false,
	} {
		if err := CheckWorkdir(dir); (err == nil) != ok {
			t.Errorf("%q: %v", dir, err)
		}
	}
}

func TestMountsMayNotGetInEachOthersWay(t *testing.T) {
	spec := goodSpec()
	mount := func(targets ...string) error {
		spec.Mounts = nil
		for _, target := range targets {
			spec.Mounts = append(spec.Mounts, box.Mount{Source: "/data", Target: target, ReadOnly: true})
		}
		return CheckMounts(spec)
	}
	for _, ok := range [][]string{nil, {"/a"}, {"/a", "/ab", "/workspace/a"}} {
		if err := mount(ok...); err != nil {
			t.Errorf("%q: %v", ok, err)
		}
	}
	for _, bad := range [][]string{{"/a", "/a"}, {"/a", "/a/b"}, {"/a/b", "/a"}, {"/a", "/b", "/b/c"}} {
		err := mount(bad...)
		var e *box.Error
		if !errors.As(err, &e) || e.Kind != box.Invalid || !strings.HasPrefix(e.Message, `cannot mount "/data" at "`) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	many := make([]string, maxMounts+1)
	for i := range many {
		many[i] = "/m" + strings.Repeat("x", i)
	}
	if mount(many[1:]...) != nil || mount(many...) == nil {
		t.Error("the number of mounts is not bounded")
	}
	spec.Mounts = []box.Mount{{Source: "/srv/data", Target: "/x", ReadOnly: true}}
	spec.NoMount = []string{"/srv/data/private"}
	if err := CheckMounts(spec); box.KindOf(err) != box.Denied || err == nil {
		t.Errorf("above a no_mount entry: %v", err)
	}
}

func TestInForceHasNoNullLists(t *testing.T) {
	p := InForce(goodSpec(), box.Untrusted, box.UserOrdinary)
	if p.Mounts == nil || p.NoMount == nil {
		t.Error("a list is nil")
	}
	if p.Limits.CPU != 1 || p.Limits.TimeoutSec != 60 || p.Limits.MemoryBytes != 512*mib || p.Workdir != "/workspace" {
		t.Errorf("got %+v", p)
	}
}

func FuzzMounts(f *testing.F) {
	f.Add("/data", "/input", "/workspace", "/srv", true)
	f.Add("/", "/", "/", "/", false)
	f.Add("/var/run/../run/docker.sock", "//x", "", "x", true)
	f.Fuzz(func(t *testing.T, source, target, workdir, noMount string, readOnly bool) {
		spec := box.Spec{Workdir: workdir, NoMount: []string{noMount}, Mounts: []box.Mount{{Source: source, Target: target, ReadOnly: readOnly}}}
		if err := CheckMounts(spec); err != nil {
			if box.KindOf(err) == box.Fault {
				t.Fatalf("an error without a kind: %v", err)
			}
			return
		}
		for _, r := range RefusedSources() {
			if source == r.Path && (!r.Write || !readOnly) || strings.HasPrefix(r.Path, source+"/") && !r.Write {
				t.Fatalf("%q shows %q", source, r.Path)
			}
		}
		if source == noMount || target == "/" || target == workdir || !path.IsAbs(source) || path.Clean(target) != target {
			t.Fatalf("accepted %+v", spec)
		}
	})
}
