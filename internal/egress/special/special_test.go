package special_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/internal/egress/special"
)

// TestSpecialAddressesAreRefused has the cases B 16, 17, 19, 20 and 23 of the
// attack list, the ends of each range, and siblings.
func TestSpecialAddressesAreRefused(t *testing.T) {
	for _, a := range []string{
		"::ffff:127.0.0.1", "::ffff:a9fe:a9fe", "::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b::8.8.8.8", "64:ff9b:1::1", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff",
		"2002:a9fe:a9fe::1", "2002:808:808::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "fec0::1", "feff::1", "fe80::1", "febf::1", "fe80::1%eth0", "2606:4700::1%eth0",
		"0.0.0.0", "0.1.2.3", "127.0.0.1", "127.255.255.255", "10.0.0.1", "10.255.255.255", "100.64.0.0", "100.127.255.255", "169.254.0.0", "169.254.169.254", "169.254.255.255",
		"172.16.0.0", "172.31.255.255", "192.0.0.0", "192.0.0.255", "192.0.2.1", "192.88.99.1", "192.168.0.0", "192.168.255.255", "198.18.0.0", "198.19.255.255",
		"198.51.100.1", "203.0.113.255", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "168.63.129.16", "100.100.100.200",
		"::", "::1", "::8.8.8.8", "100::1", "100:0:0:1::1", "2001::1", "2001:1ff:ffff::1", "2001:db8::1", "3fff::1", "3fff:fff::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fdff::1", "ff02::1",
		"4000::1", "1fff::1", "e000::1", "::ffff:0:8.8.8.8", "::ffff:10.0.0.1", "::ffff:168.63.129.16",
	} {
		if why, ok := special.Check(netip.MustParseAddr(a)); ok || why == "" {
			t.Errorf("%s may be reached (%q)", a, why)
		}
	}
	if _, ok := special.Check(netip.Addr{}); ok {
		t.Error("no address may be reached")
	}
}

func TestPublicAddressesPass(t *testing.T) {
	for _, a := range []string{
		"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0",
		"191.255.255.255", "192.0.1.0", "192.0.3.0", "192.88.98.255", "192.88.100.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255", "168.63.129.15", "168.63.129.17",
		"::ffff:8.8.8.8", "2606:4700::1111", "2001:200::1", "2001:4860:4860::8888", "2003::1", "2400:cb00::1", "2a00::1", "3ffe::1", "2001:db7::1",
	} {
		if why, ok := special.Check(netip.MustParseAddr(a)); !ok {
			t.Errorf("%s is refused: %s", a, why)
		}
	}
}

