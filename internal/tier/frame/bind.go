package frame

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
)

// Bind implements box.Binder. The box's Spec stays what it was made by: others
// read it meanwhile. Whose it is now is in its state.
func (b *Box) Bind(ctx context.Context, spec box.Spec) error {
	const op = "bind box"
	b.bound.Lock()
	defer b.bound.Unlock()
	var st state
	if err := json.Unmarshal(b.state, &st); err != nil {
		return box.Errorf(box.Fault, op, "cannot bind box %s: its state: %w", b.Spec.ID, err)
	}
	switch {
	case spec.ID != b.Spec.ID:
		return box.Errorf(box.Conflict, op, "cannot bind box %s: as box %s", b.Spec.ID, spec.ID)
	case st.Spec.Tenant != "" || st.Spec.Principal != "":
		return box.Errorf(box.Conflict, op, "cannot bind box %s: it is somebody's already", b.Spec.ID)
	case spec.Tenant == "" || spec.Principal == "":
		return box.Errorf(box.Invalid, op, "cannot bind box %s: to nobody", b.Spec.ID)
	case spec.Limits.MilliCPU < 10:
		return box.Errorf(box.Invalid, op, "cannot bind box %s: a cpu limit of %d thousandths is less than 10", b.Spec.ID, spec.Limits.MilliCPU)
	}
	if differ, err := Differences(st.Spec.spec(), spec); err != nil {
		return err
	} else if len(differ) > 0 {
		return box.Errorf(box.Conflict, op, "cannot bind box %s: it was made with another %s", b.Spec.ID, strings.Join(differ, ", "))
	}
	select {
	case <-b.Child.Done():
		return box.Errorf(box.NotFound, op, "cannot bind box %s: it has ended", b.Spec.ID)
	case <-ctx.Done():
		return fmt.Errorf("cannot bind box %s: %w", b.Spec.ID, ctx.Err())
	default:
	}
	set, err := b.limitCPU(spec.Limits.MilliCPU)
	if err != nil {
		return err
	}
	// A box whose quota could not be set at its start says so since then.
	if !set && !slices.ContainsFunc(b.Weaker, func(w string) bool { return strings.HasPrefix(w, "cpu: ") }) {
		return box.Errorf(box.Fault, op, "cannot bind box %s: its cpu quota can no longer be set", b.Spec.ID)
	}
	st.Spec.Tenant, st.Spec.Principal, st.Spec.Limits.MilliCPU, st.Weak = spec.Tenant, spec.Principal, spec.Limits.MilliCPU, b.Weaker
	raw, err := json.Marshal(st)
	if err != nil {
		return fmt.Errorf("cannot encode the box's state: %w", err)
	}
	b.state = raw
	return nil
}

// Differences names what of two specs differs, but for the ID, whose they are and
// the cpu limit; and for the limits that are each program's own: see
// box.Spec.Lasting. Seeds, which no state holds, differ if there are any.
func Differences(made, wanted box.Spec) ([]string, error) {
	a, err := fieldsOf(made)
	if err != nil {
		return nil, err
	}
	b, err := fieldsOf(wanted)
	if err != nil {
		return nil, err
	}
	all := maps.Clone(a)
	maps.Copy(all, b)
	var names []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if string(a[name]) != string(b[name]) {
			names = append(names, name)
		}
	}
	if len(made.Seeds)+len(wanted.Seeds) > 0 {
		names = append(names, "Seeds")
	}
	return names, nil
}

// fieldsOf are the parts of a spec as JSON, empty lists like none.
func fieldsOf(s box.Spec) (fields map[string]json.RawMessage, err error) {
	s.ID, s.Tenant, s.Principal, s.Limits.MilliCPU = "", "", "", 0
	s.Limits.Timeout, s.Limits.Idle, s.Limits.Grace, s.Limits.Output = 0, 0, 0, 0
	if len(s.Mounts) == 0 {
		s.Mounts = nil
	}
	if len(s.NoMount) == 0 {
		s.NoMount = nil
	}
	raw, err := json.Marshal(wishOf(s))
	if err == nil {
		err = json.Unmarshal(raw, &fields)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot compare specs: %w", err)
	}
	return fields, nil
}

// Made is what a box was made by, for a copy of it: without whose it was, and what
// Differences leaves out.
func Made(s box.Spec) (json.RawMessage, error) {
	s.ID, s.Tenant, s.Principal, s.Limits.MilliCPU = "", "", "", 0
	raw, err := json.Marshal(wishOf(s))
	if err != nil {
		return nil, fmt.Errorf("cannot encode what box %s was made by: %w", s.ID, err)
	}
	return raw, nil
}

// AsMade refuses a spec by which a box is to be made from a copy whose box was made
// by another.
func AsMade(made json.RawMessage, wanted box.Spec) error {
	var w wish
	if err := json.Unmarshal(made, &w); err != nil {
		return fmt.Errorf("cannot read what the copy's box was made by: %w", err)
	}
	differ, err := Differences(w.spec(), wanted)
	if err == nil && len(differ) > 0 {
		return box.Errorf(box.Conflict, "restore box", "cannot make a box from this copy: that was of one made with another %s", strings.Join(differ, ", "))
	}
	return err
}
