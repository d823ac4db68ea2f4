package special_test

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/sunaba-dev/sunaba/internal/egress/special"
)

// TestWhatTheStandardLibraryCallsSpecialIsRefused: its predicates are too few,
// but what they know must not pass, however the address is written.
func TestWhatTheStandardLibraryCallsSpecialIsRefused(t *testing.T) {
	passed := 0
	rapid.Check(t, func(t *rapid.T) {
		var a netip.Addr
		if rapid.Bool().Draw(t, "v4") {
			b := rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "bytes")
			a = netip.AddrFrom4([4]byte(b))
		} else {
			b := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "bytes")
			if first := rapid.SampledFrom([]int{-1, 0x20, 0x26, 0xfc, 0xfe, 0xff}).Draw(t, "first"); first >= 0 {
				b[0] = byte(first)
			}
			a = netip.AddrFrom16([16]byte(b))
		}
		_, public := special.Check(a)
		_, internal := special.Table{}.Internal(a)
		u := a.Unmap()
		known := u.IsPrivate() || u.IsLoopback() || u.IsLinkLocalUnicast() || u.IsMulticast() || u.IsUnspecified() || !u.IsGlobalUnicast()
		switch {
		case public && (known || internal):
			t.Fatalf("%s is public", a)
		case internal && (u.IsLoopback() || u.IsLinkLocalUnicast() || u.IsMulticast() || u.IsUnspecified()):
			t.Fatalf("%s is internal", a)
		case (public || internal) && special.Metadata(a):
			t.Fatalf("%s of metadata can be reached", a)
		}
		if u.Is4() {
			mapped := netip.AddrFrom16(u.As16())
			if _, again := special.Check(mapped); again != public {
				t.Fatalf("%s: %v, and %s: %v", a, public, mapped, again)
			}
		}
		if _, zoned := special.Check(a.WithZone("eth0")); zoned && a.Is6() {
			t.Fatalf("%s with a zone is public", a)
		}
		if public {
			passed++
		}
	})
	if passed < 10 {
		t.Fatalf("%d addresses passed: the test shows nothing", passed)
	}
}
