package engine

import "github.com/sunaba-dev/sunaba/box"

// idTries bounds the search for a name. That two of ten thousand boxes would have
// one host user happens once in 1700 names: 2^24 of them.
const idTries = 32

// newID makes a name for a box, of which each tier says that no other box on this
// host has the user that it stands for. A tier that cannot say so now says it when
// it makes the box.
func (e *Engine) newID() box.ID {
	var id box.ID
	for range idTries {
		id = box.NewID()
		if e.free(id) {
			break
		}
	}
	return id
}

func (e *Engine) free(id box.ID) bool {
	for _, t := range e.Tiers {
		f, ok := t.(interface{ Free(box.ID) (bool, error) })
		if !ok {
			continue
		}
		if free, err := f.Free(id); err == nil && !free {
			return false
		}
	}
	return true
}
