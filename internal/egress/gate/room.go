package gate

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// room is how many connections to the world the gateway has descriptors for, and
// shares them out: any box may have of the first half what there is, and the second
// half is for boxes that have less than their part of it. So no box, and no number
// of them, takes the last that another one needs.
type room struct {
	mu    sync.Mutex
	most  int
	used  int
	cells int
}

// newRoom leaves half of the descriptors that this process may have for links, for
// questions to resolvers and for what else is short-lived.
func newRoom() (*room, error) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return nil, fmt.Errorf("cannot be the gateway: cannot ask how many descriptors it may have: %w", err)
	}
	return &room{most: int(min(l.Cur, 1<<20) / 2)}, nil
}

func (r *room) enter() *share {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cells++
	return &share{of: r}
}

func (r *room) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cells--
}

// share is a box's.
type share struct {
	of   *room
	used int
}

// Take takes a place, if there is one for this box.
func (s *share) Take() bool {
	r := s.of
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used >= r.most/2 && s.used >= max(1, r.most/2/max(r.cells, 1)) {
		return false
	}
	r.used++
	s.used++
	return true
}

// Give gives one back.
func (s *share) Give() {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.used--
	s.used--
}
