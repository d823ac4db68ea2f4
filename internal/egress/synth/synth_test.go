package synth

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/sunaba-dev/sunaba/internal/hostname"
)

func TestANameKeepsItsAddresses(t *testing.T) {
	a, b := New(), New()
	v4, v6 := a.Assign("a.example.com", 1)
	again4, again6 := a.Assign("a.example.com", 2)
	other4, other6 := b.Assign("a.example.com", 1) // another table, as after a restart
	if v4 != again4 || v6 != again6 || v4 != other4 || v6 != other6 {
		t.Errorf("%v %v, then %v %v, elsewhere %v %v", v4, v6, again4, again6, other4, other6)
	}
	for _, x := range []netip.Addr{v4, v6} {
		if name, generation, ok := a.Lookup(x); !ok || name != "a.example.com" || generation != 2 {
			t.Errorf("%v: %q %d %v", x, name, generation, ok)
		}
	}
	if a.Fresh() != 1 || !a.Known("a.example.com") || a.Known("b.example.com") {
		t.Error("it does not know what it knows")
	}
}

func TestWhatWasNotToldStandsForNothing(t *testing.T) {
	a := New()
	v4, _ := a.Assign("a.example.com", 1)
	for _, s := range []string{"198.18.0.0", "198.18.0.1", "198.18.0.255", "198.19.255.255", "198.17.255.255", "198.20.0.0", v4.Next().String(),
		"fd53:756e:6162:6100::1", "fd53:756e:6162:6101::100", "fd53:756e:6162:6100:1::100", "::ffff:" + v4.String(), "8.8.8.8", "::"} {
		if name, _, ok := a.Lookup(netip.MustParseAddr(s)); ok {
			t.Errorf("%s stands for %s", s, name)
		}
	}
}

// Four thousand names have four thousand addresses; more forget the oldest, and
// none ever leads to another name while it is known.
func TestATableIsBoundedAndItsAddressesAreDistinct(t *testing.T) {
	table := New()
	told := map[netip.Addr]hostname.Name{}
	for i := range 3 * Size {
		name := hostname.Name(fmt.Sprintf("n%d.example.com", i))
		v4, _ := table.Assign(name, 1)
		told[v4] = name
		if i%100 == 0 { // one that is used is not forgotten
			table.Assign("kept.example.com", 1)
		}
	}
	known := 0
	for a, want := range told {
		if name, _, ok := table.Lookup(a); ok {
			known++
			if name != want {
				t.Errorf("%v was told for %s and stands for %s", a, want, name)
			}
		}
	}
	if known != Size-1 || !table.Known("kept.example.com") || table.recent.Len() != Size || len(table.names) != Size || len(table.places) != Size {
		t.Errorf("%d names are known, %d entries", known, table.recent.Len())
	}
}

func TestNamesThatMeetHaveDifferentAddresses(t *testing.T) {
	table := New()
	place := table.free("a.example.com")
	table.places[place] = table.recent.PushFront(&entry{name: "b.example.com", place: place})
	if v4, _ := table.Assign("a.example.com", 1); v4 == V4(place) {
		t.Error("two names have one address")
	}
}
