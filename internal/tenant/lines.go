package tenant

import "slices"

// lines are all who wait, each in a line of its tenant's. The lines take turns: the
// tenant whose first was taken goes to the end. The zero value has nobody; its user
// holds a lock.
type lines[W comparable] struct {
	of    map[string][]W
	order []string // tenants with a line, whose turn is next first
}

// add puts one at the end of a tenant's line.
func (l *lines[W]) add(tenant string, w W) {
	if l.of == nil {
		l.of = map[string][]W{}
	}
	if len(l.of[tenant]) == 0 {
		l.order = append(l.order, tenant)
	}
	l.of[tenant] = append(l.of[tenant], w)
}

// next takes the first of the first line whose first may go, or reports that there
// is none.
func (l *lines[W]) next(may func(tenant string, first W) bool) (tenant string, first W, ok bool) {
	for i, tenant := range l.order {
		first := l.of[tenant][0]
		if !may(tenant, first) {
			continue
		}
		l.order = slices.Delete(l.order, i, i+1)
		if l.of[tenant] = l.of[tenant][1:]; len(l.of[tenant]) > 0 {
			l.order = append(l.order, tenant)
		} else {
			delete(l.of, tenant)
		}
		return tenant, first, true
	}
	return "", first, false
}

// leave takes one out of its line and reports whether it still stood there.
func (l *lines[W]) leave(tenant string, w W) bool {
	i := slices.Index(l.of[tenant], w)
	if i < 0 {
		return false
	}
	if l.of[tenant] = slices.Delete(l.of[tenant], i, i+1); len(l.of[tenant]) == 0 {
		delete(l.of, tenant)
		l.order = slices.DeleteFunc(l.order, func(o string) bool { return o == tenant })
	}
	return true
}

// all is how many wait.
func (l *lines[W]) all() (n int) {
	for _, line := range l.of {
		n += len(line)
	}
	return n
}
