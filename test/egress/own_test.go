package egress

import (
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/test/harness"
	"github.com/sunaba-dev/sunaba/test/upstream"
)

// An address that this host gains while a box runs is denied from the next connection
// on, by its name and however long the box was allowed to reach it before; once it is
// another's again, it is reached again.
func TestAnAddressThatTheHostGainsIsDenied(t *testing.T) {
	f := theWorld(t)
	const policy = `
version: 1
hosts:
  - { host: grown.example.com, port: 5432, protocol: tcp }
  - { host: range.example.com, port: 5432, protocol: tcp }
`
	harness.EachUserAndTier(t, func(t *testing.T, u harness.User) {
		s := newSubject(t, u, policy)
		for _, c := range []struct{ name, addr, gain, lose string }{
			{"grown.example.com", upstream.GrownAddr, "addr add " + upstream.GrownAddr + "/32 dev lo", "addr del " + upstream.GrownAddr + "/32 dev lo"},
			{"range.example.com", upstream.RangeAddr, "route add local 93.184.216.0/24 dev lo", "route del local 93.184.216.0/24 dev lo"},
		} {
			reach := fmt.Sprintf("R(%q, 5432, b'to the host')", c.name)
			if got := s.try(reach); !strings.Contains(got, "to the host") {
				t.Errorf("%s, while it is another's: %s", c.addr, got)
			}
			if err := ip(c.gain); err != nil {
				t.Fatal(err)
			}
			came, l := listens(t, c.addr+":5432")
			began := time.Now()
			if got := s.try(reach); strings.Contains(got, "to the host") {
				t.Errorf("%s, %v after it became this host's: %s", c.addr, time.Since(began), got)
			}
			if n := came.Load(); n != 0 {
				t.Errorf("%s: %d connections came to this host", c.addr, n)
			}
			// The control: who is no box reaches it, and is seen.
			if n, err := net.Dial("tcp", c.addr+":5432"); err != nil {
				t.Error(err)
			} else {
				n.Close()
			}
			for deadline := time.Now().Add(time.Minute); came.Load() == 0; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("%s: nobody listens there", c.addr)
				}
			}
			l.Close()
			if err := ip(c.lose); err != nil {
				t.Fatal(err)
			}
			if got := s.try(reach); !strings.Contains(got, "to the host") {
				t.Errorf("%s, another's again: %s", c.addr, got)
			}
		}
		f.take(t)
	})
}

// ip changes what the tests' network namespace has.
func ip(args string) error {
	cmd := exec.Command("/usr/bin/ip", strings.Fields(args)...)
	cmd.Env = []string{}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", args, err, out)
	}
	return nil
}

// listens counts connections to an address, and closes them.
func listens(t *testing.T, at string) (*atomic.Int64, io.Closer) {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	var n atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n.Add(1)
			c.Close()
		}
	}()
	return &n, l
}
