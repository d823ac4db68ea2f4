package policy

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

func goodSpec() box.Spec {
	return box.Spec{
		Image: box.ImageHost, Workdir: "/workspace", Net: box.Net{Mode: box.NetNone},
		Limits: box.Limits{MilliCPU: 1000, Memory: 512 * mib, Timeout: time.Minute, Processes: 32, OpenFiles: 256,
			Disk: 1 << 30, Files: 100000, Output: mib, OnLimit: box.LimitRecord},
	}
}

func hostWith(usable bool, built ...box.TierName) Host {
	h := Host{Built: built, Usable: map[box.TierName]box.Caps{}}
	for _, t := range built {
		h.Usable[t] = box.Caps{Usable: usable, Missing: []string{string(t) + " lacks a part"}[:min(1, btoi(!usable))]}
	}
	return h
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func all() []box.TierName {
	return slices.DeleteFunc(box.TierNames(), func(t box.TierName) bool { return t == box.TierAuto })
}

// The whole table, to be read: a change of any decision is a diff of the file.
func TestDecisionsAreThoseOfTheGoldenFile(t *testing.T) {
	var b strings.Builder
	for _, h := range []struct {
		name string
		host Host
	}{
		{"built gvisor", hostWith(true, box.TierGvisor)},
		{"built process, container, gvisor", hostWith(true, box.TierProcess, box.TierContainer, box.TierGvisor)},
		{"built all", hostWith(true, all()...)},
		{"built gvisor; none usable", hostWith(false, box.TierGvisor)},
		{"built all; none usable", hostWith(false, all()...)},
		{"built all; gvisor not usable", func() Host {
			h := hostWith(true, all()...)
			h.Usable[box.TierGvisor] = box.Caps{Missing: []string{"gvisor lacks a part"}}
			return h
		}()},
	} {
		for _, minimum := range []box.TierName{"", box.TierContainer, box.TierGvisor, box.TierMicroVM} {
			name := string(minimum)
			if name == "" {
				name = "none"
			}
			fmt.Fprintf(&b, "# %s; tenant's minimum %s\n", h.name, name)
			for _, trust := range box.Trusts() {
				for _, runtime := range box.TierNames() {
					d, err := Decide(Request{Runtime: runtime, Trust: trust, MinTier: minimum, Spec: goodSpec()}, h.host)
					fmt.Fprintf(&b, "%-9s %-11s ", trust, runtime)
					var e *box.Error
					switch {
					case errors.As(err, &e):
						fmt.Fprintf(&b, "! %s: %s [%s]\n", e.Kind, e.Message, e.Hint)
					case err != nil:
						t.Fatalf("%v is no *box.Error", err)
					default:
						fmt.Fprintf(&b, "%s: %s\n", d.Tier, d.Reason)
					}
				}
			}
			b.WriteByte('\n')
		}
	}
	const golden = "testdata/decide.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	got, old := strings.Split(b.String(), "\n"), strings.Split(string(want), "\n")
	for i := range min(len(got), len(old)) {
		if got[i] != old[i] {
			t.Fatalf("line %d (run with -update and read the diff):\ngot  %s\nwant %s", i+1, got[i], old[i])
		}
	}
	if len(got) != len(old) {
		t.Fatalf("%d lines, the golden file has %d", len(got), len(old))
	}
}

var update = flag.Bool("update", false, "write the golden file")

func TestDecide(t *testing.T) {
	both := hostWith(true, box.TierProcess, box.TierGvisor)
	weak := hostWith(true, box.TierGvisor)
	weak.Usable[box.TierGvisor] = box.Caps{Usable: true, Weak: []string{"cpu is not limited", "inodes are not limited"}}
	unprobed := Host{Built: []box.TierName{box.TierGvisor}}
	for _, c := range []struct {
		name string
		req  Request
		host Host
		tier box.TierName
		kind box.Kind
		says []string // in the reason, or in message and hint
	}{
		{"a flag beats the file", Request{Trust: box.Internal, Runtime: box.TierGvisor, TierFlag: box.TierProcess}, both,
			box.TierProcess, "", []string{"--tier"}},
		{"--tier auto lets the floors decide again", Request{Trust: box.Internal, Runtime: box.TierGvisor, TierFlag: box.TierAuto}, both,
			box.TierProcess, "", []string{"trust internal"}},
		{"stronger than needed is fine", Request{Trust: box.Trusted, TierFlag: box.TierGvisor}, both,
			box.TierGvisor, "", []string{"stronger than needed", "process"}},
		{"not built is an upgrade, said so", Request{Trust: box.Trusted}, hostWith(true, box.TierGvisor),
			box.TierGvisor, "", []string{"process is not in this build", "no weaker"}},
		{"a label's minimum raises auto", Request{Trust: box.Trusted, LabelMinTier: box.TierGvisor}, both,
			box.TierGvisor, "", []string{"data label"}},
		{"the stronger of two minimums holds", Request{Trust: box.Trusted, MinTier: box.TierProcess, LabelMinTier: box.TierGvisor}, both,
			box.TierGvisor, "", []string{"data label"}},
		{"weaker than trust is refused with the way to permit it", Request{Trust: box.Untrusted, TierFlag: box.TierProcess}, both,
			"", box.Denied, []string{"trust untrusted needs at least gvisor", "trust: internal", "use tier gvisor"}},
		{"not built and too weak says both", Request{Trust: box.Untrusted, TierFlag: box.TierProcess}, hostWith(true, box.TierGvisor),
			"", box.Unsupported, []string{"not in this build (built: gvisor)", "trust untrusted needs at least gvisor", "trust: internal"}},
		{"weaker may be allowed", Request{Trust: box.Untrusted, TierFlag: box.TierProcess, AllowWeaker: true}, both,
			box.TierProcess, "", []string{"weaker than trust untrusted needs", "explicitly allowed"}},
		{"but not for hostile code", Request{Trust: box.Hostile, TierFlag: box.TierProcess, AllowWeaker: true}, both,
			"", box.Denied, []string{"trust hostile"}},
		{"nor below a tenant's minimum", Request{Trust: box.Trusted, TierFlag: box.TierProcess, MinTier: box.TierGvisor, AllowWeaker: true}, both,
			"", box.Denied, []string{"tenant's minimum tier is gvisor", "only by whoever set it"}},
		{"nor below a label's minimum", Request{Trust: box.Trusted, TierFlag: box.TierProcess, LabelMinTier: box.TierGvisor, AllowWeaker: true}, both,
			"", box.Denied, []string{"data label's minimum tier is gvisor"}},
		{"all that forbid it are named, and the one that no flag overrides", Request{Trust: box.Untrusted, TierFlag: box.TierProcess, MinTier: box.TierGvisor}, both,
			"", box.Denied, []string{"trust untrusted needs at least gvisor, and the tenant's minimum tier is gvisor", "only by whoever set it"}},
		{"allowing weaker changes nothing by itself", Request{Trust: box.Untrusted, AllowWeaker: true}, both,
			box.TierGvisor, "", nil},
		{"no tier as strong as the minimum", Request{Trust: box.Trusted, MinTier: box.TierMicroVM}, both,
			"", box.Unsupported, []string{"microvm", "built: process, gvisor"}},
		{"not usable names what is missing", Request{Trust: box.Untrusted}, hostWith(false, box.TierGvisor),
			"", box.Unusable, []string{"gvisor lacks a part", "sunaba doctor"}},
		{"not probed is not usable", Request{Trust: box.Untrusted}, unprobed,
			"", box.Unusable, []string{"not probed"}},
		{"weak is allowed by default", Request{Trust: box.Untrusted}, weak,
			box.TierGvisor, "", nil},
		{"unless nothing may be weak", Request{Trust: box.Untrusted, MustNotBeWeak: true}, weak,
			"", box.Denied, []string{"cpu is not limited; inodes are not limited"}},
		{"wasm is never chosen by itself and is no minimum", Request{Trust: box.Trusted, MinTier: box.TierWasm}, hostWith(true, all()...),
			"", box.Invalid, []string{"no minimum"}},
		{"unknown tier", Request{Trust: box.Trusted, TierFlag: "chroot"}, both,
			"", box.Invalid, []string{`"chroot"`, "allowed: auto, process"}},
		{"unknown trust", Request{Trust: "some"}, both,
			"", box.Invalid, []string{`"some"`, "hostile, untrusted"}},
		{"empty trust is not trusted", Request{}, both,
			"", box.Invalid, []string{"trust"}},
	} {
		c.req.Spec = goodSpec()
		d, err := Decide(c.req, c.host)
		said := d.Reason
		if err != nil {
			var e *box.Error
			if !errors.As(err, &e) {
				t.Errorf("%s: %v is no *box.Error", c.name, err)
				continue
			}
			said = e.Message + " | " + e.Hint
			if e.Kind != c.kind {
				t.Errorf("%s: kind %s, want %q: %s", c.name, e.Kind, c.kind, said)
			}
		}
		if (err != nil) != (c.kind != "") || d.Tier != c.tier {
			t.Errorf("%s: got %q, %v; want %q, kind %q", c.name, d.Tier, err, c.tier, c.kind)
		}
		for _, want := range c.says {
			if !strings.Contains(said, want) {
				t.Errorf("%s: %q does not say %q", c.name, said, want)
			}
		}
	}
}

func TestUnusableNamesTheNearestChoice(t *testing.T) {
	host := hostWith(true, all()...)
	host.Usable[box.TierMicroVM] = box.Caps{Missing: []string{"no /dev/kvm"}}
	req := Request{Trust: box.Untrusted, TierFlag: box.TierMicroVM, Spec: goodSpec()}
	hint := func() string {
		var e *box.Error
		_, err := Decide(req, host)
		if !errors.As(err, &e) || e.Kind != box.Unusable || !strings.Contains(e.Message, "no /dev/kvm") {
			t.Fatalf("got %v", err)
		}
		return e.Hint
	}
	if h := hint(); !strings.Contains(h, "no weaker: --tier firecracker") {
		t.Errorf("with firecracker usable: %s", h)
	}
	delete(host.Usable, box.TierFirecracker)
	if h := hint(); !strings.Contains(h, "weaker, but enough for trust untrusted: --tier gvisor") {
		t.Errorf("with gvisor usable: %s", h)
	}
	req.MinTier = box.TierMicroVM
	if h := hint(); strings.Contains(h, "--tier") {
		t.Errorf("below the minimum is no choice: %s", h)
	}
}

func TestSpecIsCheckedAndCopied(t *testing.T) {
	host := hostWith(true, box.TierGvisor)
	for name, change := range map[string]func(*box.Spec){
		"relative workdir":   func(s *box.Spec) { s.Workdir = "work" },
		"workdir /":          func(s *box.Spec) { s.Workdir = "/" },
		"unknown image":      func(s *box.Spec) { s.Image = "debian" },
		"network":            func(s *box.Spec) { s.Net.Mode = "allowlist" },
		"no network mode":    func(s *box.Spec) { s.Net.Mode = "" },
		"no memory":          func(s *box.Spec) { s.Limits.Memory = 0 },
		"negative timeout":   func(s *box.Spec) { s.Limits.Timeout = -1 },
		"no processes":       func(s *box.Spec) { s.Limits.Processes = 0 },
		"unknown on_limit":   func(s *box.Spec) { s.Limits.OnLimit = "warn" },
		"refused mount":      func(s *box.Spec) { s.Mounts = []box.Mount{{Source: "/etc/shadow", Target: "/x", ReadOnly: true}} },
		"unclean no_mount":   func(s *box.Spec) { s.NoMount = []string{"/srv/../x"} },
		"half a cpu permill": func(s *box.Spec) { s.Limits.MilliCPU = 9 },
	} {
		req := Request{Trust: box.Untrusted, Spec: goodSpec()}
		change(&req.Spec)
		if d, err := Decide(req, host); err == nil {
			t.Errorf("%s: got %+v", name, d)
		}
	}
	req := Request{Trust: box.Untrusted, Spec: goodSpec()}
	req.Spec.Mounts = []box.Mount{{Source: "/data", Target: "/data", ReadOnly: true}}
	req.Spec.NoMount = []string{"/srv/a"}
	req.Spec.Limits.Timeout = 0 // none: allowed to those who hold the box
	d, err := Decide(req, host)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(d.Spec, req.Spec) {
		t.Errorf("got %+v, want %+v", d.Spec, req.Spec)
	}
	d.Spec.Mounts[0].ReadOnly, d.Spec.NoMount[0] = false, ""
	if !req.Spec.Mounts[0].ReadOnly || req.Spec.NoMount[0] == "" {
		t.Error("the decision shares memory with the request")
	}
}
