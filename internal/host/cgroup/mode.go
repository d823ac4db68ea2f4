package cgroup

import "fmt"

// Mode says which versions of control groups this host mounts, as far as they
// can limit something: "v1", "v2", "hybrid" for both, or "none".
func (m *Manager) Mode() string {
	seen := map[int]bool{}
	for _, t := range m.trees {
		seen[t.version] = true
	}
	switch len(seen) {
	case 0:
		return "none"
	case 2:
		return "hybrid"
	}
	return fmt.Sprintf("v%d", m.trees[0].version)
}
