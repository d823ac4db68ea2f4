// Package synth is a box's table of names and the addresses that stand for
// them.
//
// A box never learns the address of an upstream. For each name that its policy
// reaches it is told one from a range that no network routes, and when it
// connects there, the table says which name it meant. So an address that was not
// asked for here leads nowhere, whoever it belongs to, and nothing has to be
// resolved before a connection is allowed.
//
// A name's address depends on the name alone as far as possible, and who keeps
// places elsewhere puts them back with [Table.Restore]: programs that remember an
// address find the same name there after the gateway was started anew. An address
// is given to another name only when two names meet at one place of 130,000 and the
// first was forgotten.
package synth

import (
	"container/list"
	"hash/fnv"
	"net/netip"
	"sync"

	"github.com/sunaba-dev/sunaba/internal/hostname"
)

// Size is how many names a table remembers; the one that was not used for the
// longest time is forgotten first.
const Size = 4096

// Offsets in the range of version 4, 198.18.0.0/15. The first 256 addresses are
// the wire's own, the last is left out as a broadcast address.
const (
	first = 256
	last  = 1<<17 - 2
)

// Table is one box's. It is safe for concurrent use.
type Table struct {
	mu     sync.Mutex
	names  map[hostname.Name]*list.Element
	places map[uint32]*list.Element
	recent *list.List // of *entry, the last used first
	fresh  int64
}

type entry struct {
	name       hostname.Name
	place      uint32
	generation uint64
}

// New returns an empty table.
func New() *Table {
	return &Table{names: map[hostname.Name]*list.Element{}, places: map[uint32]*list.Element{}, recent: list.New()}
}

// Known reports whether name is in the table.
func (t *Table) Known(name hostname.Name) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.names[name] != nil
}

// Assign returns the addresses of both versions that stand for name, and notes
// the policy generation under which they were told.
func (t *Table) Assign(name hostname.Name, generation uint64) (v4, v6 netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.names[name]
	if e == nil {
		t.makeRoom()
		e = t.add(name, t.free(name))
	}
	t.recent.MoveToFront(e)
	in := e.Value.(*entry)
	in.generation = generation
	return V4(in.place), V6(in.place)
}

func (t *Table) makeRoom() {
	if t.recent.Len() >= Size {
		t.drop(t.recent.Back())
	}
}

func (t *Table) add(name hostname.Name, place uint32) *list.Element {
	e := t.recent.PushFront(&entry{name: name, place: place})
	t.names[name], t.places[place] = e, e
	t.fresh++
	return e
}

func (t *Table) drop(e *list.Element) {
	old := t.recent.Remove(e).(*entry)
	delete(t.names, old.name)
	delete(t.places, old.place)
}

// Forget takes name out of the table.
func (t *Table) Forget(name hostname.Name) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.names[name]; e != nil {
		t.drop(e)
	}
}

// Restore puts name where it was in another table, and takes the place from who was
// there before, as it did there. A place that is none is left out: the name gets one
// when it is asked for.
func (t *Table) Restore(name hostname.Name, place uint32, generation uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if place < first || place > last {
		return
	}
	if e := t.names[name]; e != nil { // it had one before, and was forgotten
		t.drop(e)
	}
	if e := t.places[place]; e != nil {
		t.drop(e)
	}
	t.makeRoom()
	t.add(name, place).Value.(*entry).generation = generation
}

// free returns the first free place from where name belongs. There always is
// one: the range is larger than the table.
func (t *Table) free(name hostname.Name) uint32 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	at := uint32(h.Sum64() % (last - first + 1))
	for t.places[first+at] != nil {
		at = (at + 1) % (last - first + 1)
	}
	return first + at
}

// Lookup returns the name that a stands for and the generation under which it
// was last told.
func (t *Table) Lookup(a netip.Addr) (name hostname.Name, generation uint64, ok bool) {
	place, ok := placeOf(a)
	if !ok {
		return "", 0, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.places[place]
	if e == nil {
		return "", 0, false
	}
	t.recent.MoveToFront(e)
	in := e.Value.(*entry)
	return in.name, in.generation, true
}

// Fresh returns how often a name came that was not in the table.
func (t *Table) Fresh() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fresh
}

// Contains reports whether a is from the ranges that synthetic addresses are
// from, those of the wire included.
func Contains(a netip.Addr) bool {
	if a.Is4() {
		return prefix4().Contains(a)
	}
	return prefix6().Contains(a)
}

func prefix4() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18}), 15)
}

func prefix6() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0x53, 0x75, 0x6e, 0x61, 0x62, 0x61}), 64)
}

// V4 returns the address of version 4 at a place.
func V4(place uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{198, 18 + byte(place>>16), byte(place >> 8), byte(place)})
}

// V6 returns the address of version 6 at a place.
func V6(place uint32) netip.Addr {
	a := prefix6().Addr().As16()
	a[13], a[14], a[15] = byte(place>>16), byte(place>>8), byte(place)
	return netip.AddrFrom16(a)
}

// Place returns the place of an address that Assign returned.
func Place(a netip.Addr) uint32 {
	p, _ := placeOf(a)
	return p
}

func placeOf(a netip.Addr) (uint32, bool) {
	if !Contains(a) {
		return 0, false
	}
	b := a.AsSlice()
	n := len(b)
	place := uint32(b[n-2])<<8 | uint32(b[n-1])
	if a.Is4() {
		place |= uint32(b[1]-18) << 16
	} else {
		place |= uint32(b[13]) << 16
	}
	if place < first || place > last || a.Is6() && V6(place) != a {
		return 0, false
	}
	return place, true
}
