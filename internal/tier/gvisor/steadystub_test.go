package gvisor

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/platform/systrap/sysmsg"
)

func TestTheStubsOfThisGvisorHaveTheLateStoreOnceAndLoseNothingElse(t *testing.T) {
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "gvisor.dev/gvisor")
	cmd.Env = os.Environ()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		stub, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "pkg/sentry/platform/systrap/sysmsg/sighandler.built-in."+arch+".bin"))
		if err != nil {
			t.Fatal(err)
		}
		if arch == runtime.GOARCH && !bytes.Equal(stub, sysmsg.SighandlerBlob) {
			t.Errorf("%s: the stub of this program is another one", arch)
		}
		l := lateStores(arch)
		got, ok := withoutLateStore(stub, arch)
		if !ok || len(got) != len(stub) || len(l.nop) != len(l.store) {
			t.Fatalf("%s: the stub is not the one that is known: look at what gives a context back in pkg/sentry/platform/systrap", arch)
		}
		at := bytes.Index(stub, l.store)
		if !bytes.Equal(got[:at], stub[:at]) || !bytes.Equal(got[at+len(l.nop):], stub[at+len(l.nop):]) || !bytes.Equal(got[at:at+len(l.nop)], l.nop) {
			t.Errorf("%s: more than the store has changed", arch)
		}
		if _, ok := withoutLateStore(got, arch); ok {
			t.Errorf("%s: the store is found where there is none", arch)
		}
		if _, ok := withoutLateStore(append(bytes.Clone(stub), l.store...), arch); ok {
			t.Errorf("%s: one of two is taken", arch)
		}
	}
}