// The examples of RFC 6052, 2.4, and what may not be reached by any of them.
func TestATranslatedAddressIsJudgedAsWhatItStandsFor(t *testing.T) {
	for _, c := range []struct{ answer, prefix, good, bad string }{
		{"2a00:db8:c000:aa::", "2a00:db8::/32", "2a00:db8:808:404::", "2a00:db8:a9fe:a9fe::"},
		{"2a00:db8:1c0:0:aa::", "2a00:db8:100::/40", "2a00:db8:108:804:4::", "2a00:db8:10a:0:1::"},
		{"2a00:db8:122:c000:0:aa00::", "2a00:db8:122::/48", "2a00:db8:122:808:4:400::", "2a00:db8:122:7f00:0:100::"},
		{"2a00:db8:122:3c0:0:ab::", "2a00:db8:122:300::/56", "2a00:db8:122:308:8:404::", "2a00:db8:122:3c0:a8:101::"},
		{"2a00:db8:122:344:c0:0:aa00:0", "2a00:db8:122:344::/64", "2a00:db8:122:344:8:804:400:0", "2a00:db8:122:344:a9:fea9:fe00:0"},
		{"2a00:db8:122:344::c000:ab", "2a00:db8:122:344::/96", "2a00:db8:122:344::808:404", "2a00:db8:122:344::a00:1"},
		{"64:ff9b::c000:aa", "64:ff9b::/96", "64:ff9b::808:404", "64:ff9b::a9fe:a9fe"},
	} {
		p := special.NAT64([]netip.Addr{netip.MustParseAddr("192.0.0.170"), netip.MustParseAddr(c.answer)})
		if len(p) != 1 || p[0].String() != c.prefix {
			t.Errorf("%s is read as %v, not %s", c.answer, p, c.prefix)
			continue
		}
		tab, good, bad := special.New(p), netip.MustParseAddr(c.good), netip.MustParseAddr(c.bad)
		if why, ok := tab.Check(good); !ok || len(tab.Translated(good)) != 1 || tab.Translated(good)[0].String() != "8.8.4.4" {
			t.Errorf("%s stands for %v and is refused: %s", good, tab.Translated(good), why)
		}
		if why, ok := tab.Check(bad); ok || !strings.Contains(why, "it stands for") {
			t.Errorf("%s stands for %v and is not refused: %s", bad, tab.Translated(bad), why)
		}
		if _, ok := tab.Internal(bad); ok {
			t.Errorf("%s may be reached as internal", bad)
		}
		// Nobody who does not know refuses it: that is why it is asked for.
		if _, ok := special.Check(bad); ok != !strings.HasPrefix(c.bad, "64:") {
			t.Errorf("%s, with no prefix known: %v", bad, ok)
		}
	}
	for _, a := range []string{"2a00::1", "192.0.0.170", "::ffff:192.0.0.170", "2a00:db8:122:344:1:0:c000:a9"} {
		if p := special.NAT64([]netip.Addr{netip.MustParseAddr(a)}); len(p) != 0 {
			t.Errorf("%s is read as %v", a, p)
		}
	}
	tab := special.New([]netip.Prefix{netip.MustParsePrefix("fd00:ec2::/96"), netip.MustParsePrefix("2a00:64::/96"), netip.MustParsePrefix("2a00::/32")})
	if _, ok := tab.Check(netip.MustParseAddr("fd00:ec2::808:404")); ok {
		t.Error("a prefix opens the metadata service")
	}
	if _, ok := tab.Check(netip.MustParseAddr("2a00:64::808:404")); !ok {
		t.Error("a prefix beside another one is judged by both")
	}
	both := special.New([]netip.Prefix{netip.MustParsePrefix("2a00:64:64::/96"), netip.MustParsePrefix("2a00:64::/32")})
	if _, ok := both.Check(netip.MustParseAddr("2a00:64:64::808:404")); ok {
		t.Error("an address in two prefixes that stands for a special one in one of them passes")
	}
}

func TestInternalMeansPrivateAndNothingElse(t *testing.T) {
	for _, a := range []string{"10.0.0.1", "172.31.0.1", "192.168.1.1", "100.64.0.1", "fd12::1", "::ffff:10.0.0.1"} {
		if why, ok := (special.Table{}).Internal(netip.MustParseAddr(a)); !ok {
			t.Errorf("%s is refused: %s", a, why)
		}
	}
	for _, a := range []string{"8.8.8.8", "127.0.0.1", "169.254.169.254", "100.100.100.200", "fd00:ec2::254", "fd20:ce::254", "fe80::1", "0.0.0.0", "2606:4700::1", "::1", "198.18.0.1", "64:ff9b::10.0.0.1", "2002:a00:1::1"} {
		if _, ok := (special.Table{}).Internal(netip.MustParseAddr(a)); ok {
			t.Errorf("%s may be reached as internal", a)
		}
	}
}

// TestNetworksOfRulesLieInPrivateRanges has case B 21.
func TestNetworksOfRulesLieInPrivateRanges(t *testing.T) {
	for _, p := range []string{"10.2.0.0/24", "10.0.0.0/8", "172.16.0.0/12", "192.168.1.1/32", "100.64.0.0/10", "fd00::/8", "fc00::/7"} {
		if why := special.MeetsInternal(netip.MustParsePrefix(p)); why != "" {
			t.Errorf("%s is refused: %s", p, why)
		}
	}
	for _, p := range []string{
		"0.0.0.0/0", "::/0", "::ffff:168.0.0.0/103", "::ffff:10.0.0.0/104", "168.0.0.0/7", "10.0.0.0/7", "172.16.0.0/11", "192.168.0.0/15", "100.0.0.0/8", "169.254.0.0/16", "169.254.169.254/32",
		"127.0.0.0/8", "127.0.0.1/32", "198.18.0.0/15", "8.8.8.8/32", "2606:4700::/32", "fc00::/6", "64:ff9b::/96", "100.100.100.200/32", "fd00:ec2::254/128", "fd00:ec2::/32", "fe80::/10", "::/96", "2000::/3", "f000::/4",
	} {
		if special.MeetsInternal(netip.MustParsePrefix(p)) == "" {
			t.Errorf("%s may be named by a rule", p)
		}
	}
}
