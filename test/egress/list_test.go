package egress

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// shared are the numbers of the list of cases that is about this gateway: names (A),
// addresses (B), questions (C), TLS (D), HTTP/1 (E), other channels (G), hosts that are
// allowed (H), exhaustion (J), and a policy's life (L).
const shared = `A1 A2 A3 A4 A5 A7 A8 A9 A10 A11 A13 A14
B15 B16 B17 B19 B20 B21 B22 B23 C25 C26 C27 C28 C29 C31 C32 C33 C34 C35
D37 D38 D39 D40 D41 D43 D44 D45 D46 D47 D49 D50 E51 E52 E53 E55 E56 E57 E58 E59 E61 E62 E63 E64 E65 E67 E68
G80 G81 G82 G83 G85 G86 G87 G88 G89 G91 G92 H93 H94 H95 H97 H98 H99 H100
J121 J122 J123 J124 J125 J127 J128 L136 L137 L139 L140 L141 L142 L143`

// elsewhere says where a case is tried that is no row from a box, by the file and a
// word in it.
func elsewhere() map[string][2]string {
	const rules, cell = "internal/egress/rules/", "internal/egress/cell/"
	return map[string][2]string{
		"A2":   {"internal/hostname/pattern_test.go", `"ex*mple.com"`},
		"A14":  {rules + "allowlist_test.go", `"example.com #:443"`},
		"B21":  {rules + "load_test.go", "::ffff:168.0.0.0/103"},
		"B23":  {"test/egress/names_test.go", "fe80::1%eth0"},
		"E63":  {cell + "http_test.go", "fields for one hop (63)"},
		"G85":  {"test/hostile/testdata/proc.cases", "/run/docker.sock"},
		"G87":  {"test/hostile/testdata/kernel.cases", "case: H18 AF_VSOCK"},
		"G89":  {"test/egress/cases_test.go", `"SSH to a port for TLS"`},
		"H95":  {rules + "load_test.go", "*.s3.eu-central-1.amazonaws.com"},
		"H98":  {rules + "load_test.go", "func TestARuleIsForNothingMoreThanItSays("},
		"H99":  {rules + "load_test.go", "*.workers.dev"},
		"J124": {cell + "budget_test.go", "func TestConnectionsMayBeginOnlySoFast("},
		"J127": {"test/egress/life_test.go", "func TestAKilledGatewayComesBack("},
		"J128": {cell + "budget_test.go", "func TestAHostWithoutDescriptorsRefusesAndRecovers("},
		"L136": {rules + "allowlist_test.go", "func TestAnEmptyListAllowsNothing("},
		"L137": {"test/egress/life_test.go", "func TestAChangeOfRulesClosesConnections("},
		"L139": {"test/egress/life_test.go", "after changes that were refused"},
		"L140": {"test/egress/race_test.go", "func TestNothingIsDialledByRulesThatWereTakenAway("},
		"L141": {"test/egress/exhaust_test.go", "func TestABoxThatEndsLeavesNothingInTheGateway("},
		"L142": {"cmd/sunaba/policy_file_test.go", "func TestAPolicyIsNeverReadFromWhereABoxMayWrite("},
	}
}

// unbuilt are those about what is not in this build. What would ask for it is refused.
func unbuilt() map[string]string {
	return map[string]string{
		"D50": "an authority of a box's own", "E67": "secrets", "E68": "rules for queries", "G91": "published ports",
		"G92": "files by way of the platform", "J123": "scanning of bodies", "L143": "approvals",
	}
}

func TestEveryCaseOfTheListIsTriedOrSaysWhatItWaitsFor(t *testing.T) {
	rows := map[string]bool{}
	for _, tier := range []box.TierName{box.TierGvisor, box.TierProcess} {
		for _, a := range append(attacks(), siblings(harness.Root, tier)...) {
			rows[a.id] = true
		}
	}
	listed := map[string]bool{}
	for _, id := range strings.Fields(shared) {
		listed[id] = true
		at, other := elsewhere()[id]
		if other {
			text, err := os.ReadFile(filepath.Join("..", "..", at[0]))
			if err != nil || !strings.Contains(string(text), at[1]) {
				t.Errorf("%s is not tried in %s (%v)", id, at[0], err)
			}
		}
		what, waits := unbuilt()[id]
		if waits {
			t.Logf("not tried, needs %s: %s", what, id)
		}
		if !rows[id] && !other && !waits {
			t.Errorf("%s is tried nowhere", id)
		}
	}
	for id := range elsewhere() {
		if !listed[id] {
			t.Errorf("%s is in no list", id)
		}
	}
}
