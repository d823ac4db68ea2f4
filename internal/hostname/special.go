package hostname

// Special says what kind of name n is if it is one that no public DNS answers
// for, or that means the asking machine or its network itself: half a sentence,
// or "" for an ordinary name. With private, a private network may really have a
// host of that name. Such a name must be answered from no hosts file and no
// search list (RFC 6761, 6762, 7686, 8375, 9476, ICANN's .internal).
func Special(n Name) (why string, private bool) {
	for _, s := range []struct {
		base    Name
		why     string
		private bool
	}{
		{"localhost", "it means the asking machine itself", false},
		{"localdomain", "it means the asking machine itself", false},
		{"local", "it belongs to the local link (mDNS) or to a private network", true},
		{"internal", "it belongs to a private network", true},
		{"home.arpa", "it belongs to a private network", true},
		{"lan", "it belongs to a private network", true},
		{"onion", "it is never asked of DNS", false},
		{"alt", "it is never asked of DNS", false},
		{"invalid", "it never exists", false},
		{"in-addr.arpa", "it stands for an address", false},
		{"ip6.arpa", "it stands for an address", false},
	} {
		if n == s.base || Under(n, s.base) {
			return s.why, s.private
		}
	}
	for i := range len(n) {
		if n[i] == '.' {
			return "", false
		}
	}
	return "it has one label only, so it belongs to a private network", true
}

// Metadata reports whether n is a name of the service that tells machines of a
// cloud who they are and hands out their credentials. No rule can allow it.
func Metadata(n Name) bool {
	for _, m := range []Name{
		"metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal",
		"metadata.azure.internal", "metadata.platformequinix.com", "metadata.packet.net", "metadata.tencentyun.com",
	} {
		if n == m || Under(n, m) {
			return true
		}
	}
	return false
}
