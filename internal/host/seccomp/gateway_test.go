package seccomp

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// gatewayTable is the gateway's filter as rules, for the model.
func gatewayTable() []Rule {
	out := gatewayRules()
	for _, c := range gatewayCalls {
		out = append(out, Rule{Name: c.name, AMD64: c.amd64, ARM64: c.arm64, Else: Allow})
	}
	return out
}

func TestGatewayProgramIsItsRules(t *testing.T) {
	for _, goarch := range []string{"amd64", "arm64"} {
		p, err := CompileGateway(goarch)
		if err != nil {
			t.Fatal(err)
		}
		m := load(t, p)
		m.as(goarch, gatewayTable(), eperm)
		for _, arch := range []uint32{m.arch, unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_ARM, 0} {
			for nr := range uint32(1024) {
				for _, high := range []uint32{0, x32, 0xfffffc00} {
					m.check(t, systemCall{nr: nr | high, arch: arch})
				}
			}
		}
		for _, r := range gatewayRules() {
			arguments(r, func(args [6]uint64) { m.check(t, systemCall{nr: uint32(m.number(r)), arch: m.arch, args: args}) })
		}
		for i, done := range m.covered {
			if !done {
				t.Errorf("%s: instruction %d of %d was never executed", goarch, i, len(m.covered))
			}
		}
	}
}

// The numbers are those of the table that is compared with the kernel's.
func TestGatewayCallsAreThoseOfTheTable(t *testing.T) {
	for _, r := range gatewayTable() {
		if !slices.ContainsFunc(Table(), func(o Rule) bool { return o.Name == r.Name && o.AMD64 == r.AMD64 && o.ARM64 == r.ARM64 }) {
			t.Errorf("%s has other numbers in the table, or is not in it", r.Name)
		}
	}
}
