package dial

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inside marks a child of this test, in a network namespace of its own.
const inside = "SUNABA_TEST_ROUTES"

// Which addresses are this host's changes while the dialer is there: each is refused
// from the next connection on, and reached again once it is another's.
func TestAnAddressIsThisHostsAsSoonAsTheKernelSaysSo(t *testing.T) {
	if os.Getenv(inside) != "" {
		changing(t)
		return
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("all is well")) {
		t.Fatalf("%v:\n%s", err, out)
	}
}

func changing(t *testing.T) {
	ip := func(args string) {
		t.Helper()
		cmd := exec.Command("/usr/bin/ip", strings.Fields(args)...)
		cmd.Env = []string{}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", args, err, out)
		}
	}
	ip("link set lo up")
	ip("link add net0 type veth peer name net1")
	ip("addr add 10.9.0.1/24 dev net0")
	ip("-6 addr add fd00:9::1/64 dev net0 nodad")
	ip("link set net0 up")
	ip("link set net1 up")
	is := func(a string, want way) {
		t.Helper()
		var got way
		var err error
		// An address of version 6 is in force some milliseconds after ip has returned.
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if got, err = ask(netip.AddrPortFrom(netip.MustParseAddr(a), 443)); got == want && err == nil {
				return
			}
		}
		t.Errorf("the way to %s is %d, %v; want %d", a, got, err, want)
	}
	if err := Ready(); err != nil {
		t.Fatal(err)
	}
	is("8.8.4.4", wayNone)
	ip("route add default via 10.9.0.2")
	ip("-6 route add default via fd00:9::2")
	for _, c := range []struct{ addr, more, less string }{
		{"93.184.215.77", "addr add 93.184.215.77/32 dev net0", "addr del 93.184.215.77/32 dev net0"},
		{"93.184.215.78", "addr add 93.184.215.78/32 dev lo", "addr del 93.184.215.78/32 dev lo"},
		{"93.184.216.9", "route add local 93.184.216.0/24 dev lo", "route del local 93.184.216.0/24 dev lo"},
		{"93.184.217.255", "addr add 93.184.217.1/24 broadcast + dev net0", "addr del 93.184.217.1/24 dev net0"},
		{"2606:2800::77", "-6 addr add 2606:2800::77/128 dev net0 nodad", "-6 addr del 2606:2800::77/128 dev net0"},
	} {
		a := netip.MustParseAddr(c.addr)
		dialled := func() Code {
			ctx, cancel := context.WithCancel(context.Background())
			cancel() // nobody answers here
			_, _, err := (&Dialer{Resolver: fixed{a}}).Dial(ctx, Target{Name: "a.example.com", Port: 443, Entry: entry(t)})
			return CodeOf(err)
		}
		is(c.addr, wayOut)
		if got := dialled(); got == AddressDenied {
			t.Errorf("%s, not yet this host's: %s", a, got)
		}
		ip(c.more)
		is(c.addr, wayHere)
		if got := dialled(); got != AddressDenied {
			t.Errorf("%s, this host's: %s", a, got)
		}
		// Who was there between the check and the connect is refused by the hook.
		checked := netip.AddrPortFrom(a, 443)
		if err := (&Dialer{}).veto(Target{Entry: entry(t)}, checked, checked, checked.String()); err == nil || !strings.Contains(err.Error(), "an address of this host") {
			t.Errorf("%s at the last moment: %v", a, err)
		}
		ip(c.less)
		is(c.addr, wayOut)
	}
	// Who gets no answer does not connect; that somebody listens is the control.
	ip("addr add 93.184.218.1/32 dev lo")
	l, err := net.Listen("tcp", "93.184.218.1:443")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if c, err := net.Dial("tcp", l.Addr().String()); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	_, _, derr := (&Dialer{Resolver: fixed{netip.MustParseAddr("93.184.218.1")}}).Dial(context.Background(), Target{Name: "a.example.com", Port: 443, Entry: entry(t)})
	rerr := Ready()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if CodeOf(derr) != AddressDenied || rerr == nil || !strings.Contains(derr.Error(), "cannot ask the kernel") {
		t.Errorf("without an answer: %v, %v", derr, rerr)
	}
	if !t.Failed() {
		t.Log("all is well")
	}
}

func TestAnAnswerThatIsNoRouteIsAnError(t *testing.T) {
	good := routeQuestion(netip.MustParseAddrPort("8.8.4.4:443"))
	for n := range good {
		if w, err := routeAnswer(good[:n]); w != wayNone || err == nil {
			t.Errorf("%d bytes: %d, %v", n, w, err)
		}
	}
}
