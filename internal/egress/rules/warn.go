package rules

import "fmt"

// warnings finds what is allowed and likely not meant.
func (c *checker) warnings() {
	for i := range c.p.Hosts {
		h := &c.p.Hosts[i]
		if h.Deny {
			continue
		}
		if h.Host.Wild() && publicSuffix(h.Host.Base()) == tenants {
			c.warn(i, -1, "host", "name the one host that is yours", "%s has many owners: anybody can get a name there, and read what is sent to it", h.Host)
		}
	}
}

// at says where in its file a line is, if it came from one.
func at(line int) string {
	if line == 0 {
		return ""
	}
	return fmt.Sprintf(" (line %d)", line)
}

func (h *Host) at() string { return at(h.line) }
