package special

import "net/netip"

type row struct {
	prefix netip.Prefix
	why    string
}

// global is all that IANA gives to IPv6 global unicast.
var global = netip.MustParsePrefix("2000::/3") //house:const a value of package netip

var (
	specialRows  = parse(specialText)  //house:const parsed once from the text below
	metadataRows = parse(metadataText) //house:const parsed once from the text below
	privateRows  = parse(privateText)  //house:const parsed once from the text below
)

func special() []row  { return specialRows }
func metadata() []row { return metadataRows }
func private() []row  { return privateRows }

func parse(text [][2]string) []row {
	out := make([]row, len(text))
	for i, t := range text {
		out[i] = row{netip.MustParsePrefix(t[0]), t[1]}
	}
	return out
}

// specialText is what nothing may reach. Sources: IANA's IPv4 and IPv6
// Special-Purpose Address Registries, and RFC 3879 (fec0::/10), RFC 6052
// (NAT64), RFC 7526 (6to4 relays).
//
//house:const a table
var specialText = [][2]string{
	{"0.0.0.0/8", "it means this host"},
	{"127.0.0.0/8", "it is loopback"},
	{"169.254.0.0/16", "it is link-local; clouds have their metadata service there"},
	{"192.0.0.0/24", "it is kept for protocols"},
	{"192.0.2.0/24", "it is for documentation"},
	{"192.88.99.0/24", "it was for 6to4 relays"},
	{"198.18.0.0/15", "it is for benchmarks; the gateway's own addresses lie there"},
	{"198.51.100.0/24", "it is for documentation"},
	{"203.0.113.0/24", "it is for documentation"},
	{"224.0.0.0/4", "it is multicast"},
	{"240.0.0.0/4", "it is reserved, or broadcast"},

	{"::/96", "it is unspecified, loopback, or an IPv4 address in IPv6"},
	{"::ffff:0:0:0/96", "it is an IPv4 address in IPv6 (SIIT)"},
	{"64:ff9b::/96", "it is an IPv4 address in IPv6 (NAT64)"},
	{"64:ff9b:1::/48", "it is an IPv4 address in IPv6 (NAT64)"},
	{"100::/64", "it is for discarding"},
	{"100:0:0:1::/64", "it is for discarding"},
	{"2001::/23", "it is kept for protocols (Teredo among them)"},
	{"2001:db8::/32", "it is for documentation"},
	{"2002::/16", "it is an IPv4 address in IPv6 (6to4)"},
	{"3fff::/20", "it is for documentation"},
	{"5f00::/16", "it is for segment routing"},
	{"fd53:756e:6162:6100::/64", "the gateway's own addresses lie there"},
	{"fe80::/10", "it is link-local"},
	{"fec0::/10", "it is site-local"},
	{"ff00::/8", "it is multicast"},
}

// metadataText is where clouds answer machines about themselves, from their
// own documentation. The link-local ones of other clouds lie in 169.254.0.0/16,
// which is refused as a whole.
//
//house:const a table
var metadataText = [][2]string{
	{"169.254.169.254/32", "most clouds"},
	{"169.254.170.2/32", "Amazon ECS"},
	{"169.254.170.23/32", "Amazon EKS"},
	{"169.254.42.42/32", "Scaleway"},
	{"169.254.0.23/32", "Tencent"},
	{"100.100.100.200/32", "Alibaba"},
	{"168.63.129.16/32", "Azure"},
	{"192.0.0.192/32", "Oracle"},
	{"fd00:ec2::/32", "Amazon"},
	{"fd20:ce::254/128", "Google"},
	{"fd00:42::42/128", "Scaleway"},
	{"fe80::a9fe:a9fe/128", "OpenStack"},
}

// privateText is what a rule with a network may reach, and nobody else.
//
//house:const a table
var privateText = [][2]string{
	{"10.0.0.0/8", "it is private"},
	{"172.16.0.0/12", "it is private"},
	{"192.168.0.0/16", "it is private"},
	{"100.64.0.0/10", "it is shared by a provider's customers (CGNAT)"},
	{"fc00::/7", "it is private (ULA)"},
}
